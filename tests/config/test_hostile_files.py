"""Hostile config files: too large, too deeply nested, not regular files, or with bases of bases."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.errors import Problem
from orbit_runner.config.parsing.bases import MAX_DEPTH
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


def test_bases_up_to_the_limit_are_read(write: Write, over_digits: Callable[..., Any]) -> None:
    for level in range(MAX_DEPTH - 2):
        write(f"b{level}.yaml", f"base: b{level + 1}.yaml")
    write(f"b{MAX_DEPTH - 2}.yaml", "base: digits")

    assert over_digits(experiment="b0.yaml").runtime.seed == 17


def test_thousand_bases_of_bases_are_an_error(write: Write, refused: Refused) -> None:
    for level in range(1000):
        write(f"b{level}.yaml", f"base: b{level + 1}.yaml")
    (problem,) = refused(experiment="b0.yaml")

    check([problem], ("bad-reference", "base"))
    assert str(problem.origin) == f"b{MAX_DEPTH - 1}.yaml:1"


def test_bases_that_double_are_limited(write: Write, refused: Refused) -> None:
    for level in range(12):
        write(f"b{level}.yaml", f"base: [b{level + 1}.yaml, b{level + 1}.yaml]")
    write("b12.yaml", "base: digits")

    check(refused(experiment="b0.yaml"), ("bad-reference", "base"))


def test_thousands_of_missing_bases_end_quickly(write: Write, refused: Refused) -> None:
    write("a.yaml", f"base: {json.dumps(['nope'] * 19_000)}")
    started = time.monotonic()

    problems = refused(experiment="a.yaml")

    check(problems, ("bad-reference", "base"), ("bad-reference", "base"))
    assert time.monotonic() - started < SECONDS
