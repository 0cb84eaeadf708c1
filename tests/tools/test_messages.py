"""The golden file of texts: each entry is of a test that exists, and a reworded text is noticed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from orbit_runner.config.errors import ConfigError, Origin, Problem
from orbit_runner.errors import DataError, RunnerError, SettingError
from tests.support import problems
from tests.support.problems import check, check_error, raises

THIS = "tests/tools/test_messages.py"


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> problems.Messages:
    """A golden file of its own, without entries."""
    monkeypatch.setattr(problems, "GOLDEN", tmp_path / "messages.txt")
    config = SimpleNamespace(getoption=lambda name: False, args=[THIS])
    own = problems.Messages(config)  # type: ignore[arg-type]
    monkeypatch.setattr(problems, "MESSAGES", [own])
    return own


def test_each_entry_is_of_a_test_that_exists() -> None:
    gone = [test for test in problems.read_golden() if not problems.function_exists(test)]

    assert not gone, "run `make messages`"


def test_file_is_as_it_would_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    golden = problems.read_golden()
    text = problems.GOLDEN.read_text(encoding="utf-8")
    monkeypatch.setattr(problems, "GOLDEN", tmp_path / "messages.txt")

    problems.write_golden(golden)

    assert problems.GOLDEN.read_text(encoding="utf-8") == text
    assert problems.read_golden() == golden


@pytest.mark.parametrize(
    "found",
    [
        Problem("trainer.x", "got 3", code="out-of-range"),
        Problem("trainer.x", "got 2", Origin("b.yaml", 3), "out-of-range"),
    ],
)
def test_other_text_or_origin_fails(messages: problems.Messages, found: Problem) -> None:
    problem = Problem("trainer.x", "got 2", Origin("a.yaml", 3), "out-of-range")
    messages.rewrite = True
    check([problem], ("out-of-range", "trainer.x"))
    messages.golden = messages.recorded
    messages.rewrite = False

    messages.recorded = {}
    check([problem], ("out-of-range", "trainer.x"))

    messages.recorded = {}
    with pytest.raises(AssertionError, match="make messages"):
        check([found], ("out-of-range", "trainer.x"))


@pytest.mark.parametrize("error", [("not-set", "trainer.x"), ("out-of-range", "trainer.y")])
def test_other_code_or_path_fails(messages: problems.Messages, error: tuple[str, str]) -> None:
    messages.rewrite = True

    with pytest.raises(AssertionError):
        check([Problem("trainer.x", "got 2", code="out-of-range")], error)


def test_text_without_an_entry_fails(messages: problems.Messages) -> None:
    with pytest.raises(AssertionError, match="no entry"), raises("not-set", "trainer.x"):
        raise SettingError("trainer.x", "is not set", code="not-set")


@pytest.mark.parametrize(
    ("error", "code", "path", "message"),
    [
        (RunnerError("no", code="not-set", path="--at"), "not-set", "--at", "no"),
        (DataError("no", code="bad-record"), "bad-record", "", "no"),
        (SettingError("a.b", "no", code="conflict"), "conflict", "a.b", "no"),
        (ConfigError([Problem("a", "no", code="set-twice")]), "set-twice", "a", "no"),
    ],
)
def test_error_has_code_path_and_text(
    messages: problems.Messages, error: RunnerError, code: str, path: str, message: str
) -> None:
    messages.rewrite = True

    check_error(error, code, path)

    ((text,),) = messages.recorded.values()
    assert text.split("\n") == [f"{code}: {path}".strip(), message]
    assert error.code == code


def test_partial_run_rewrites_only_the_tests_that_ran(messages: problems.Messages) -> None:
    here = f"{THIS}::test_text_without_an_entry_fails"
    other = "tests/tools/test_errors_page.py::test_the_page_is_current"
    messages.rewrite = True
    messages.golden = {
        here: ["before"],
        f"{here}[a case that is gone]": ["before"],
        f"{THIS}::test_that_is_gone": ["before"],
        other: ["before"],
    }
    for item in (here,):
        messages.pytest_collection_modifyitems([SimpleNamespace(nodeid=item)])  # type: ignore[list-item]
        report = SimpleNamespace(when="call", passed=True, nodeid=item)
        messages.pytest_runtest_logreport(report)  # type: ignore[arg-type]
    # As a worker of pytest-xdist reports it.
    output = {"messages": {here: ["after\n\nwith a line"]}, "collected": []}
    messages.pytest_testnodedown(SimpleNamespace(workeroutput=output))

    messages.pytest_sessionfinish()

    assert problems.read_golden() == {here: ["after\n\nwith a line"], other: ["before"]}


def test_entry_of_a_test_that_failed_is_kept(messages: problems.Messages) -> None:
    here = f"{THIS}::test_text_without_an_entry_fails"
    messages.rewrite = True
    messages.golden = {here: ["before"]}
    messages.recorded = {here: ["half"]}
    messages.pytest_collection_modifyitems([SimpleNamespace(nodeid=here)])  # type: ignore[list-item]

    messages.pytest_sessionfinish()

    assert problems.read_golden() == {here: ["before"]}


def test_what_differs_between_machines_is_replaced(tmp_path: Path) -> None:
    text = f"{tmp_path / 'a.yaml'}:3: {problems.ROOT}/docs, process 17 at localhost:4123 \n"

    (messages,) = problems.MESSAGES

    assert (
        problems.normalize(text, messages.temporary)
        == "TMP/a.yaml:3: REPOSITORY/docs, process PID at localhost:PORT"
    )


def test_temporary_directory_of_the_option_is_replaced(tmp_path: Path) -> None:
    values = {"--rewrite-messages": False, "basetemp": str(tmp_path / "base")}
    config = SimpleNamespace(getoption=values.__getitem__, args=[THIS])
    pattern = problems.Messages(config).temporary  # type: ignore[arg-type]
    text = f"{tmp_path}/base/test_a0/run, {tmp_path}/base/popen-gw1/test_b_x_0/b.yaml"

    assert problems.normalize(text, pattern) == "TMP/run, TMP/b.yaml"
