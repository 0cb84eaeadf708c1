"""Our configs agree with those of the installed Model Garden: names, defaults, built objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from official.core import config_definitions
from official.modeling.hyperparams import params_dict
from official.modeling.optimization import optimizer_factory
from official.modeling.optimization.configs import optimization_config, optimizer_config

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.base import Config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.optimizers import Ema, Optimization, OptimizerChoice
from orbit_runner.config.schema.schedules import LearningRate, Warmup, with_name
from orbit_runner.config.walk import nodes

DOCS = Path(__file__).resolve().parents[2] / "docs/model_garden.md"

# Setting: (Model Garden's default, ours, why). Exactly the defaults that differ.
CHANGED: dict[str, tuple[Any, Any, str]] = {
    "task.train_data.is_training": (
        None, True, "the section says what its data is for",
    ),
    "task.validation_data.is_training": (
        None, False, "the section says what its data is for",
    ),
    "task.validation_data.drop_remainder": (
        True, False, "an evaluation counts every example, the last part-filled batch too",
    ),
    "trainer.summary_interval": (1000, "auto", "a curve of a short run has 20 points, too"),
    "trainer.steps_per_loop": (
        1000, "auto", "a loop takes about a second, whatever the model and the machine",
    ),
}  # fmt: skip
# Sections that are null by default: Model Garden's class and ours.
OPTIONAL = {
    "trainer.optimizer_config.ema": (optimizer_config.EMAConfig(), Ema()),
}
ABSENT = "(absent)"
# Why the names of optimizers and schedules have no effect; the page has one row for all of them.
NAMES = with_name("")["name"].reason


def pairs(theirs: Any, ours: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields path, their default and ours for each of their settings, in unselected blocks too."""
    for field in dataclasses.fields(theirs):
        below = f"{path}.{field.name}" if path else field.name
        left, right = getattr(theirs, field.name), getattr(ours, field.name, ABSENT)
        if field.name in getattr(ours, "unavailable", ()):
            continue
        if dataclasses.is_dataclass(left) and right is not ABSENT:
            yield from pairs(left, right, below)
        else:
            yield below, left, right


def all_pairs() -> list[tuple[str, Any, Any]]:
    rows = [*pairs(config_definitions.ExperimentConfig(), ExperimentConfig(), "")]
    for path, (theirs, ours) in OPTIONAL.items():
        rows += pairs(theirs, ours, path)
    return rows


def test_every_model_garden_setting_exists_with_the_expected_default():
    rows = all_pairs()

    differing = {path: (left, right) for path, left, right in rows if left != right}
    assert differing == {path: row[:2] for path, row in CHANGED.items()}
    assert len(rows) > 200


def test_optional_sections_are_null_by_default_on_both_sides():
    values = {path: (left, right) for path, left, right in all_pairs()}

    assert {path: values[path] for path in OPTIONAL} == dict.fromkeys(OPTIONAL, (None, None))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (optimization_config.OptimizerConfig, OptimizerChoice),
        (optimization_config.LrConfig, LearningRate),
        (optimization_config.WarmupConfig, Warmup),
    ],
)
def test_choices_match_those_of_model_garden(theirs, ours):
    names = {field.name for field in dataclasses.fields(theirs)}
    assert names == {"type", *ours.choices(), *ours.unavailable}


def rows_of(*, refused: bool) -> list[str]:
    def below(config: Config, path: str) -> Iterator[tuple[str, str]]:
        own = {field.name for field in dataclasses.fields(config)}
        for name, setting in config.garden_only.items():
            if setting.refused == refused and setting.reason != NAMES and name not in own:
                yield f"{path}.{name}", setting.reason
        for node in nodes(config, path):
            if refused and (reason := node.field.metadata.get("unsupported")):
                yield node.path, reason
            elif isinstance(node.value, Config):
                yield from below(node.value, node.path)

    rows = dict(below(ExperimentConfig(), ""))
    for path, (_, ours) in OPTIONAL.items():
        rows |= dict(below(ours, path))
    # Both data sections reject the same settings, which are listed once.
    once = {path.replace("train_data", "*_data"): why for path, why in rows.items()
            if not path.startswith("task.validation_data.")}  # fmt: skip
    assert len(rows) - len(once) == sum("*_data" in path for path in once)
    # A row for each reason.
    grouped: dict[str, list[str]] = {}
    for path, why in once.items():
        grouped.setdefault(why, []).append(f"`{path}`")
    return [f"| {', '.join(paths)} | {why} |" for why, paths in grouped.items()]


def changed_rows() -> list[str]:
    def shown(value: Any) -> str:
        return "null" if value is None else str(value).lower()

    return [f"| `{path}` | `{shown(theirs)}` | `{shown(ours)}` | {why} |"
            for path, (theirs, ours, why) in CHANGED.items()]  # fmt: skip


def test_docs_list_changed_rejected_and_ignored_settings():
    section = DOCS.read_text(encoding="utf-8").partition("\n## Settings\n")[2].partition("\n## ")[0]

    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [*changed_rows(), *rows_of(refused=True), *rows_of(refused=False)]


RATES: dict[str, dict[str, Any]] = {
    "constant": {"learning_rate": 0.5},
    "stepwise": {"boundaries": [10, 20], "values": [0.3, 0.2, 0.1]},
    "exponential": {"initial_learning_rate": 0.3, "decay_steps": 7, "decay_rate": 0.9},
    "polynomial": {"initial_learning_rate": 0.3, "decay_steps": 30},
    "cosine": {"initial_learning_rate": 0.3, "decay_steps": 30, "offset": 2},
    "power": {"initial_learning_rate": 0.3},
    "power_linear": {"initial_learning_rate": 0.3, "total_decay_steps": 30},
    "power_with_offset": {"initial_learning_rate": 0.3, "offset": 3},
    "step_cosine_with_offset": {"boundaries": [10, 20], "values": [0.3, 0.1]},
}
WARMUPS: dict[str, dict[str, Any]] = {
    "linear": {"warmup_steps": 5},
    "polynomial": {"warmup_steps": 5, "power": 2.0},
}
NOT_SHIPPED = ("slide", "adafactor")  # by Model Garden


def optimization(write: Callable[..., str], **sections: Any) -> tuple[Optimization, Any]:
    """Loads one choice with our reader and with Model Garden's class."""
    settings = {
        "optimizer": {"type": "sgd"},
        "learning_rate": {"type": "constant", "constant": RATES["constant"]},
    } | sections
    theirs = optimization_config.OptimizationConfig(settings)
    params_dict.save_params_dict_to_yaml(
        params_dict.ParamsDict({"trainer": {"optimizer_config": settings}}), write("o.yaml", "")
    )
    resolved = resolve(Request(experiment="digits_mlp", config_files=("o.yaml",)))
    return resolved.config.trainer.optimizer_config, theirs


def test_every_schedule_choice_has_a_test_case():
    assert [*RATES] == [*LearningRate.choices()]
    assert [*WARMUPS] == [*Warmup.choices()]


@pytest.mark.parametrize(
    ("rate", "warmup"), [*((rate, None) for rate in RATES), *(("cosine", kind) for kind in WARMUPS)]
)
def test_factory_builds_the_same_learning_rates_from_both_configs(write, rate, warmup):
    sections: dict[str, Any] = {"learning_rate": {"type": rate, rate: RATES[rate]}}
    if warmup:
        sections["warmup"] = {"type": warmup, warmup: WARMUPS[warmup]}

    built = [
        optimizer_factory.OptimizerFactory(config).build_learning_rate()
        for config in optimization(write, **sections)
    ]

    ours, theirs = (
        [float(lr(step) if callable(lr) else lr) for step in (0, 1, 3, 5, 9, 12, 25, 40)]
        for lr in built
    )
    assert ours == pytest.approx(theirs, rel=0, abs=0, nan_ok=True)


EMA = {"average_decay": 0.5, "start_step": 3}
SHIPPED = OptimizerChoice.choices()
# Model Garden averages under legacy optimizers of Keras only.
AVERAGED = [name for name in SHIPPED if "experimental" not in name]


@pytest.mark.parametrize(
    ("name", "ema"), [*((n, None) for n in SHIPPED), *((n, EMA) for n in AVERAGED)]
)
def test_factory_builds_the_same_optimizers_from_both_configs(write, name, ema):
    sections: dict[str, Any] = {"optimizer": {"type": name}}
    if ema:
        sections["ema"] = ema

    ours, theirs = (
        optimizer_factory.OptimizerFactory(config).build_optimizer(0.5)
        for config in optimization(write, **sections)
    )

    assert type(ours) is type(theirs)
    assert ours.get_config() == theirs.get_config()


@pytest.mark.parametrize("name", NOT_SHIPPED)
def test_unshipped_optimizers_still_fail_in_model_garden(name):
    config = Optimization(optimizer=OptimizerChoice(type=name),
                          learning_rate=LearningRate(type="constant"))  # fmt: skip

    with pytest.raises((NotImplementedError, TypeError, ValueError)):
        optimizer_factory.OptimizerFactory(config).build_optimizer(0.5)


def test_config_file_written_by_model_garden_loads_unchanged(write):
    theirs = config_definitions.ExperimentConfig(
        runtime={"num_gpus": 0, "enable_xla": True, "mixed_precision_dtype": "bfloat16"},
        trainer={
            "train_steps": 0,
            "checkpoint_interval": 77,
            "loss_upper_bound": 1e9,
            "optimizer_config": {
                "optimizer": {"type": "lars", "lars": {"exclude_from_weight_decay": ["bias"]}},
                "learning_rate": {"type": "stepwise", "stepwise": RATES["stepwise"]},
                "warmup": {"type": "linear", "linear": {"warmup_steps": 7}},
                "ema": {"average_decay": 1e-5},
            },
        },
    )
    written = theirs.as_dict()
    del written["task"]
    params_dict.save_params_dict_to_yaml(params_dict.ParamsDict(written), write("params.yaml", ""))

    config = resolve(Request(experiment="digits", config_files=("params.yaml",))).config

    ours = config.as_dict()
    for section in ("trainer", "runtime"):
        used = {n: v for n, v in written[section].items() if n in ours[section]}
        # One is a flag of Model Garden's drivers, and no setting.
        without_effect = {*getattr(config, section).garden_only} - {"tpu_platform"}
        assert {*written[section]} - {*used} == without_effect
        assert covers(ours[section], used)


def covers(ours: Any, theirs: Any) -> bool:
    """Returns whether ours contains every value of theirs."""
    if isinstance(theirs, dict):
        return all(covers(ours[key], value) for key, value in theirs.items())
    assert ours == theirs
    return True


def test_settings_that_only_model_garden_reads_have_its_defaults():
    """Its own trainer reads them, also in a config of this package."""
    for name in ("runtime", "trainer"):
        ours = getattr(ExperimentConfig(), name)
        defaults = getattr(config_definitions.ExperimentConfig(), name).as_dict()
        for setting in defaults.keys() & ours.garden_only.keys():
            assert getattr(ours, setting) == defaults[setting], setting
