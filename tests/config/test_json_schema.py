"""The JSON Schema accepts the values that the reader accepts, and no others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import pytest

from orbit_runner.config.describe import Choices, describe_settings
from orbit_runner.config.errors import Origin
from orbit_runner.config.json_schema import json_schema
from orbit_runner.config.parsing.builder import Builder
from orbit_runner.config.parsing.tree import section_of
from orbit_runner.config.parsing.yaml_files import load_text
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.base import field
from orbit_runner.config.schema.experiment import ExperimentConfig, TaskConfig
from orbit_runner.config.serialize import plain_value
from orbit_runner.registration import Entry
from orbit_runner.registry import TASKS

jsonschema = pytest.importorskip("jsonschema")  # The lock has it from Python 3.11 on.

PROBES: tuple[Any, ...] = (
    *(0, -1, 1, 5, 1.5, 0.5, 2**31, 1e39, math.inf, True, None),
    *("x", "", "7", "adam", [], [0], [-1], ["x"], [None], [[1]], {}, {"x": 1}),
)


@pytest.fixture(scope="module")
def schema():
    return json_schema(ExperimentConfig())


@pytest.fixture(scope="module")
def validator(schema):
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def content(text: str) -> Any:
    """Returns a YAML text as the reader reads it."""
    return values(load_text(text, "a.yaml", 0))


def values(node: Any) -> Any:
    children = getattr(node, "children", None)
    return node.value if children is None else {k: values(v) for k, v in children.items()}


def errors(validator: Any, text: str) -> list[str]:
    return sorted(str(error.json_path) for error in validator.iter_errors(content(text)))


def put(root: dict[str, Any], path: str, value: Any) -> None:
    *above, name = path.split(".")
    for part in above:
        root = root.setdefault(part, {})
    root[name] = value


def file_that_sets(path: str, value: Any, choices: Choices) -> dict[str, Any]:
    root: dict[str, Any] = {}
    if path.startswith("task.") and not choices:
        choices = {"task.name": ("image_classification",)}
    for name, allowed in choices.items():
        put(root, name, allowed[0])
    put(root, path, value)
    return root


def reader_accepts(content: Mapping[str, Any]) -> bool:
    builder = Builder()
    builder.build(ExperimentConfig(), section_of(content, Origin("a.yaml")))
    return not builder.problems


def may_differ(path: str, value: Any) -> bool:
    """Returns whether only one of them rejects a value.

    The schema knows the sources of a task, and lets a section without a name have any settings.
    """
    return (
        (path.endswith(".source") and isinstance(value, str))
        or (path.endswith(".type") and value is None)
        or (path in ("task", "task.model") and value == {"x": 1})
    )


@pytest.mark.slow
def test_schema_and_reader_agree_about_every_setting(validator):
    settings = [
        setting for setting in describe_settings(ExperimentConfig()) if "[]" not in setting.path
    ]
    cases = [
        (setting.path, value, file_that_sets(setting.path, value, setting.choices))
        for setting in settings
        for value in PROBES
        # The reader requires a name only in a section that is set.
        if not (setting.is_section and value == {})
    ]
    assert len(cases) > 5000
    differing = [
        (path, value)
        for path, value, root in cases
        if validator.is_valid(root) != reader_accepts(root) and not may_differ(path, value)
    ]
    assert differing == []


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("tasks: {}", ["$"]),
        ("task: {name: image_classification, train_dat: {}}", ["$.task"]),
        ("task: {name: image_classification, model: {name: cnn, filter: [1]}}", ["$.task.model"]),
        ("trainer: {optimizer_config: {optimizer: {adam: {beta1: 0.9}}}}",
         ["$.trainer.optimizer_config.optimizer.adam"]),
        ("callbacks: [{class: a.B}]", ["$.callbacks[0]"]),
        ("trainer: {train_steps: abc}", ["$.trainer.train_steps"]),
        ("task: {name: image_classification, model: {name: cnn, filters: [0, 8]}}",
         ["$.task.model.filters[0]"]),
        ("task: {name: image_clasification}", ["$.task.name"]),
        ("task: {name: translation, top_k: 3}", ["$.task"]),
        ("task: {name: translation, model: {name: cnn}}", ["$.task.model.name"]),
        ("task: {name: image_classification, model: {name: cnn, depth: 20}}", ["$.task.model"]),
        ("task: {name: translation, train_data: {source: digits}}", ["$.task.train_data.source"]),
        ("task: {name: image_classification, train_data: {sharding: false}}",
         ["$.task.train_data.sharding"]),
    ],
)  # fmt: skip
def test_mistakes_are_errors_at_their_place(validator, text, paths):
    assert [*dict.fromkeys(errors(validator, text))] == paths


@pytest.mark.parametrize(
    "text",
    [
        "base: experiments/digits.yaml\ntrainer:",
        "base: [a.yaml, b.yaml]",
        "runtime: {distribution_strategy: Mirrored, all_reduce_alg: ~}",
        "trainer: {train_steps: 1_000, optimizer_config: {learning_rate: {type: constant, constant: {learning_rate: 1e-3}}}}",  # noqa: E501
        "task: {model: {depth: 50}, train_data: {source: synthetic}}",
        "trainer: {optimizer_config: {optimizer: {type: adam, sgd: {momentum: 0.9}}}}",
        "official: bert/pretraining\ntask: {anything: 1}",
        "callbacks: [my.Callback, {class_name: my.Other, arguments: {a: 1}}]",
        "task: {name: keras, model: 'my_nets:build', loss: mse, metrics: [{class_name: AUC}]}",
        "task: {name: keras, model: {file: a.keras}, loss: {class_name: Huber, config: {}}}",
    ],
)
def test_a_correct_file_is_valid(validator, text):
    assert errors(validator, text) == []


def test_a_setting_has_help_default_and_bounds(schema):
    trainer = schema["definitions"]["TrainerConfig"]["properties"]
    steps = trainer["train_steps"]
    assert steps["description"].endswith("(alternative to trainer.train_epochs)")
    assert (steps["default"], steps["minimum"], steps["maximum"]) == (0, 0, 2**31 - 1)
    assert "required" not in schema


def test_schema_of_an_experiment_has_its_values_and_its_task():
    config = resolve(Request(experiment="digits")).config
    validator = jsonschema.Draft7Validator(schema := json_schema(config))

    steps = schema["definitions"]["TrainerConfig"]["properties"]["train_epochs"]
    assert steps["default"] == config.trainer.train_epochs == 40
    assert schema["definitions"]["CnnConfig"]["properties"]["filters"]["default"] == [32, 64]
    assert errors(validator, "task: {model: {dropout_rate: 0.1}}") == []
    assert errors(validator, "task: {model: {name: resnet, depth: 50}}") == []
    assert errors(validator, "task: {model: {depth: 50}}") == ["$.task.model"]
    assert errors(validator, "task: {vocab_size: 100}") == ["$.task"]
    assert errors(validator, "task: {name: translation, vocab_size: 100}") == []
    assert jsonschema.Draft7Validator(schema).is_valid(plain_value(config))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChurnConfig(TaskConfig):
    horizon: int = field(30, ge=1, help="days to look ahead")


def test_a_registered_task_is_included(monkeypatch):
    monkeypatch.setitem(TASKS._entries, "churn", Entry("churn", ChurnConfig, "churn:Task"))
    validator = jsonschema.Draft7Validator(json_schema(ExperimentConfig()))

    assert errors(validator, "task: {name: churn, horizon: 7}") == []
    assert errors(validator, "task: {horizon: 7}") == []
    assert errors(validator, "task: {name: churn, horizon: 0}") == ["$.task.horizon"]
    assert errors(validator, "task: {name: churn, vocab_size: 7}") == ["$.task"]
