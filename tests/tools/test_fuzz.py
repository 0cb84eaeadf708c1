"""The fuzzer finds each kind of problem, and each target accepts its own valid files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.errors import RunnerError
from tools.fuzz.__main__ import main
from tools.fuzz.mutations import mutate
from tools.fuzz.target import Case, Target, kept_contents
from tools.fuzz.targets import TARGETS
from tools.fuzz.workers import run_cases

# Seeds of archives that point outside, of pickled arrays, and of labels that do not exist.
_REFUSED = ("zip", "tar", "tar_gz", "npz", "keras_npz")


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", TARGETS)
def test_target_reads_its_first_valid_file(name: str, tmp_path: Path) -> None:
    case = Case(TARGETS[name], tmp_path)
    assert case.run(case.seeds[0])


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", _REFUSED)
def test_hostile_seeds_are_refused(name: str, tmp_path: Path) -> None:
    case = Case(TARGETS[name], tmp_path)
    valid = [case.run(content) for content in case.seeds]
    assert valid.count(False) >= 2


@pytest.mark.parametrize("name", TARGETS)
def test_content_that_was_a_problem_is_none_now(name: str, tmp_path: Path) -> None:
    contents = kept_contents(name)
    if not contents:
        pytest.skip("no case is kept")
    case = Case(TARGETS[name], tmp_path)
    for path in contents:
        case.run(path.read_bytes())


def _raise(path: Path) -> None:
    raise KeyError("x")


def _loop(path: Path) -> None:
    while True:
        pass


def _hide(path: Path) -> None:
    raise RunnerError("a message without the name")


def _fill(path: Path) -> None:
    bytearray(b"x" * (3 * 2**29))


def _command(path: Path) -> None:
    os.system("true")


def _write(path: Path) -> None:
    (path.parents[1] / "beside").write_text("x")


def _evaluate(path: Path) -> None:
    eval("1 + 1")


def _exit(path: Path) -> None:
    os._exit(3)


def _accept(path: Path) -> None:
    raise RunnerError(f"{path}: is refused")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (_raise, "KeyError at"),
        (_loop, "TooSlow at"),
        (_hide, "Unclear at"),
        (_fill, "TooMuchMemory at"),
        (_command, "RanCode at"),
        (_write, "RanCode at"),
        (_evaluate, "RanCode at"),
        (_exit, "ended the process (3)"),
        (_accept, ""),
    ],
)
def test_each_kind_of_problem_is_found(read: Callable[[Path], None], kind: str) -> None:
    # The first case has another number in another process, and is called outside of the guard.
    def seldom(path: Path) -> None:
        if path.read_bytes() == b"first":
            return
        read(path)

    target = Target("made", "a.bin", lambda folder: [b"first"], seldom)

    found = run_cases(target, 3, processes=1, seed=5)

    assert [name.startswith(kind) for name in found.findings] == [True] * bool(kind)


def test_cases_depend_only_on_seed_and_number(tmp_path: Path) -> None:
    left, right = (Case(TARGETS["csv"], tmp_path / name) for name in "ab")
    numbers = range(30)
    assert [left.content(1, n) for n in numbers] == [right.content(1, n) for n in numbers]
    assert [left.content(1, n) for n in numbers] != [left.content(2, n) for n in numbers]


def test_mutations_change_contents_and_bound_their_size() -> None:
    import random

    contents = {mutate([b"a: 1\n"], [b"b"], random.Random(n)) for n in range(200)}
    assert len(contents) > 150
    assert max(map(len, contents)) <= 2**18


def test_command_prints_a_table_and_runs_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["text", "--cases=20", f"--found={tmp_path}"]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[:2] == ["text", "20"]
    (tmp_path / "x").write_bytes(b"a\n")
    assert main(["text", f"--case={tmp_path / 'x'}"]) == 0
    assert capsys.readouterr().out == "valid\n"
