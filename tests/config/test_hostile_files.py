"""Hostile config files: too large, too deeply nested, or not regular files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.parsing.tree import leaves
from orbit_runner.config.parsing.yaml_files import load_text
from tests.support.problems import check, fails

Write = Callable[..., str]
Refused = Callable[..., list[Problem]]
SECONDS = 30.0  # A bound against hanging: each takes a second or two on a busy machine.


def _bomb(first: str, next_one: Callable[[str], str]) -> str:
    lines, before = [first], "a0"
    for level in range(1, 10):
        lines.append(f"a{level}: &a{level} {next_one(before)}")
        before = f"a{level}"
    return "\n".join(lines) + "\n"


LISTS = _bomb("a0: &a0 [x]", lambda name: "[" + ", ".join([f"*{name}"] * 10) + "]")
MAPS = _bomb("a0: &a0 {x: 1}", lambda n: "{" + ", ".join(f"k{i}: *{n}" for i in range(10)) + "}")
CHAIN = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{x: *a{i - 1}}}\n" for i in range(1, 3000))
MACROS = "A0 = [1]\n" + "".join(
    f"A{i} = [{', '.join([f'%A{i - 1}'] * 10)}]\n" for i in range(1, 10)
)
MACRO_CHAIN = "A0 = [1]\n" + "".join(f"A{i} = [%A{i - 1}]\n" for i in range(1, 500))


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("lists.yaml", LISTS, "bad-syntax"),
        ("maps.yaml", MAPS, "bad-syntax"),
        ("chain.yaml", CHAIN, "bad-syntax"),
        ("flow.yaml", "a: " + "[" * 3000 + "]" * 3000, "bad-syntax"),
        ("block.yaml", "".join(" " * i + "a:\n" for i in range(1000)), "bad-syntax"),
        ("flow.json", '{"a":' * 3000 + "1" + "}" * 3000, "bad-syntax"),
        ("keys.yaml", "".join(f"key_{i}: 1\n" for i in range(30000)), "bad-syntax"),
        ("large.yaml", "# comment\n" * 200000, "bad-syntax"),
        ("macros.gin", f"{MACROS}trainer.train_steps = %A9\n", "bad-syntax"),
        ("chain.gin", f"{MACRO_CHAIN}trainer.train_steps = %A499\n", "bad-syntax"),
        ("deep.gin", f"trainer.train_steps = {'[' * 3000}{']' * 3000}\n", "bad-syntax"),
        ("names.gin", f"trainer.{'.a' * 3000} = 1\n".replace("..", "."), "bad-syntax"),
        ("null.yaml", b"trainer:\n  train_steps: 5\0\n", "bad-syntax"),
        ("utf16.yaml", "trainer: {train_steps: 5}\n".encode("utf-16"), "bad-syntax"),
        ("utf16.gin", "trainer.train_steps = 5\n".encode("utf-16"), "bad-syntax"),
        ("two.yaml", "trainer: {train_steps: 5}\n---\ntrainer: {}\n", "bad-syntax"),
        ("anchors.yaml", "x: &a 1\ny: &a 2\n", "bad-syntax"),
        ("list_key.yaml", "? [a, b]\n: 1\n", "bad-syntax"),
        ("map_key.yaml", "{a: 1}: 1\n", "bad-syntax"),
        ("tag_key.yaml", "!x trainer: {}\n", "bad-syntax"),
        ("dots.yaml", "trainer.train_steps: 5\n", "unknown-setting"),
        ("digits.yaml", f"trainer: {{train_steps: {'9' * 5000}}}\n", "wrong-type"),
        ("hex.yaml", f"trainer: {{train_steps: 0x{'f' * 5000}}}\n", "wrong-type"),
        ("zero.yaml", f"trainer: {{train_steps: 0{'9' * 5000}}}\n", "wrong-type"),
        ("tag.yaml", f"trainer: {{train_steps: !!float {'9' * 400}}}\n", "wrong-type"),
        ("hex.gin", f"trainer.train_steps = 0x{'f' * 5000}\n", "bad-syntax"),
        ("bytes.gin", "runtime.seed = b'x'\n", "bad-syntax"),
    ],
)  # fmt: skip
def test_hostile_file_is_rejected_quickly_with_a_short_message(
    write: Write, refused: Refused, name: str, content: str | bytes, code: str
) -> None:
    write(name, content)
    start = time.monotonic()

    (problem,) = refused(config_files=(name,))

    check([problem], (code, problem.path))
    assert problem.origin is not None
    assert problem.origin.label == name
    assert len(str(problem)) < 1000
    assert time.monotonic() - start < SECONDS


@pytest.mark.parametrize(
    "value", ["k" * 500_000, f"[{', '.join(['1'] * 10_000)}]", f"'{'é' * 100_000}'"]
)
def test_long_value_is_truncated_in_the_error_message(
    write: Write, refused: Refused, value: str
) -> None:
    write("a.yaml", f"trainer: {{train_steps: {value}}}\n")

    (problem,) = refused(config_files=("a.yaml",))

    check([problem], ("wrong-type", "trainer.train_steps"))
    assert len(problem.message) < 400


def test_many_unknown_names_are_summarized_by_a_count(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("a.yaml", "trainer:\n" + "".join(f"  unknown_{i}: 1\n" for i in range(2000)))

    assert main(["validate", "--experiment=digits", "a.yaml"]) == 2

    message = capsys.readouterr().err
    assert "… and 1800 more" in message


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('!!int "20"', 20),
        ("!!float 3", 3.0),
        ("!!bool 'true'", True),
        ("!!null ''", None),
        ("!!str 010", "010"),
        ("! 12", "12"),
        ("!!seq [1]", [1]),
        ("'010'", "010"),
        ("0", 0),
        ("00", 0),
        ("0.5", 0.5),
        ("0x10", 16),
        ("0o10", 8),
        ("1_000", 1000),
        ("1:30", "1:30"),
    ],
)
def test_core_schema_tags_and_numbers_are_converted(written: str, value: Any) -> None:
    ((_, leaf),) = leaves(load_text(f"x: {written}", "a.yaml", 1))

    assert (leaf.value, type(leaf.value)) == (value, type(value))


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ('!!int "x"', "bad-syntax"),
        ("!!int 1.5", "bad-syntax"),
        ("!!bool yes", "bad-syntax"),
        ("!foo 20", "bad-syntax"),
        ("!!timestamp 2020-01-01", "bad-syntax"),
        ("!!binary aGk=", "bad-syntax"),
        ("!!python/name:os.system", "bad-syntax"),
        ("!foo {a: 1}", "bad-syntax"),
        ("!!set {a, b}", "bad-syntax"),
        ("!!omap [a: 1]", "bad-syntax"),
        ("[1, !foo 2]", "bad-syntax"),
        ("010", "bad-syntax"),
        ("-0_8", "bad-syntax"),
        ("[00777]", "bad-syntax"),
    ],
)
def test_ambiguous_or_mistagged_value_is_rejected_with_its_line(written: str, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(f"a: 1\nx: {written}\n", "a.yaml", 1)

    (problem,) = caught.value.problems
    check([problem], (code, problem.path))
    assert problem.path.startswith("x")
    assert str(problem.origin) == "a.yaml:2"


@pytest.mark.parametrize("name", ["--params_override", "--flag"])
def test_setting_path_with_thousands_of_parts_is_rejected(refused: Refused, name: str) -> None:
    path = ".".join(["trainer"] * 3000)
    given: dict[str, Any] = {"params_overrides": (f"{path}=1",)}
    if name == "--flag":
        given = {"flags": ((f"--{path}", path, "1"),)}

    (problem,) = refused(**given)

    check([problem], ("bad-syntax", problem.path))
    assert len(str(problem)) < 400


def test_gin_file_may_start_with_a_byte_order_mark(
    write: Write, over_digits: Callable[..., Any]
) -> None:
    write("a.gin", "\ufefftrainer.train_steps = 7\n")

    assert over_digits(gin_files=("a.gin",)).trainer.train_steps == 7


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        (["show", "--experiment=digits", "--config_file=d"], "wrong-file-type", ""),
        (["show", "--experiment=digits", "--config_file=d.yaml"], "wrong-file-type", ""),
        (["show", "--experiment=digits", "--gin_file=d"], "wrong-file-type", ""),
        (["show", "--experiment=d"], "unknown-name", "--experiment"),
        (["validate", "d"], "unknown-name", "--experiment"),
        (["show", "--experiment=d", "--diff=digits"], "unknown-name", "--experiment"),
        (["show", "--experiment=digits", "--config_file=/dev/stdin"], "wrong-file-type", ""),
        (["show", "--experiment=digits", "--gin_file=/dev/zero"], "wrong-file-type", ""),
        (["show", "--experiment=digits", "--config_file=a\0b"], "missing-file", ""),
        (["show", "--experiment=digits", "--config_file=" + "a/" * 3000], "missing-file", ""),
        (["show", "--experiment=" + "a" * 3000], "unknown-name", "--experiment"),
    ],
)  # fmt: skip
def test_path_that_is_not_a_regular_file_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: str, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "d.yaml").mkdir()

    fails(arguments, code, path)
