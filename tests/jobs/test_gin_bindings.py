"""`show --check` and `run` agree on gin bindings that only their own modules can check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.jobs.gin_bindings import bind_gin
from tests.support.problems import check, error_of, fails, problems_of, raises

MODULE = '''"""Registers a configurable."""

import gin

print("imported")  # A module may print: the answer has to be readable all the same.


@gin.configurable
def scale_by(factor=1, shift=0):
    return factor


gin.constant("own.ANSWER", 42)
'''
GOOD = """\
import {module}
M = 3
scale_by.factor = %M
s/{module}.scale_by.shift = %own.ANSWER
"""
BAD = """\
import {module}
scale_b.factor = 3
scale_by.facter = 4
scale_by.factor = @scale_bye()
trainr.train_steps = 5
create_trainer.trainer_cls = @scale_by
"""
# The lines and codes of its problems.
LINES = (2, 3, 4, 5, 6)
CODES = (*["bad-syntax"] * 4, "not-supported")


@pytest.fixture
def module(request, here, monkeypatch):
    """A module with a name that no other test registers."""
    name = f"own_{request.node.name}"
    (here / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(here))
    return name


def _write(module: str, text: str) -> str:
    Path(f"{module}.gin").write_text(text.format(module=module))
    return f"{module}.gin"


def _check_lines(problems: Sequence[Problem], module: str) -> None:
    """Asserts the lines of the problems, and their texts."""
    assert [str(problem.origin) for problem in problems] == [f"{module}.gin:{n}" for n in LINES]
    check(problems, *[(code, "") for code in CODES])


def test_run_reports_each_invalid_binding_with_its_line(module):
    import gin

    resolved = resolve(Request(experiment="digits", gin_files=(_write(module, BAD),)))

    try:
        with pytest.raises(ConfigError) as caught:
            bind_gin(resolved)
    finally:
        gin.clear_config()

    _check_lines(caught.value.problems, module)


@pytest.mark.slow
def test_validate_reports_the_same_binding_errors_as_run(module, capsys):
    name = _write(module, BAD)
    Path("good.gin").write_text(GOOD.format(module=module))

    error = error_of(["show", "--check", name, "good.gin", "--experiment=digits"])

    printed = capsys.readouterr()
    assert printed.out == "good.gin: ok\n"
    assert printed.err.count("importing tensorflow, to check gin bindings\n") == 2
    _check_lines(problems_of(error), module)


def test_run_names_the_module_that_fails_to_import(module):
    Path(f"{module}.py").write_text("raise ValueError('no licence')\n")
    name = _write(module, "import {module}\n")

    with raises("bad-syntax", origin=f"{module}.gin:1"):
        bind_gin(resolve(Request(experiment="digits", gin_files=(name,))))


@pytest.mark.slow
@pytest.mark.usefixtures("module")
def test_validate_reports_a_module_that_exits_on_import():
    Path("broken_module.py").write_text("import gin\nraise SystemExit('no licence')\n")
    Path("a.gin").write_text("import broken_module\nf.x = 1\n")

    fails(["show", "--check", "a.gin", "--experiment=digits"], "import-failed", "gin_bindings")
