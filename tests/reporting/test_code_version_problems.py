"""What is recorded if the code version is not known, and what differs between two of them."""

import os
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.run_directory.code_version import (
    CodeVersion,
    code_differences,
    keep_patch,
    read_code_version,
)
from tests.support.repository import edit, git


def _no_repository(root: Path) -> None:
    (root / ".git").rename(root / "git")


def _no_commit(root: Path) -> None:
    _no_repository(root)
    git("init", "-q", cwd=root)


def _damaged(root: Path) -> None:
    (root / ".git/index").write_text("damaged")


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (_no_repository, "not in a git repository"),
        (_no_commit, "the git repository has no commit"),
        (_damaged, "the uncommitted changes are unknown: "),
    ],
)
def test_reason_for_a_missing_patch_is_a_note(change, note, repository):
    revision = git("rev-parse", "HEAD", cwd=repository)
    change(repository)

    code = read_code_version()

    assert code.revision == (revision if change is _damaged else None)
    assert (code.changed, code.patch) == (None, b"")
    assert code.notes[0].startswith(note)


def test_missing_git_is_a_note(repository, monkeypatch):
    monkeypatch.setenv("PATH", str(repository))

    assert read_code_version().notes == ("git is not installed",)


def test_git_that_takes_too_long_is_stopped(repository, monkeypatch):
    monkeypatch.setattr("orbit_runner.run_directory.code_version._MAX_SECONDS", 1.0)
    (repository / ".gitattributes").write_text("*.txt filter=slow\n")
    git("config", "filter.slow.clean", "sleep 5", cwd=repository)
    (repository / "notes.txt").write_text("three\n")

    code = read_code_version()

    assert code.revision
    assert code.notes == ("the uncommitted changes are unknown: git took longer than 1 seconds",)


def test_index_of_the_repository_is_not_written(repository):
    os.utime(repository / "notes.txt", (1, 1))  # `git diff` would refresh it in the index.
    before = (repository / ".git/index").stat().st_mtime_ns

    assert read_code_version().changed == {}
    assert (repository / ".git/index").stat().st_mtime_ns == before


def test_patch_is_that_of_the_last_start_with_changes(repository):
    run = repository / "runs/a"
    entries = []
    for depth in (2, 3, 1):
        (repository / "pkg/model.py").write_text(f"depth = {depth}\n")
        entries.append(keep_patch(read_code_version(run), run))

    assert [entry["patch"] for entry in entries] == ["code.patch", "code.patch", None]
    assert [path.name for path in run.iterdir()] == ["code.patch"]
    assert b"+depth = 3\n" in (run / "code.patch").read_bytes()


def test_patch_that_cannot_be_written_is_a_note(repository):
    edit(repository)
    (repository / "runs").touch()

    entry = keep_patch(read_code_version(), repository / "runs/a")

    assert entry["patch"] is None
    assert entry["notes"][0].startswith("the patch cannot be written: ")


def _trained(code: CodeVersion, **values: Any) -> dict[str, Any]:
    return {"mode": "train", "train_steps": 20, "code": code.as_dict(), **values}


def test_differences_name_the_revision_and_the_files(repository):
    (repository / "pkg/model.py").write_text("depth = 2\n")
    before = read_code_version()
    (repository / "pkg/model.py").write_text("depth = 3\n")
    git("commit", "-q", "--allow-empty", "-m", "empty", cwd=repository)
    (repository / "new.py").touch()
    git("add", "new.py", cwd=repository)
    now = read_code_version()

    assert [*code_differences([_trained(before)], 20, before)] == []
    assert [*code_differences([_trained(before)], 20, now)] == [
        f"git revision: {str(before.revision)[:7]} → {str(now.revision)[:7]}",
        "uncommitted changes of the code: new.py, pkg/model.py",
    ]


A, B, C = (CodeVersion(revision=letter * 40, changed={}) for letter in "abc")
NOWHERE = CodeVersion(notes=("not in a git repository",))


@pytest.mark.parametrize(
    ("attempts", "now", "expected"),
    [
        ([], A, []),
        ([{"train_steps": 20}], A, []),
        ([_trained(NOWHERE)], A, []),
        ([_trained(NOWHERE)], NOWHERE, []),
        (
            [_trained(A)],
            NOWHERE,
            ["the code cannot be compared with revision aaaaaaa: not in a git repository"],
        ),
        (
            [_trained(A)],
            CodeVersion(revision="a" * 40),
            ["the uncommitted changes of the code cannot be compared"],
        ),
        ([_trained(A), _trained(B)], C, ["git revision: bbbbbbb → ccccccc"]),
        # The last start failed before it trained, or the run was complete.
        ([_trained(A), {"code": B.as_dict()}], A, []),
        ([_trained(A, outcome="done", step=20), _trained(B, outcome="done", step=20)], A, []),
        # The run was extended.
        ([_trained(A, outcome="done", step=10), _trained(B, outcome="done", step=20)], B, []),
    ],
)
def test_differences_from_the_start_that_reached_the_checkpoint(attempts, now, expected):
    assert [*code_differences(attempts, 20, now)] == expected
