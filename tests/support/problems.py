"""Runs commands in this process, and asserts errors by code and path: their kind and subject.

The words of an error are asserted only where a page quotes them, or where they hold a value that
the test is about.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator
from unittest import mock

import pytest

from orbit_runner.cli import main as cli
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.errors import RunnerError


def problems_of(error: RunnerError) -> list[Problem]:
    """Returns the problems of an error; all but those of a config have one."""
    if isinstance(error, ConfigError):
        return [*error.problems]
    (row,) = error.as_dicts()
    return [Problem(row["path"], row["message"], code=row["code"])]


def pairs(problems: Iterable[Problem]) -> list[tuple[str, str]]:
    """Returns the path and the text of each problem, for tests that compare values in texts."""
    return [(problem.path, problem.message) for problem in problems]


def check(problems: Iterable[Problem], *expected: tuple[str, str]) -> None:
    """Asserts the codes and paths of problems."""
    assert [(problem.code, problem.path) for problem in problems] == [*expected]


def check_error(error: RunnerError, code: str, path: str = "", origin: str | None = None) -> None:
    """Asserts the code, the path and the origin of an error with one problem."""
    problems = problems_of(error)
    check(problems, (code, path))
    if origin is not None:
        assert str(problems[0].origin) == origin


@contextlib.contextmanager
def raises(
    code: str, path: str = "", origin: str | None = None, *, kind: type[RunnerError] = RunnerError
) -> Iterator[pytest.ExceptionInfo[RunnerError]]:
    """Asserts that an error with one problem is raised, and its code, path and origin."""
    with pytest.raises(kind) as caught:
        yield caught
    check_error(caught.value, code, path, origin)


def output_of(arguments: Iterable[str], *, exit_code: int = 0) -> str:
    """Returns what a command prints to stdout; it runs in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert cli.main([*arguments]) == exit_code
    return output.getvalue()


def error_of(arguments: Iterable[str], *, exit_code: int = 2) -> RunnerError:
    """Returns the error that a command ends with; it runs in this process."""
    with mock.patch.object(cli, "_print_error") as print_error:
        cli.main([*arguments])
    print_error.assert_called_once()
    error: RunnerError = print_error.call_args.args[0]
    assert error.exit_code == exit_code
    return error


def fails(
    arguments: Iterable[str],
    code: str,
    path: str = "",
    origin: str | None = None,
    *,
    exit_code: int = 2,
) -> RunnerError:
    """Asserts that a command ends with an error with one problem; it runs in this process."""
    error = error_of(arguments, exit_code=exit_code)
    check_error(error, code, path, origin)
    return error
