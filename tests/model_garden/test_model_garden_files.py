"""Kinds of config files in Model Garden's repository: they load here unchanged."""

import json

import pytest
from official.modeling import hyperparams

from orbit_runner.cli.main import main
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml
from orbit_runner.model_garden import loading
from tests.support.toy import records

# A name, the experiment, the file, and the paths of the settings that have no effect.
FILES = [
    (
        "a video experiment with fields that nothing reads",
        "video_classification",
        """
        task:
          train_data: {name: kinetics400, variant_name: rgb, num_examples: 240000}
          validation_data: {variant_name: rgb}
        """,
        [],
    ),
    (
        "a section that nothing reads",
        "image_classification",
        """
        task:
          train_data:
            aug_policy: randaug
            decoder: {simple_decoder: {regenerate_source_id: true}}
        """,
        [],
    ),
    (
        "a file for GPUs, started without any",
        "mobilenet_imagenet",
        """
        runtime: {distribution_strategy: mirrored, all_reduce_alg: nccl, loss_scale: dynamic}
        trainer:
          optimizer_config: {warmup: {type: linear, linear: {warmup_steps: 0}}}
        """,
        ["runtime.all_reduce_alg", "runtime.loss_scale"],
    ),
    (
        "one device",
        "resnet_imagenet",
        "runtime: {distribution_strategy: one_device, all_reduce_alg: nccl, worker_hosts: 'a:1'}",
        ["runtime.all_reduce_alg", "runtime.worker_hosts"],
    ),
    (
        "a TPU without an address",
        "resnet_imagenet",
        "runtime: {distribution_strategy: tpu, mixed_precision_dtype: bfloat16}",
        [],
    ),
    (
        "a TPU and the settings of GPUs",
        "resnet_imagenet",
        "runtime: {distribution_strategy: tpu, num_gpus: 8, loss_scale: 128.0}",
        ["runtime.loss_scale", "runtime.num_gpus"],
    ),
    (
        "the settings of a TPU under another strategy",
        "resnet_imagenet",
        "runtime: {distribution_strategy: mirrored, tpu: my-tpu}",
        ["runtime.tpu"],
    ),
    (
        "a tf.data service without an address",
        "resnet_imagenet",
        "task: {train_data: {enable_tf_data_service: true}}",
        ["task.train_data.enable_tf_data_service"],
    ),
    (
        "half of a best checkpoint",
        "resnet_imagenet",
        "trainer: {best_checkpoint_export_subdir: best_ckpt}",
        ["trainer.best_checkpoint_export_subdir"],
    ),
    (
        "summaries inside a step",
        "resnet_imagenet",
        "trainer: {allow_tpu_summary: true}",
        ["trainer.allow_tpu_summary"],
    ),
    (
        "intervals of 0 and -1",
        "bert/pretraining",
        """
        trainer: {validation_interval: 0, checkpoint_interval: -1, continuous_eval_timeout: 0}
        """,
        [],
    ),
    (
        "values with the tags that PyYAML writes",
        "video_classification",
        """
        task:
          model: !!python/dict {dropout_rate: !!python/float 0.5}
          train_data: {feature_shape: !!python/tuple [8, 32, 32, 3], tfds_split: !!python/str 'x'}
        trainer:
          optimizer_config:
            learning_rate:
              type: stepwise
              stepwise: {boundaries: !!python/list [!!python/int 3], values: [0.2, 0.1]}
        """,
        [],
    ),
]


@pytest.fixture(params=FILES, ids=lambda row: row[0].replace(" ", "_"))
def row(request, tmp_path):
    """Returns a file, its experiment, and the settings in it that have no effect."""
    _, experiment, text, ignored = request.param
    file = tmp_path / "experiment.yaml"
    lines = text.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    file.write_text("".join(f"{line[indent:]}\n" for line in lines))
    return file, experiment, ignored


def load(file, experiment, **more):
    request = Request(experiment=f"official/{experiment}", config_files=(str(file),), **more)
    return resolve(request)


@pytest.mark.sample(6)
def test_config_file_gives_the_same_tree_as_in_model_garden(row):
    file, experiment, ignored = row
    theirs = hyperparams.override_params_dict(
        loading.load_experiment(experiment), str(file), is_strict=True
    )

    resolved = load(file, experiment)

    if "trainer.allow_tpu_summary" in ignored:
        # The config does not have this setting, so the copy for the task keeps its default.
        theirs.trainer.allow_tpu_summary = False
    assert resolved.config.for_task.as_dict() == theirs.as_dict()
    assert sorted(note.path for note in resolved.notes) == ignored
    assert all(str(note.origin).startswith(str(file)) for note in resolved.notes)


@pytest.mark.sample(11)
def test_written_config_loads_back_to_the_same_tree(row, tmp_path):
    file, experiment, ignored = row
    first = load(file, experiment)
    written = tmp_path / "config.yaml"
    written.write_text(to_yaml(first.config))

    reloaded = resolve(Request(experiment=str(written)))

    assert reloaded.config.for_task.as_dict() == first.config.for_task.as_dict()
    assert sorted(note.path for note in reloaded.notes) == [
        path for path in ignored if path != "trainer.allow_tpu_summary"
    ]
    assert config_fingerprint(reloaded.config) == config_fingerprint(first.config)


@pytest.mark.parametrize(
    ("said", "path", "value"),
    [
        ("runtime.distribution_strategy=Mirrored", "runtime.distribution_strategy", "mirrored"),
        ("task.model.num_classes='10'", "task.model.num_classes", 10),
        ("task.losses.label_smoothing='1e-1'", "task.losses.label_smoothing", 0.1),
        ("trainer.train_steps='10'", "trainer.train_steps", 10),
        ("task.model.input_size=['32', 32, 3]", "task.model.input_size", (32, 32, 3)),
        ("task.train_data.tfds_split=2017", "task.train_data.tfds_split", "2017"),
        ("trainer.max_to_keep=null", "trainer.max_to_keep", None),
    ],
)
def test_a_value_is_converted_to_the_type_of_its_field(said, path, value):
    config = resolve(
        Request(experiment="official/resnet_imagenet", params_overrides=(said,))
    ).config
    params = config.for_task
    for name in path.split("."):
        config, params = getattr(config, name), getattr(params, name)

    assert (type(config), config) == (type(value), value)
    assert (tuple(params) if isinstance(value, tuple) else params) == value


def test_show_prints_one_note_about_unused_settings(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "official: resnet_imagenet\n"
        "runtime: {loss_scale: dynamic}\n"
        "trainer: {allow_tpu_summary: true}\n"
    )

    assert main(["show", "--check", f"--experiment={file}"]) == 0

    lines = capsys.readouterr().err.splitlines()
    assert lines.count("note: 2 settings have no effect") == 1
    assert f"  trainer.allow_tpu_summary — {file}:3" in lines
    assert f"  runtime.loss_scale — {file}:2" in lines


# What a file for GPUs sets, and what this means on a CPU.
FOR_GPUS = """
runtime: {distribution_strategy: Mirrored, all_reduce_alg: nccl, loss_scale: dynamic}
trainer:
  train_steps: '6'
  steps_per_loop: 2
  checkpoint_interval: -1
  max_to_keep: null
  validation_interval: 0
  best_checkpoint_export_subdir: best_ckpt
  optimizer_config: {warmup: {type: linear, linear: {warmup_steps: 0}}}
"""
ON_CPU = """
runtime: {distribution_strategy: mirrored}
trainer: {train_steps: 6, steps_per_loop: 2, checkpoint_interval: 2, validation_interval: 6}
"""


@pytest.mark.slow
def test_config_file_for_gpus_trains_on_a_cpu(tmp_path, capsys):
    results = {}
    for name, text in (("gpus", FOR_GPUS), ("cpu", ON_CPU)):
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        code = main(
            [
                *("--experiment=official/my_line", "--import=tests.support.official_toys"),
                *(f"--config_file={file}", f"--model_dir={tmp_path / name}", "--json"),
            ]
        )
        captured = capsys.readouterr()
        assert (code, captured.err.count("have no effect")) == (0, int(name == "gpus"))
        results[name] = json.loads(captured.out)

    assert results["gpus"]["fingerprint"] == results["cpu"]["fingerprint"]
    assert [record["step"] for record in records(tmp_path / "gpus", "validation")] == [6]
    kept = sorted(path.stem for path in (tmp_path / "gpus/checkpoints").glob("*.index"))
    assert kept == ["ckpt-2", "ckpt-4", "ckpt-6"]


@pytest.mark.parametrize(
    ("request_of", "expected"),
    [
        ({"params_overrides": ("task: {model: {input_size: !!python/list [64, 64, 3]}}",)},
         [64, 64, 3]),
        # The default is the list [224, 224, 3].
        ({"params_overrides": ("task: {model: {input_size: !!python/tuple [224, 224, 3]}}",)},
         (224, 224, 3)),
        ({"gin_params": ("task.model.input_size = (64, 64, 3)",)}, (64, 64, 3)),
        ({"gin_params": ("task.model.input_size = [64, 64, 3]",)}, [64, 64, 3]),
    ],
)  # fmt: skip
def test_tuples_are_tuples_and_lists_are_lists(request_of, expected, tmp_path):
    first = resolve(Request(experiment="official/resnet_imagenet", **request_of))
    (tmp_path / "config.yaml").write_text(to_yaml(first.config))
    reloaded = resolve(Request(experiment=str(tmp_path / "config.yaml")))

    for config in (first.config, reloaded.config):
        size = config.for_task.task.model.input_size
        assert (type(size), size) == (type(expected), expected)
    assert to_yaml(reloaded.config) == to_yaml(first.config)
    assert config_fingerprint(reloaded.config) == config_fingerprint(first.config)
