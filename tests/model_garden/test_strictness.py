"""Mistakes in Model Garden's configs that it ignores itself."""
# ruff: noqa: E501 (one line a case)

import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve

CASES = [
    ("resnet_imagenet", "task.model.bakbone.type=resnet", "task.model.bakbone", "unknown setting 'bakbone'; did you mean 'backbone'?"),
    # Inside sections that are null by default.
    ("resnet_imagenet", "task.train_data.aug_type={typ: randaug}", "task.train_data.aug_type.typ", "unknown setting 'typ'; did you mean 'type'?"),
    ("resnet_imagenet", "trainer.optimizer_config.ema.average_decy=0.9", "trainer.optimizer_config.ema.average_decy", "unknown setting"),
    ("resnet_imagenet", "task.model.backbone.type=resnest", "task.model.backbone.type", "unknown"),
    ("resnet_imagenet", "task.model.num_classes=many", "task.model.num_classes", "got 'many', expected an integer"),
    ("resnet_imagenet", "task.train_data.is_training=5", "task.train_data.is_training", "got 5, expected true or false"),
    ("resnet_imagenet", "trainer.trian_steps=5", "trainer.trian_steps", "unknown setting 'trian_steps'; did you mean 'train_steps'?"),
    ("bert/squad", "task.model.encoder.bert.num_layerz=2", "task.model.encoder.bert.num_layerz", "unknown setting"),
    ("bert/pretraining", "task.model.cls_heads=[{nmae: a}]", "task.model.cls_heads[0].nmae", "unknown setting 'nmae'; did you mean 'name'?"),
    ("resnet_imagenet", "task.model.input_size=[320 320, 3]", "task.model.input_size", "got '320 320', expected an integer"),
    ("resnet_imagenet", "task.train_data.aug_type=autoaug", "task.train_data.aug_type", "got 'autoaug', expected a section or null"),
    ("resnet_imagenet", "trainer.max_to_keep=0", "trainer.max_to_keep", "got 0, allowed: at least 1"),
    ("resnet_imagenet", "trainer.checkpoint_interval=-2", "trainer.checkpoint_interval", "got -2, allowed: at least -1"),
    ("bert/pretraining", "task.model.cls_heads=[5]", "task.model.cls_heads[0]", "got 5, expected a section"),
]  # fmt: skip


def resolved(**request):
    return resolve(Request(experiment="official/resnet_imagenet", **request))


def refused(name, **request):
    with pytest.raises(ConfigError) as caught:
        resolve(Request(experiment=f"official/{name}", **request))
    return caught.value.problems


@pytest.mark.parametrize(("name", "said", "path", "message"), CASES)
def test_config_mistake_is_reported_with_its_path_and_origin(name, said, path, message):
    (problem,) = refused(name, params_overrides=(said,))

    assert problem.path == path
    assert problem.message.startswith(message)
    assert str(problem.origin) == "--params_override[0]"


def test_all_mistakes_in_a_file_are_reported_with_line_numbers(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("task:\n  model:\n    num_clases: 10\ntrainer:\n  train_steps: abc\n")

    problems = refused("resnet_imagenet", config_files=(str(file),))

    assert {(p.path, str(p.origin)) for p in problems} == {
        ("task.model.num_clases", f"{file}:3"),
        ("trainer.train_steps", f"{file}:5"),
    }


def test_unknown_experiment_suggests_the_nearest_name():
    (problem,) = refused("resnet_imagnet")

    assert problem.message.startswith(
        "unknown experiment 'official/resnet_imagnet'; did you mean 'official/resnet_imagenet'?"
    )
    assert len(problem.message.splitlines()) == 2


def test_overrides_of_an_official_experiment_apply_in_the_usual_order(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("task: {model: {num_classes: 10, dropout_rate: 0.1}}\n")

    resolution = resolved(
        config_files=(str(file),),
        gin_params=("task.model.num_classes = 20", "trainer.train_steps = 7"),
        flags=(("--train_steps", "trainer.train_steps", "9"),),
    )

    params = resolution.config.for_task
    assert (params.task.model.num_classes, params.task.model.dropout_rate) == (20, 0.1)
    assert params.trainer.train_steps == 9
    assert str(resolution.origin("task.model.num_classes")) == "--gin_param[0]"
    assert str(resolution.origin("task.model.dropout_rate")) == f"{file}:1"
    assert str(resolution.origin("task.model.input_size")) == "official/resnet_imagenet"


def test_overridden_backbone_is_a_model_garden_class():
    override = "task.model.backbone={type: mobilenet, mobilenet: {model_id: X}}"

    backbone = resolved(params_overrides=(override,)).config.for_task.task.model.backbone
    assert backbone.type == "mobilenet"
    assert backbone.get().model_id == "X"
    assert type(backbone.get()).__module__ == "official.vision.configs.backbones"


def test_list_of_sections_becomes_model_garden_classes():
    heads = "task.model.cls_heads=[{name: a, num_classes: 3}, {name: b, inner_dim: 5}]"
    request = Request(experiment="official/bert/pretraining", params_overrides=(heads,))

    head_configs = resolve(request).config.for_task.task.model.cls_heads
    assert [(head.name, head.num_classes) for head in head_configs] == [("a", 3), ("b", 2)]
    assert head_configs[1].inner_dim == 5
    assert {type(head).__name__ for head in head_configs} == {"ClsHeadConfig"}


def test_experiment_registered_by_a_user_module_resolves(tmp_path, monkeypatch):
    (tmp_path / "own_garden.py").write_text(
        "from official.core import exp_factory\n"
        "from official.vision.configs import image_classification\n"
        "@exp_factory.register_config_factory('own/small')\n"
        "def small():\n"
        "    config = image_classification.image_classification_imagenet()\n"
        "    config.task.model.num_classes = 3\n"
        "    return config\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    config = resolve(Request(experiment="official/own/small", imports=("own_garden",))).config

    assert config.name == "own_small"
    assert config.for_task.task.model.num_classes == 3


def test_model_garden_experiment_without_prefix_is_rejected_with_a_hint():
    with pytest.raises(ConfigError) as caught:
        resolve(Request(experiment="bert/squad"))

    (problem,) = caught.value.problems
    assert problem.message == (
        "unknown experiment 'bert/squad'; for Model Garden's, use --experiment=official/bert/squad"
    )


def test_weight_average_can_be_added_to_an_experiment_without_one():
    override = "trainer.optimizer_config.ema={average_decay: 0.5}"

    ema = resolved(params_overrides=(override,)).config.for_task.trainer.optimizer_config.ema
    assert ema.average_decay == 0.5
    assert type(ema).__module__.startswith("official.")
