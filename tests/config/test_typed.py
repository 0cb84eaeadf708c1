# ruff: noqa: E501 (one line a case)
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from orbit_runner.config.errors import ConfigError, Origin
from orbit_runner.config.parsing.builder import Builder
from orbit_runner.config.parsing.conversion import Mismatch, convert
from orbit_runner.config.parsing.tree import Leaf, Section
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.base import Config, OneOf
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.config.walk import nodes
from tests.support.problems import check


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (3, int, 3),
        (1.0, int, 1),
        (1e3, int, 1000),
        (3, float, 3.0),
        (1e-3, float, 1e-3),
        (True, bool, True),
        ("off", str, "off"),
        (None, int | None, None),
        (3, int | None, 3),
        ("auto", int | str, "auto"),
        ("5", int | str, "5"),
        (5.0, int | str, 5),
        (128, str | float | None, 128.0),
        ("dynamic", str | float | None, "dynamic"),
        ([1, 2.0], list[int], (1, 2)),
        ([], list[int], ()),
        ((1, 2), list[float], (1.0, 2.0)),
        ("a,b", str | list[str], "a,b"),
        (["a", "b"], str | list[str], ("a", "b")),
        (None, list[str] | None, None),
        ([[1], [2]], list[list[int]], ((1,), (2,))),
        ({"a": {"b": [1]}}, Mapping[str, Any], {"a": {"b": (1,)}}),
    ],
)
def test_value_of_the_declared_type_is_accepted(value, hint, expected):
    got = convert(value, hint)

    assert got == expected
    assert isinstance(got, Mapping) or type(got) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        ("abc", int, "got 'abc', expected an integer"),
        (
            "yes",
            bool,
            "got 'yes', expected true or false; yes, no, on and off are strings in YAML 1.2",
        ),
        (
            "Off",
            bool | None,
            "got 'Off', expected true or false or null; yes, no, on and off are strings in YAML 1.2",
        ),
        (1.5, int, "got 1.5, expected an integer"),
        (float("inf"), int, "got inf, expected an integer"),
        (True, int, "got True, expected an integer"),
        (None, int, "got null, expected an integer"),
        ({"a": 1}, int, "got a section, expected an integer"),
        ("1e-3", float, "got '1e-3', expected a number"),
        (False, float, "got False, expected a number"),
        pytest.param(
            10**400, float, f"got 1{'0' * 199}… (401 characters), expected a number", id="large"
        ),
        (1, bool, "got 1, expected true or false"),
        (5, str, "got 5, expected a string; put it in quotes"),
        (None, str, "got null, expected a string"),
        (True, int | None, "got True, expected an integer or null"),
        (1.5, int | str, "got 1.5, expected an integer or a string"),
        (3, list[int], "got 3, expected a list, each item an integer"),
        ("ab", list[str], "got 'ab', expected a list, each item a string"),
        ([1, "x"], list[int], "got 'x', expected an integer"),
        ([1, 2], str | list[str], "got [1, 2], expected a string or a list, each item a string"),
        (3, Mapping[str, Any], "got 3, expected a section"),
        (3, ExperimentConfig, "got 3, expected a section"),
    ],
)
def test_value_of_another_type_is_rejected(value, hint, message):
    with pytest.raises(Mismatch) as caught:
        convert(value, hint)

    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("runtime.distribution_strategy", "off", "off"),
        ("runtime.deterministic", "False", False),
        ("trainer.train_epochs", "1e-3", 0.001),
        ("trainer.validation_interval", "1e3", 1000),
        ("trainer.steps_per_loop", "auto", "auto"),
        ("trainer.steps_per_loop", "20", 20),
        ("trainer.continuous_eval_timeout", "0", 0),
        ("trainer.checkpoint_interval", "-1", -1),
        ("trainer.max_to_keep", "null", None),
        ("runtime.distribution_strategy", "One_Device", "one_device"),
        ("task.train_data.exclude", "[a, b]", ("a", "b")),
        ("task.train_data.seed", "", None),
        ("runtime.mixed_precision_dtype", "null", None),
    ],
)
def test_flag_text_is_converted_to_the_type_of_the_setting(over_digits, path, text, value):
    got = over_digits(flags=((f"--{path}", path, text),))
    for name in path.split("."):
        got = getattr(got, name)

    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("path", "text", "near"),
    [
        ("runtme", "{seed: 1}", "runtime"),
        ("runtime.sed", "1", "seed"),
        ("task.los", "{}", "losses"),
        ("task.model.dropout", "0.1", "dropout_rate"),
        ("task.train_data.batch_size", "1", "global_batch_size"),
        ("trainer.early_stopping.patiense", "1", "patience"),
        ("trainer.optimizer_config.ema.avrage_decay", "0.9", "average_decay"),
        ("trainer.optimizer_config.optimizer.adamm", "{}", "adam"),
        ("trainer.optimizer_config.optimizer.sgd.momentun", "0.9", "momentum"),
        ("trainer.optimizer_config.warmup.linear.step", "1", None),
    ],
)
def test_unknown_setting_is_rejected_at_any_depth(refused, path, text, near):
    (problem,) = refused(flags=((f"--{path}", path, text),))

    check([problem], ("unknown-setting", path))
    if near:
        assert f"{near!r}?" in problem.message


@pytest.mark.parametrize(
    ("path", "text", "code"),
    [
        ("task.name", "image_clasification", "unknown-name"),
        ("task.name", "[1]", "unknown-name"),
        ("task.model.name", "resnet_cifr", "unknown-name"),
        ("task.model.name", "", "not-set"),
        ("task.train_data.source", "digit", "not-allowed"),
        ("trainer.optimizer_config.optimizer.type", "Adam", "not-allowed"),
        ("trainer.optimizer_config.warmup.type", "type", "not-allowed"),
        ("runtime.distribution_strategy", "miror", "not-allowed"),
        ("task.train_data.augment", "Crop", "not-allowed"),
        ("task.model", "cnn", "wrong-type"),
        ("trainer", "5", "wrong-type"),
        ("trainer.train_steps", "{a: 1}", "wrong-type"),
    ],
)  # fmt: skip
def test_unknown_name_is_rejected_with_suggestions(refused, path, text, code):
    problems = refused(flags=(("--x", path, text),))

    check(problems, (code, path))
    assert str(problems[0].origin) == "--x"


def ineffective(config: Config, path: str = "") -> list[tuple[str, Any, str]]:
    """Lists path, default and reason of every setting below a config that has no effect."""
    settings = {node.field.name: node for node in nodes(config, path)}
    only = {n: s for n, s in config.garden_only.items() if n not in settings}
    rows = [(f"{path}.{n}", s.default, s.reason) for n, s in only.items()]
    for node in settings.values():
        if reason := node.field.metadata.get("unsupported"):
            rows.append((node.path, node.value, reason))
        elif isinstance(node.value, Config):
            rows += ineffective(node.value, node.path)
    return rows


def test_ineffective_settings_accept_their_defaults_and_reject_other_values(refused, over_digits):
    rows = ineffective(resolve(Request(experiment="digits")).config)
    assert len(rows) > 20

    over_digits(flags=tuple(("--x", path, inline_yaml(default)) for path, default, _ in rows))
    others = tuple(("--x", path, "true" if default is False else "7") for path, default, _ in rows)
    messages = {problem.path: problem.message for problem in refused(flags=others)}

    assert {*messages} == {path for path, _, _ in rows}
    for path, _, reason in rows:
        assert "which has no effect here: " + reason in messages[path]


def test_mappings_and_lists_in_a_config_are_frozen(over_digits):
    given = "{image: {shape: [8, 8], parts: [{a: [1]}]}}"
    override = f"callbacks=[{{class_name: a.B, arguments: {given}}}]"
    arguments = over_digits(params_overrides=(override,)).callbacks[0].arguments

    assert arguments["image"]["shape"] == (8, 8)
    with pytest.raises(TypeError):
        arguments["label"] = 1
    with pytest.raises(TypeError):
        arguments["image"]["shape"] = 1
    with pytest.raises(TypeError):
        arguments["image"]["parts"][0]["a"] = 1


def test_as_dict_returns_copies_and_only_the_selected_block(over_digits):
    config = over_digits()

    config.as_dict()["task"]["model"]["filters"].append(5)

    assert config.task.model.filters == (32, 64)
    assert [*config.trainer.optimizer_config.optimizer.as_dict()] == ["type", "adam"]
    assert config.trainer.optimizer_config.warmup.as_dict() == {"type": None}


def test_settings_of_unselected_blocks_are_ignored(over_digits):
    override = "trainer.optimizer_config.optimizer.sgd.momentum=0.5"

    assert over_digits(params_overrides=(override,)) == over_digits()


def test_config_classes_are_frozen_and_choices_default_to_none():
    def below(cls: Any) -> list[Any]:
        return [cls, *(sub for direct in cls.__subclasses__() for sub in below(direct))]

    for cls in below(Config):
        assert cls.__dataclass_params__.frozen, cls
        # Classes that mirror Model Garden's have the same default choice.
        if issubclass(cls, OneOf) and not hasattr(cls, "mirrors"):
            assert cls().type is None


@pytest.mark.parametrize(
    ("name", "written", "expected"),
    [
        ("enable_xla", "yes", True),
        ("deterministic", "Off", False),
        ("distribution_strategy", "off", "off"),
        ("tpu", "on", "on"),
    ],
)
def test_lenient_builder_reads_yaml_1_1_words_as_booleans(name, written, expected):
    builder, origin = Builder(lenient=True), Origin("a.yaml", 1, 1)

    config = builder.build(RuntimeConfig(), Section(origin, {name: Leaf(written, origin)}))

    assert builder.problems == []
    assert getattr(config, name) == expected


def test_mapping_is_shown_as_the_user_wrote_it():
    value = convert({"en": {"files": ["a", "b"]}, "de": 1}, Mapping[str, Any])

    assert repr(value) == "{'en': {'files': ['a', 'b']}, 'de': 1}"
    assert value == {"en": {"files": ("a", "b")}, "de": 1}
    assert value | {"de": 2} == {"en": {"files": ("a", "b")}, "de": 2}
    assert {"fr": 0, "de": 2} | value == {"fr": 0, "de": 1, "en": {"files": ("a", "b")}}
    with pytest.raises(TypeError):
        value["de"] = 2


def test_message_about_a_mapping_names_no_class_of_python():
    flags = [
        ("a", "task.name", "tabular"),
        ("a", "task.train_data.source", "text_files"),
        ("a", "task.train_data.files", "{en: {path: a}, de: {path: b}}"),
    ]
    with pytest.raises(ConfigError) as error:
        resolve(Request(flags=tuple(flags)))
    assert "en: got {'path': 'a'}, expected the name of a file" in str(error.value)
    assert "mappingproxy" not in str(error.value)


def test_text_in_the_notation_of_omegaconf_is_ordinary_text(over_digits, refused):
    assert over_digits(params_overrides=("description='${name} $${x}'",)).description == (
        "${name} $${x}"
    )

    (problem,) = refused(params_overrides=("trainer.summary_interval=${trainer.train_steps}",))

    assert (problem.path, problem.code) == ("trainer.summary_interval", "wrong-type")
