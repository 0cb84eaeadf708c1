"""Asserts errors by code and path, and compares their texts with `tests/golden/messages.txt`.

Each test asserts what kind of error there is, and what it is about. How the error is worded stands
in the golden file only, under the name of the test: `make messages` rewrites it, or
`python -m pytest FILES --rewrite-messages` for some files, and its diff is reviewed as prose.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from orbit_runner.cli import main as cli
from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.errors import RunnerError
from orbit_runner.registry import TASKS

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "messages.txt"
_HEAD = """\
The texts of errors, by test. `make messages` rewrites this file; its diff is reviewed as prose.
"""
# In characters. Names of tests may contain whole files.
_MAX_NAME_LENGTH = 160
_BASE = rf"{re.escape(tempfile.gettempdir())}/pytest-of-[^/\s]+/pytest-\d+"
# What differs from machine to machine, and from run to run, beside the temporary directory.
_REPLACED = [
    (re.compile(rf"{re.escape(tempfile.gettempdir())}/tmp\w{{8}}\b"), "TMP"),
    (re.compile(re.escape(str(ROOT))), "REPOSITORY"),
    (re.compile(re.escape(sys.prefix)), "PYTHON"),
    (re.compile(rf"\b{re.escape(socket.gethostname())}\b"), "HOST"),
    (re.compile(r"\b(127\.0\.0\.1|localhost):\d+"), r"\1:PORT"),
    (re.compile(r"\bport \d{4,5} of\b"), "port PORT of"),
    (re.compile(r" \(tried for [\d.]+ s\)"), ""),
    (re.compile(r'File "[^"]+", line \d+, in \w+'), "PLACE"),
    (re.compile(r"\bmodified \d{4}-\d\d-\d\d [\d:]{8}"), "modified TIME"),
    (re.compile(r"\bthe loss is \d+\.\d+"), "the loss is LOSS"),
    (re.compile(r"\bs3://bucket/[0-9a-f]{8}\b"), "s3://bucket/STORE"),
    (re.compile(r"\bprocess \d+\b"), "process PID"),
    (re.compile(r"\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b0x[0-9a-f]{8,}\b"), "0xADDRESS"),
    # Python 3.12 quotes them differently.
    (re.compile(r"\(choose from [^)\n]*\)"), "(choose from CHOICES)"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "SHA256"),
    # The allocator of TensorFlow with oneDNN, which is on by default on some processors.
    (re.compile(r"\bby allocator mklcpu\b"), "by allocator cpu"),
    # Keras counts the unnamed inputs of a process.
    (re.compile(r"\binput_\d+\b"), "input_NUMBER"),
]


class Messages:
    """The plugin of pytest that reads the golden file, and rewrites it if this is requested."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.rewrite = bool(config.getoption("--rewrite-messages"))
        base = config.getoption("basetemp")
        self.temporary = _temporary_pattern(re.escape(str(Path(base).resolve())) if base else _BASE)
        self.golden = read_golden() if GOLDEN.is_file() else {}
        self.recorded: dict[str, list[str]] = {}
        self._passed: set[str] = set()
        self._collected: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Remembers all cases, before some are deselected."""
        self._collected |= {key_of(item.nodeid) for item in items}

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remembers the tests that passed."""
        if report.when == "call" and report.passed:
            self._passed.add(key_of(report.nodeid))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Takes the texts of a worker of pytest-xdist."""
        output = getattr(node, "workeroutput", {})
        self.recorded |= output.get("messages", {})
        self._collected |= {*output.get("collected", ())}

    @pytest.hookimpl
    def pytest_sessionfinish(self) -> None:
        """Rewrites the entries of the tests that passed, and drops those of tests that are gone."""
        output = getattr(self._config, "workeroutput", None)
        if not self.rewrite:
            return
        if output is not None:
            output["messages"] = self.recorded
            output["collected"] = [*self._collected]
            return
        whole = not any("[" in argument for argument in self._config.args)
        tests = {test.partition("[")[0] for test in self._collected} if whole else set()
        kept = {
            test: texts
            for test, texts in self.golden.items()
            if test not in self._passed
            and (test in self._collected or test.partition("[")[0] not in tests)
            and function_exists(test)
        }
        new = {test: texts for test, texts in self.recorded.items() if test in self._passed}
        write_golden(kept | new)


MESSAGES: list[Messages] = []


def record(text: str) -> None:
    """Compares a text with the golden file, as the next one of the test that runs."""
    (messages,) = MESSAGES
    test = key_of(os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0])
    texts = messages.recorded.setdefault(test, [])
    texts.append(normalize(text, messages.temporary))
    if messages.rewrite:
        return
    number = len(texts)
    known = messages.golden.get(test, [])
    expected = known[number - 1] if len(known) >= number else "(no entry in the golden file)"
    assert texts[-1] == expected, "reworded? run `make messages`, and review the diff"


def key_of(test: str) -> str:
    """Returns the name of a test in the golden file: that of pytest, if it is not very long."""
    if len(test) <= _MAX_NAME_LENGTH:
        return test
    digest = hashlib.sha256(test.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{test[:_MAX_NAME_LENGTH]}… {digest}]"


def _temporary_pattern(base: str) -> re.Pattern[str]:
    """Returns the pattern of the directory of a test, below a pattern of that of all tests."""
    return re.compile(rf"(?:\.\./)*{base}(?:/popen-gw\d+)?/[\w.-]*[\w-]")


def normalize(text: str, temporary: re.Pattern[str]) -> str:
    """Replaces what differs from machine to machine, and leaves out names that tests register.

    `temporary` is the pattern of the temporary directory of a test.
    """
    text = temporary.sub("TMP", text)
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    for entry in TASKS.registered():
        if not str(entry.target).startswith("orbit_runner."):
            text = re.sub(rf"(?<=[ ,]){entry.name}, |, {entry.name}$", "", text, flags=re.M)
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def read_golden() -> dict[str, list[str]]:
    """Returns the texts of each test."""
    golden: dict[str, list[str]] = {}
    file = ""
    for line in GOLDEN.read_text(encoding="utf-8").split("\n"):
        if line.startswith("# "):
            file = line[2:]
        elif line.startswith("## "):
            texts = golden.setdefault(f"{file}::{line[3:]}", [])
        elif line == "-":
            texts.append("")
        elif line.startswith("  ") or (file and not line and golden and texts):
            texts[-1] += f"{line[2:]}\n"
    return {test: [text.strip("\n") for text in texts] for test, texts in golden.items()}


def write_golden(golden: dict[str, list[str]]) -> None:
    """Writes the texts of all tests, in the order of their names."""
    lines = [_HEAD]
    file = ""
    for test in sorted(golden):
        path, _, name = test.partition("::")
        if path != file:
            lines.append(f"# {path}\n")
            file = path
        lines.append(f"## {name}")
        for text in golden[test]:
            lines.append("-")
            lines += [f"  {line}" if line else "" for line in text.split("\n")]
        lines.append("")
    GOLDEN.write_text("\n".join(lines).rstrip("\n") + "\n", encoding="utf-8")


def function_exists(test: str) -> bool:
    """Returns whether the function of a test is still in its file."""
    path, _, name = test.partition("::")
    file = ROOT / path
    function = name.partition("[")[0].rpartition("::")[2]
    return file.is_file() and f"def {function}(" in file.read_text(encoding="utf-8")


def problems_of(error: RunnerError) -> list[Problem]:
    """Returns the problems of an error; all but those of a config have one."""
    if isinstance(error, ConfigError):
        return [*error.problems]
    (row,) = error.as_dicts()
    return [Problem(row["path"], row["message"], code=row["code"])]


def pairs(problems: Iterable[Problem]) -> list[tuple[str, str]]:
    """Returns the path and the text of each problem, for tests that compare values in texts."""
    return [(problem.path, problem.message) for problem in problems]


def check(found: Iterable[Problem], *expected: tuple[str, str]) -> None:
    """Asserts the codes and paths of problems, and their texts."""
    problems = [*found]
    assert [(problem.code, problem.path) for problem in problems] == [*expected]
    for problem in problems:
        place = " — ".join(str(part) for part in (problem.path, problem.origin) if part)
        record(f"{problem.code}: {place}\n{problem.message}")


def check_error(error: RunnerError, code: str, path: str = "", origin: str | None = None) -> None:
    """Asserts the code, the path and the origin of an error with one problem, and its text."""
    problems = problems_of(error)
    check(problems, (code, path))
    if origin is not None:
        assert str(problems[0].origin) == origin


@contextlib.contextmanager
def raises(
    code: str, path: str = "", origin: str | None = None, *, kind: type[RunnerError] = RunnerError
) -> Iterator[pytest.ExceptionInfo[RunnerError]]:
    """Asserts that an error with one problem is raised, and its code, path, origin and text."""
    with pytest.raises(kind) as caught:
        yield caught
    check_error(caught.value, code, path, origin)


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


def check_printed(text: str) -> None:
    """Compares what a command printed with the golden file."""
    record(text)
