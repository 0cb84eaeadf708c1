# ruff: noqa: E501 (one line a case)
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gin
import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.parsing.gin_files import load_gin, tree_of
from orbit_runner.config.parsing.tree import leaves
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml
from tests.support.problems import check, raises
from tests.support.processes import process


def read(text: str) -> Any:
    return load_gin(text, "f.gin", 1, Path("f.gin"))


def values(text: str) -> dict[str, Any]:
    layer = read(text)
    return {path: leaf.value for path, leaf in leaves(tree_of(layer, layer.macros))}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("task.model.depth = 20", {"task.model.depth": 20}),
        ("task.a = -1.5e-3", {"task.a": -1.5e-3}),
        ("task.a = 'x'  # comment", {"task.a": "x"}),
        ("# comment\n\ntask.a = 'x' 'y'\n", {"task.a": "xy"}),
        ("task.a = True\ntask.b = None", {"task.a": True, "task.b": None}),
        ("task.a = (1, 2.5, 'x')", {"task.a": (1, 2.5, "x")}),
        ("task.a = [\n  1,  # one\n  2,\n]", {"task.a": [1, 2]}),
        ("task.model = {'name': 'mlp', 'd': {'e': 1}}", {"task.model.name": "mlp", "task.model.d.e": 1}),
        ("task.model:\n  # comment\n  name = 'mlp'\n\n  d = 3\n", {"task.model.name": "mlp", "task.model.d": 3}),
        ("trainer:\n  train_steps = 3\nruntime:\n  seed = 1\n", {"trainer.train_steps": 3, "runtime.seed": 1}),
        ("experiment.task.a = 1", {"task.a": 1}),
        ("experiment.name = 'x'", {"name": "x"}),
        ("experiment:\n  description = 'x'\n", {"description": "x"}),
        ("runtime = {'seed': 3}", {"runtime.seed": 3}),
        ("experiment = {'runtime': {'seed': 3}}", {"runtime.seed": 3}),
        ("task.a = 1\ntask.a = 2", {"task.a": 2}),
        ("A = 1\ntask.a = %A", {"task.a": 1}),
        ("task.a = %A\nA = 1", {"task.a": 1}),
        ("A = 1\nA = 2\ntask.a = %A", {"task.a": 2}),
        ("A = [%B, {'k': %B}]\nB = 2\ntask.a = %A", {"task.a": [2, {"k": 2}]}),
        ("A/macro.value = 1\ntask.a = %A", {"task.a": 1}),
        ("s/A = 1\nA = 2\ntask.a = %s/A", {"task.a": 1}),
    ],
)  # fmt: skip
def test_gin_bindings_set_config_values(text, expected):
    assert values(text) == expected


def test_origins_include_the_line_of_the_binding():
    text = "A = 1\n\ntask.a = %A\ntask.m:\n  b = 1\n  c = [1,\n    2]\n"

    layer = read(text)
    origins = {path: str(leaf.origin) for path, leaf in leaves(tree_of(layer, layer.macros))}
    assert origins == {"task.a": "f.gin:3", "task.m.b": "f.gin:5", "task.m.c": "f.gin:6"}


@pytest.mark.parametrize(
    ("text", "path", "code", "line"),
    [
        ("task.a = @f", "task.a", "bad-syntax", 1),
        ("task.a = @f()", "task.a", "bad-syntax", 1),
        ("\ntask.a = [1, @s/f()]", "task.a", "bad-syntax", 2),
        ("A = @f\ntask.a = %A", "task.a", "bad-syntax", 2),
        ("task.a = %A", "task.a", "bad-syntax", 1),
        ("A = %B\nB = %A\ntask.a = %A", "task.a", "bad-syntax", 3),
        ("s/task.a = 1", "task.a", "bad-syntax", 1),
        ("experiment = 5", "", "bad-syntax", 1),
    ],
)
def test_unsupported_gin_value_is_rejected(text, path, code, line):
    with pytest.raises(ConfigError) as caught:
        values(text)

    (problem,) = caught.value.problems
    check([problem], (code, path))
    assert problem.origin.line == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("task.a = 1\ntask.b == 2\n", 2),
        ("task..a = 1\n", 1),
        ("task.m:\n  b = 1\n c = 2\n", 3),
        ("task.a = {[1]: 2}\n", None),
        ("include 5\n", 1),
    ],
)
def test_gin_syntax_error_is_reported_with_its_line(text, line):
    with pytest.raises(ConfigError) as caught:
        values(text)

    (problem,) = caught.value.problems
    check([problem], ("bad-syntax", problem.path))
    assert (problem.origin.label, problem.origin.line) == ("f.gin", line)


@pytest.mark.parametrize("text", ["task.a = [1,\n", "task.a = 'x\n"])
def test_unclosed_bracket_or_string_is_reported(text):
    with raises("bad-syntax") as caught:
        values(text)
    (problem,) = caught.value.problems
    assert problem.origin.label == "f.gin"


def test_includes_are_found_relative_to_the_including_file(write, over_digits):
    write("a/main.gin", "include 'sub/one.gin'\ntrainer.max_to_keep = 7\n")
    write("a/sub/one.gin", "include 'two.gin'\nSTEPS = 11\ntrainer.max_to_keep = 6\n")
    write("a/sub/two.gin", "trainer.validation_interval = %STEPS\n")

    resolved = resolve(Request(experiment="digits", gin_files=("a/main.gin",)))

    assert resolved.config.trainer.validation_interval == 11
    assert resolved.config.trainer.max_to_keep == 7
    assert str(resolved.origins["trainer.validation_interval"]) == "two.gin:1"
    assert str(resolved.origins["trainer.max_to_keep"]) == "a/main.gin:2"


@pytest.mark.parametrize("spelled", ["a.gin", "../d/a.gin", "./a.gin"])
def test_include_loop_is_reported_at_the_closing_include(write, refused, spelled):
    write("d/a.gin", "include 'b.gin'\n")
    write("d/b.gin", f"# comment\ninclude '{spelled}'\n")

    (problem,) = refused(gin_files=("d/a.gin",))

    check([problem], ("bad-reference", ""))
    assert str(problem.origin) == "b.gin:2"


def test_missing_include_is_reported_at_the_including_line(write, refused):
    write("d/a.gin", "runtime.seed = 1\ninclude 'nope.gin'\n")

    (problem,) = refused(gin_files=("d/a.gin",))

    assert str(problem.origin) == "d/a.gin:2"
    check([problem], ("missing-file", ""))


def test_overridden_macro_changes_value_and_origin(write):
    write("a.gin", "SEED = 1\nruntime.seed = %SEED\ntrainer.train_steps = %SEED\n")
    request = Request(experiment="digits", gin_files=("a.gin",), gin_params=("SEED = 4",),
                      flags=(("--train_epochs", "trainer.train_epochs", "0"),))  # fmt: skip

    resolved = resolve(request)

    assert resolved.config.runtime.seed == resolved.config.trainer.train_steps == 4
    assert str(resolved.origins["runtime.seed"]) == "--gin_param[0]"


def test_precedence_follows_the_binding_not_its_macro(write, over_digits):
    write("a.gin", "SEED = 1\nruntime.seed = %SEED\n")

    config = over_digits(
        gin_files=("a.gin",), gin_params=("SEED = 4",), params_overrides=("runtime.seed=2",)
    )

    assert config.runtime.seed == 2


@pytest.mark.parametrize("text", ["train_steps = 5", "BATHC = 5", "s/BATCH = 5"])
def test_unused_macro_on_the_command_line_is_rejected(refused, text):
    (problem,) = refused(experiment="digits_mlp", gin_params=(text,))

    check([problem], ("no-effect", ""))
    assert str(problem.origin) == "--gin_param[0]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f.x = 1", ["f.x = 1"]),
        ("a.b.f.x = 'y'", ["a.b.f.x = 'y'"]),
        ("s/t/f.x = %M", ["s/t/f.x = %M"]),
        ("f.x = @g()", ["f.x = @g()"]),
        ("f.x = {'a': [@s/g, %M]}", ["f.x = {'a': [@s/g, %M]}"]),
        ("f:\n  x = 1\n  y = None\n", ["f.x = 1", "f.y = None"]),
        ("f.x = (1e9999, -1e9999)", ["f.x = (1e999, -1e999)"]),
        ("f.x = (2,)", ["f.x = (2,)"]),
        ("f.x = {1e9999: [-1e9999j, ()]}", ["f.x = {1e999: [-1e999j, ()]}"]),
        ("import os.path", ["import os.path"]),
        ("from os import path as p", ["from os import path as p"]),
    ],
)
def test_non_setting_statements_are_kept_as_gin_text(text, expected):
    assert [*read(text).statements] == expected
    assert values(text) == {}


def test_kept_statements_configure_a_real_function(write, over_digits):
    @gin.configurable(module="kept")
    def double(x: Any = gin.REQUIRED, names: Any = (), y: Any = None) -> Any:
        return x * 2, names, y

    @gin.configurable(module="kept")
    def one() -> int:
        return 1

    write(
        "a.gin",
        "runtime.seed = %X\nf_scope/kept.double.x = 100\nkept.double:\n  x = %X\n"
        "  names = ['a b', %NAME]\n  y = @kept.one()\nX = 4\nNAME = 'it\\'s'\nimport string\n",
    )
    config = over_digits(gin_files=("a.gin",), gin_params=("X = 21",))

    gin.clear_config()
    try:
        gin.parse_config("\n".join(config.gin_bindings))
        assert double() == (42, ["a b", "it's"], 1)
        with gin.config_scope("f_scope"):
            assert double()[0] == 200
    finally:
        gin.clear_config()
    assert config.runtime.seed == 21
    assert config.gin_bindings[0] == "import string"


def test_later_gin_bindings_replace_those_of_a_file(write, over_digits):
    write("a.yaml", "gin_bindings: ['f.x = 1', 'f.x = 2', 'M = 1', 'f.y = %M']\n")

    config = over_digits(config_files=("a.yaml",), gin_params=("f.x = 1", "M = 3"))

    assert config.gin_bindings == ("f.x = 2", "M = 1", "f.y = %M", "M = 3", "f.x = 1")


@pytest.mark.parametrize("text", ["gin_bindings: 5", "gin_bindings: [{a: 1}]", "imports: {a: 1}"])
def test_gin_bindings_of_wrong_type_are_rejected(write, refused, text):
    write("a.yaml", text)

    problems = refused(config_files=("a.yaml",), gin_params=("f.x = 1",), imports=("os",))

    assert [str(problem.origin) for problem in problems] == ["a.yaml:1"]


YAML = """
description: both
task:
  name: image_classification
  model: {name: mlp, hidden_units: [8, 4], dropout_rate: 0.5}
  train_data: {source: digits, global_batch_size: 64}
  validation_data: {source: digits, global_batch_size: 64, drop_remainder: true}
trainer:
  train_steps: 10
  continuous_eval_timeout: null
  loss_upper_bound: 1e30
  optimizer_config:
    optimizer: {type: lars, lars: {exclude_from_weight_decay: [bias]}}
    learning_rate: {type: stepwise, stepwise: {boundaries: [3], values: [0.1, 1e-3]}}
    ema: {average_decay: 0.9}
runtime: {distribution_strategy: 'off', seed: 3}
"""
GIN = """
experiment.description = 'both'
B = 64
task.name = 'image_classification'
task.model = {'name': 'mlp', 'hidden_units': (8, 4), 'dropout_rate': 0.5}
task.train_data:
  source = 'digits'
  global_batch_size = %B
experiment.task.validation_data.source = 'digits'
task.validation_data.global_batch_size = %B
task.validation_data.drop_remainder = True
trainer.train_steps = 10
trainer.continuous_eval_timeout = None
trainer.loss_upper_bound = 1e30
trainer.optimizer_config.optimizer.type = 'lars'
trainer.optimizer_config.optimizer.lars.exclude_from_weight_decay = ['bias']
trainer.optimizer_config.learning_rate:
  type = 'stepwise'
  stepwise = {'boundaries': [3], 'values': [0.1, 1e-3]}
trainer.optimizer_config.ema.average_decay = 0.9
runtime:
  distribution_strategy = 'off'
  seed = 3
"""


@pytest.mark.promise("configs", "YAML and gin files give the same config")
def test_yaml_and_gin_give_the_same_config(write):
    write("a/one.yaml", YAML)
    write("b/one.gin", GIN)

    left, right = (resolve(Request(experiment=name)).config for name in ("a/one.yaml", "b/one.gin"))

    assert left == right
    assert to_yaml(left) == to_yaml(right)


def test_reading_gin_imports_neither_tensorflow_nor_named_modules(tmp_path):
    (tmp_path / "heavy.py").write_text("raise SystemExit('it was imported')\n")
    (tmp_path / "a.gin").write_text("import heavy\nruntime.seed = 3\n")
    code = (
        "import sys\n"
        "from orbit_runner.config.resolve import Request, resolve\n"
        "c = resolve(Request(experiment='digits', gin_files=('a.gin',))).config\n"
        "print(c.gin_bindings, 'tensorflow' in sys.modules)\n"
    )

    completed = process(sys.executable, "-c", code, cwd=tmp_path)

    assert completed.stdout == "('import heavy',) False\n", completed.stderr


def test_origin_of_each_gin_statement_is_recorded(write):
    write("a.gin", "import own_module\nM = 1\nf.x = %M\n")

    resolved = resolve(Request(experiment="digits", gin_files=("a.gin",), gin_params=("f.y = 2",)))

    bindings = resolved.config.gin_bindings
    assert {
        text: str(resolved.origin(f"gin_bindings[{i}]")) for i, text in enumerate(bindings)
    } == {
        "import own_module": "a.gin:1",
        "M = 1": "a.gin:2",
        "f.x = %M": "a.gin:3",
        "f.y = 2": "--gin_param[0]",
    }
