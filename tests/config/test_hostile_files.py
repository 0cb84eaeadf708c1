"""Config files that are no text, contain what is not allowed, or are not regular files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbit_runner.config.errors import Problem
from tests.support.problems import check, error_of

Write = Callable[..., str]
Refused = Callable[..., list[Problem]]


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("null.yaml", b"trainer:\n  train_steps: 5\0\n", "bad-syntax"),
        ("utf16.yaml", "trainer: {train_steps: 5}\n".encode("utf-16"), "bad-syntax"),
        ("utf16.gin", "trainer.train_steps = 5\n".encode("utf-16"), "bad-syntax"),
        ("two.yaml", "trainer: {train_steps: 5}\n---\ntrainer: {}\n", "bad-syntax"),
        ("anchors.yaml", "x: &a 1\ny: &a 2\n", "bad-syntax"),
        ("list_key.yaml", "? [a, b]\n: 1\n", "bad-syntax"),
        ("map_key.yaml", "{a: 1}: 1\n", "bad-syntax"),
        ("tag_key.yaml", "!x trainer: {}\n", "bad-syntax"),
        ("dots.yaml", "trainer.train_steps: 5\n", "unknown-setting"),
        ("deep.yaml", "a: " + "[" * 3000 + "]" * 3000, "bad-syntax"),
        ("deep.gin", f"trainer.train_steps = {'[' * 3000}{']' * 3000}\n", "bad-syntax"),
        ("digits.yaml", f"trainer: {{train_steps: {'9' * 5000}}}\n", "wrong-type"),
        ("zero.yaml", f"trainer: {{train_steps: 0{'9' * 5000}}}\n", "wrong-type"),
        ("bytes.gin", "runtime.seed = b'x'\n", "bad-syntax"),
    ],
)  # fmt: skip
def test_invalid_file_is_rejected_with_a_short_message(write, refused, name, content, code):
    write(name, content)

    (problem,) = refused(config_files=(name,))

    check([problem], (code, problem.path))
    assert problem.origin.label == name
    assert len(str(problem)) < 1000


@pytest.mark.parametrize(
    "value", ["k" * 500_000, f"[{', '.join(['1'] * 10_000)}]", f"'{'é' * 100_000}'"]
)
def test_long_value_is_truncated_in_the_error_message(write, refused, value):
    write("a.yaml", f"trainer: {{train_steps: {value}}}\n")

    (problem,) = refused(config_files=("a.yaml",))

    check([problem], ("wrong-type", "trainer.train_steps"))
    assert len(problem.message) < 400


def test_many_unknown_names_are_summarized_by_a_count(write):
    write("a.yaml", "trainer:\n" + "".join(f"  unknown_{i}: 1\n" for i in range(250)))

    assert "… and 50 more" in str(error_of(["show", "--check", "--experiment=digits", "a.yaml"]))


def test_gin_file_may_start_with_a_byte_order_mark(write, over_digits):
    write("a.gin", "\ufefftrainer.train_steps = 7\n")

    assert over_digits(gin_files=("a.gin",)).trainer.train_steps == 7
