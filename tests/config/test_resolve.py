# ruff: noqa: E501 (one line a case)
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml
from orbit_runner.registration import Entry
from orbit_runner.registry import TASKS

# Every layer, lowest first: how it sets runtime.seed to a value, and the resulting origin.
LAYERS: list[tuple[str, Callable[..., dict[str, Any]], str]] = [
    ("experiment", lambda write, n: {"experiment": write("e.yaml", experiment(n))}, "e.yaml:9"),
    ("config_file", lambda write, n: {"config_files": (write("c.yaml", seed(n)),)}, "c.yaml:1"),
    ("second", lambda write, n: {"config_files": (write("d.yaml", seed(n)),)}, "d.yaml:1"),
    ("gin_file", lambda write, n: {"gin_files": (write("g.gin", gin(n)),)}, "g.gin:1"),
    ("override", lambda write, n: {"params_overrides": (f"runtime.seed={n}",)}, "--params_override[0]"),
    ("override_2", lambda write, n: {"params_overrides": (seed(n),)}, "--params_override[1]"),
    ("gin_param", lambda write, n: {"gin_params": (gin(n),)}, "--gin_param[0]"),
    ("gin_param_2", lambda write, n: {"gin_params": (gin(n),)}, "--gin_param[1]"),
    ("flag", lambda write, n: {"flags": (("--seed", "runtime.seed", str(n)),)}, "--seed"),
    ("dotted", lambda write, n: {"flags": (("--runtime.seed", "runtime.seed", str(n)),)}, "--runtime.seed"),
]  # fmt: skip


def seed(n: int) -> str:
    return f"runtime: {{seed: {n}}}"


def gin(n: int) -> str:
    return f"runtime.seed = {n}"


def experiment(n: int) -> str:
    return f"""task:
  name: image_classification
  model: {{name: mlp}}
  train_data: {{source: digits, global_batch_size: 8}}
  validation_data: {{source: digits, global_batch_size: 8}}
trainer:
  train_steps: 1
  optimizer_config: {{optimizer: {{type: adam}}, learning_rate: {{type: constant}}}}
runtime: {{seed: {n}}}
"""


def request(write: Callable[..., str], indexes: tuple[int, ...]) -> Request:
    """Makes a request in which layer i sets the seed to 100 + i; lists are appended to in order."""
    arguments: dict[str, Any] = {"experiment": write("base.yaml", experiment(1))}
    for index in indexes:
        for key, value in LAYERS[index][1](write, 100 + index).items():
            arguments[key] = value if key == "experiment" else (*arguments.get(key, ()), *value)
    return Request(**arguments)


@pytest.mark.parametrize("highest", range(len(LAYERS)), ids=[layer[0] for layer in LAYERS])
def test_higher_layer_overrides_lower_ones_and_becomes_the_origin(write, highest):
    resolved = resolve(request(write, tuple(range(highest + 1))))

    assert resolved.config.runtime.seed == 100 + highest
    assert str(resolved.origins["runtime.seed"]) == LAYERS[highest][2]


def test_origin_in_an_experiment_elsewhere_is_a_path_from_here(write, monkeypatch):
    write("e.yaml", "base: digits\nruntime: {seed: 3}")
    Path("below").mkdir()
    monkeypatch.chdir("below")

    origins = resolve(Request(experiment="../e.yaml")).origins
    assert str(origins["runtime.seed"]) == "../e.yaml:2"


def test_unset_setting_falls_back_to_the_origin_of_its_section(write):
    resolved = resolve(request(write, ()))

    assert "runtime.num_gpus" not in resolved.origins
    assert str(resolved.origin("runtime.num_gpus")) == "base.yaml:9"
    assert resolved.origin("nothing.of.this") is None


def test_sections_merge_and_lists_are_replaced(write, over_digits):
    write("a.yaml", "task: {model: {filters: [1]}}\n")

    model = over_digits(config_files=("a.yaml",)).task.model

    assert model.filters == (1,)
    assert model.dense_units == 128


@pytest.mark.parametrize(
    "text",
    [
        "runtime:\n",
        "trainer:\n  # train_steps: 3\n",
        "trainer: {optimizer_config: }\n",
        "task: {train_data: }\n",
        "task: {losses: , model: }\n",
        "task:\n",
    ],
)
def test_empty_section_changes_nothing(write, over_digits, text):
    write("a.yaml", text)

    assert over_digits(config_files=("a.yaml",)) == over_digits()


@pytest.mark.parametrize(
    ("layers", "decay"),
    [
        (["ema: {average_decay: 0.5}"], 0.5),
        (["ema: {average_decay: 0.5, start_step: 7}", "ema: null"], None),
        (["ema: {average_decay: 0.5, start_step: 7}", "ema: null", "ema: {average_decay: 0.6}"], 0.6),
        (["ema: null", "ema: {}"], 0.99),
        (["ema: {average_decay: 0.5}", "ema: null", "ema: null"], None),
        (["ema: {average_decay: 0.5}", "ema: null", "ema: {start_step: 0}"], 0.99),
    ],
)  # fmt: skip
def test_null_removes_an_optional_section(write, over_digits, layers, decay):
    names = [write(f"{n}.yaml", f"trainer: {{optimizer_config: {{{text}}}}}")
             for n, text in enumerate(layers)]  # fmt: skip

    ema = over_digits(config_files=tuple(names)).trainer.optimizer_config.ema

    assert (ema and ema.average_decay) == decay
    assert ema is None or ema.start_step == 0


@pytest.mark.parametrize(
    ("settings", "later", "units", "rate"),
    [("", (), (128, 64), 0.0),
     (",task.model.hidden_units=[3]", ("task.model.dropout_rate = 0.25",), (3,), 0.25)],
)  # fmt: skip
def test_new_model_name_discards_the_settings_that_were_set_before(
    over_digits, settings, later, units, rate
):
    named = f"task.model.name=mlp{settings}"
    model = over_digits(params_overrides=(named,), gin_params=later).task.model

    assert (model.name, model.hidden_units, model.dropout_rate) == ("mlp", units, rate)


def test_repeated_model_name_discards_nothing(over_digits):
    assert over_digits(params_overrides=("task.model.name=cnn",)) == over_digits()


def test_new_model_name_within_a_new_task_is_kept(write, over_digits, monkeypatch):
    same = TASKS.get("image_classification")
    monkeypatch.setitem(TASKS._entries, "other", Entry("other", same.config, same.target))
    write("a.yaml", "task: {name: other, model: {name: mlp, hidden_units: [3]},"
          " train_data: {source: digits, global_batch_size: 4},"
          " validation_data: {source: digits, global_batch_size: 4}}")  # fmt: skip

    task = over_digits(config_files=("a.yaml",), params_overrides=("task.model.name=cnn",)).task

    assert (task.name, task.model.name, task.model.filters) == ("other", "cnn", (32, 64))
    assert task.train_data.augment == "none"


def test_experiment_name_defaults_to_its_file_name(write):
    write("mine.yaml", experiment(1))
    write("said.yaml", "name: other\n" + experiment(1))
    write("runs/r1/config.yaml", experiment(1))

    names = [
        resolve(Request(experiment=e)).config.name for e in ("mine.yaml", "said.yaml", "runs/r1")
    ]

    assert names == ["mine", "other", "r1"]


def test_local_experiment_takes_precedence_over_a_shipped_experiment(write):
    write("experiments/digits.yaml", experiment(77))
    write("experiments/own.yml", experiment(78))

    assert resolve(Request(experiment="digits")).config.runtime.seed == 77
    resolved = resolve(Request(experiment="own"))
    assert resolved.config.runtime.seed == 78
    assert str(resolved.origins["runtime.seed"]) == "experiments/own.yml:9"


def test_config_file_resolves_without_an_experiment(write):
    write("c.yaml", experiment(5))

    config = resolve(Request(config_files=("c.yaml",))).config

    assert (config.name, config.runtime.seed) == ("", 5)


def test_unreadable_experiment_is_the_only_reported_problem(write, refused):
    write("bad.yaml", "task: [1\n")

    problems = refused(
        experiment="bad.yaml", flags=(("--task.model.depth", "task.model.depth", "3"),)
    )

    assert [str(p.origin) for p in problems] == ["bad.yaml:2"]


def test_failed_import_suppresses_unknown_name_errors(write, refused):
    problems = refused(imports=("no_such_module",), params_overrides=("task.name=mine",))

    assert [p.path for p in problems] == ["imports"]


def test_errors_of_all_layers_are_reported_at_once(write, refused):
    write("a.yaml", "task:\n  model: {dpeth: 3}\nrunttime: {}\n")
    write("b.yaml", "a: [\n")
    write("c.gin", "task.train_data.global_batch_size = 'x'\n")
    write("d.gin", "trainer = \n")

    problems = refused(
        config_files=("a.yaml", "b.yaml"),
        gin_files=("c.gin", "d.gin"),
        params_overrides=("trainer.max_to_keep=0", "a=["),
        gin_params=("trainer.train_steps = 'abc'", "runtime.seed = %NO"),
        flags=(("--num_gpus", "runtime.num_gpus", "two"),),
    )

    assert sorted((p.path, str(p.origin)) for p in problems) == sorted(
        [
            ("task.model.dpeth", "a.yaml:2"),
            ("runttime", "a.yaml:3"),
            ("", "b.yaml:2"),
            ("task.train_data.global_batch_size", "c.gin:1"),
            ("", "d.gin:1"),
            ("trainer.max_to_keep", "--params_override[0]"),
            ("", "--params_override[1]"),
            ("trainer.train_steps", "--gin_param[0]"),
            ("runtime.seed", "--gin_param[1]"),
            ("runtime.num_gpus", "--num_gpus"),
        ]
    )


def test_all_contradictory_settings_are_reported_at_once(refused):
    problems = refused(
        params_overrides=(
            "trainer.train_steps=3,trainer.train_epochs=2,"
            "trainer.optimizer_config.learning_rate.type=exponential,"
            "runtime.all_reduce_alg=nccl,task.train_data.global_batch_size=0,"
            "task.validation_data.source=mnits",
        )
    )

    assert sorted(p.path for p in problems) == [
        "runtime.all_reduce_alg",
        "task.train_data.global_batch_size",
        "task.validation_data.source",
        "trainer.optimizer_config.learning_rate.exponential.decay_rate",
        "trainer.optimizer_config.learning_rate.exponential.decay_steps",
        "trainer.optimizer_config.learning_rate.exponential.initial_learning_rate",
        "trainer.train_epochs",
    ]


# The settings that were set over the experiment.

MLP = "task.model={name: mlp, hidden_units: [8]}"
FLAG = (("--seed", "runtime.seed", "3"),)


@pytest.fixture
def folder(here):
    """The current directory, with an experiment, a run directory, and files over them."""
    text = to_yaml(resolve(Request(experiment="digits")).config)
    (here / "own.yaml").write_text(text)
    (here / "a").mkdir()
    (here / "a/config.yaml").write_text(text)
    (here / "over.yaml").write_text("trainer: {max_to_keep: 4}\n")
    (here / "over.gin").write_text("trainer.summary_interval = 4\nmy_code.depth = 2\n")
    return here


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"experiment": "digits"}, {}),
        ({"experiment": "digits_mlp"}, {}),
        ({"experiment": "digits_mlp", "flags": FLAG}, {"runtime.seed": 3}),
        ({"experiment": "own.yaml"}, {}),
        ({"experiment": "a", "flags": FLAG}, {"runtime.seed": 3}),
        ({"experiment": "own.yaml", "flags": FLAG}, {"runtime.seed": 3}),
        ({"experiment": "own.yaml", "imports": ("json",)}, {}),
        ({"experiment": "own.yaml", "config_files": ("over.yaml",)}, {"trainer.max_to_keep": 4}),
        (
            {"experiment": "own.yaml", "gin_files": ("over.gin",)},
            {"trainer.summary_interval": 4, "gin_bindings": ["my_code.depth = 2"]},
        ),
        (
            {"experiment": "own.yaml", "gin_params": ("trainer.train_steps=6",)},
            {"trainer.train_steps": 6},
        ),
        # The same value as in the experiment was still set over it.
        (
            {"experiment": "own.yaml", "params_overrides": ("trainer.max_to_keep=2",)},
            {"trainer.max_to_keep": 2},
        ),
        (
            {"experiment": "digits", "params_overrides": (MLP,)},
            {"task.model.name": "mlp", "task.model.hidden_units": [8]},
        ),
        (
            {"experiment": "digits", "params_overrides": ("trainer: {early_stopping: null}",)},
            {"trainer.early_stopping": None},
        ),
    ],
)  # fmt: skip
def test_changes_are_the_settings_over_the_experiment(given, expected, folder):
    assert resolve(Request(**given)).changes() == expected


def test_all_settings_are_changes_without_an_experiment(folder):
    changes = resolve(Request(config_files=("own.yaml",))).changes()

    assert changes["trainer.max_to_keep"] == 2
    assert changes["task.train_data.source"] == "digits"


def test_changes_over_an_experiment_of_model_garden():
    changes = resolve(Request(experiment="official/resnet_imagenet", flags=FLAG)).changes()

    assert changes == {"runtime.seed": 3}
