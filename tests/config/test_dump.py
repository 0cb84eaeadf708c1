# ruff: noqa: E501 (one line a case)
from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from orbit_runner.config.errors import Origin
from orbit_runner.config.parsing.yaml_files import load_text
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import differences, flat_settings, inline_yaml, to_yaml

TEXTS = [
    "", " ", " x ", "off", "On", "yes", "NO", "y", "true", "tRuE", "null", "~", "1e-3", "1e3", "5", "-5",
    "010", "0o17", "0x1f", "1_000", "1:30", ".inf", ".nan", ".5", "1.", "2020-01-01", "=", "<<", "-", "- a",
    "a: b", "a:", ": a", "#x", "a #b", "'", '"', "it's", 'say "x"', "[1]", "{a: 1}", "a, b", "&a", "*a", "!a",
    "%a", "@a", "`a", "|", ">", "?", "? a", "a\nb", "a\n\n b\n", "\n", "\ttab\t", "a\\nb", "---", "...", "a\n...",
    "日本 😀", "é\xa0\u2028\x85\ufeff", "\x07", "x" * 12000, "word " * 4000,
]  # fmt: skip
NUMBERS = [0, -3, 10**20, 0.0, -0.0, 0.1, 1e-7, 1e22, 1.5e300, 5e-324, math.inf, -math.inf, 3.0]
NESTED = {
    "image": {"shape": [8, 8, 1], "dtype": "float32", "low": 0.0, "high": 1e-7, "kinds": []},
    "off": {"1e-3": None, "<<": "x", "a: b": {"deep": [True, "true", {"x": [1.0]}]}},
    "empty": {},
}


@pytest.mark.parametrize("text", TEXTS)
def test_string_round_trips_in_our_reader_and_yaml_1_1(text):
    line = f"        x: {inline_yaml(text)}"

    assert "\n" not in line
    assert load_text(line, "x", 1).children["x"].value == text
    assert yaml.safe_load(line) == {"x": text}


@pytest.mark.parametrize("number", NUMBERS)
def test_number_round_trips_in_our_reader_and_yaml_1_1(number):
    line = f"x: {inline_yaml(number)}"

    for got in (load_text(line, "x", 1).children["x"].value, yaml.safe_load(line)["x"]):
        assert (got, type(got)) == (number, type(number))
        assert math.copysign(1, got) == math.copysign(1, number)


def plain(value: Any) -> Any:
    """Returns the value with plain dicts and lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def reloaded(write: Callable[..., str], text: str) -> Any:
    return resolve(Request(experiment=write("again/config.yaml", text))).config


@pytest.fixture
def awkward(write):
    """A config full of values that are awkward to write."""
    tree = {
        "name": "1e-3",
        "description": "a: b #x\n'\"日本 ${name} $${x",
        "imports": [],
        "callbacks": [{"class_name": "a.B", "arguments": NESTED}],
        "gin_bindings": ["f.x = 'a #b'", "M = 1", "s/f.y = [%M, @g()]"],
        "task": {
            "init_checkpoint": "off",
            "model": {"filters": []},
            "train_data": {
                "data_dir": "null",
                "input_path": ["", "a, b", "5"],
                "source": "synthetic",
            },
            "validation_data": {"source": "hugging_face", "data_dir": "yes", "input_path": "#x"},
        },
        "trainer": {
            "loss_upper_bound": math.inf,
            "train_epochs": 1e-22,
            "continuous_eval_timeout": None,
            "steps_per_loop": "auto",
            "early_stopping": {"metric": "a\nb", "threshold": -1e-7},
            "optimizer_config": {
                "ema": {"average_decay": 1e-7},
                "optimizer": {"type": "lamb", "lamb": {"exclude_from_weight_decay": ["~", "[", "a\\b"]}},
                "warmup": {"type": "linear", "linear": {"warmup_steps": 3}},
            },
        },
        "runtime": {"distribution_strategy": "off"},
    }  # fmt: skip
    # JSON is YAML whose strings are all quoted; only infinity is spelled differently.
    write("awkward.yaml", json.dumps(tree, indent=1).replace("Infinity", ".inf"))
    return resolve(Request(experiment="digits", config_files=("awkward.yaml",)))


def test_config_with_awkward_values_round_trips_through_yaml(write, awkward):
    config = awkward.config

    reloaded_config = reloaded(write, to_yaml(config))

    assert reloaded_config == config
    assert to_yaml(reloaded_config) == to_yaml(config)
    assert reloaded_config.callbacks[0].arguments["off"]["<<"] == "x"


def test_written_config_means_the_same_to_pyyaml(awkward):
    read = yaml.safe_load(to_yaml(awkward.config))

    def at(path: str) -> Any:
        value = read
        for name in path.split("."):
            value = value[name]
        return value

    for path, value in flat_settings(awkward.config).items():
        assert at(path) == plain(value), path
        assert type(at(path)) is type(plain(value)), path


@pytest.mark.parametrize("which", ["digits", "awkward"])
def test_config_written_with_origins_loads_unchanged(write, awkward, which):
    resolved = awkward if which == "awkward" else resolve(Request(experiment="digits"))

    text = to_yaml(resolved.config, {**resolved.origins, "runtime.seed": Origin("odd\nname: [")})

    assert reloaded(write, text) == resolved.config
    assert "  # experiments/digits.yaml:" in text
    assert "  # default\n" in text
    if which == "awkward":
        assert "  # awkward.yaml:" in text


def test_differences_list_only_settings_that_differ(over_digits):
    left = over_digits()
    right = over_digits(
        params_overrides=(
            "runtime.seed=3,task.model.name=mlp,trainer.optimizer_config.ema.start_step=1",
        )
    )

    changes = {d.path: (d.left, d.right) for d in differences(left, right)}

    assert differences(left, left) == []
    assert changes["runtime.seed"] == ("17", "3")
    assert changes["task.model.name"] == ("cnn", "mlp")
    assert changes["task.model.filters"] == ("[32, 64]", "-")
    assert changes["task.model.hidden_units"] == ("-", "[128, 64]")
    assert changes["trainer.optimizer_config.ema"] == ("null", "-")
    assert changes["trainer.optimizer_config.ema.start_step"] == ("-", "1")
    assert not any(path.startswith("task.train_data") for path in changes)


def test_written_config_omits_ineffective_settings_and_unselected_blocks():
    text = to_yaml(resolve(Request(experiment="digits")).config)

    assert "cycle_length" not in text
    assert "sgd:" not in text


def test_unsupported_setting_is_not_written():
    config = resolve(Request(experiment="ncf_movielens")).config

    assert config.task.train_data.split == ""
    assert "task.train_data.split" not in flat_settings(config)
