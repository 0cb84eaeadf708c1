"""Bases of untrusted files: long chains, cycles, many files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from orbit_runner.config.errors import Problem
from orbit_runner.config.parsing.bases import MAX_DEPTH
from tests.support.problems import check

Write = Callable[..., str]
Refused = Callable[..., list[Problem]]
SECONDS = 30.0  # A bound against hanging: each takes a second or two on a busy machine.


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

    (problem,) = refused(experiment="b0.yaml")

    check([problem], ("bad-reference", "base"))


def test_thousands_of_missing_bases_end_quickly(write: Write, refused: Refused) -> None:
    write("a.yaml", f"base: {json.dumps(['nope'] * 19_000)}")
    started = time.monotonic()

    problems = refused(experiment="a.yaml")

    check(problems, ("bad-reference", "base"), ("bad-reference", "base"))
    assert time.monotonic() - started < SECONDS
