"""The git revision and the uncommitted changes of the current directory, in real repositories."""

import hashlib
import os
import select
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.reporting.code_version import (
    CodeVersion,
    code_differences,
    keep_patch,
    read_code_version,
)

IDENTITY = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
# A name that is not UTF-8.
LATIN = os.fsdecode(b"caf\xe9.py")
# Composed, because a file that contains such a line is left out.
KEY = "-----BEGIN RSA " + "PRIVATE KEY-----\n"


def git(*arguments: str, cwd: Path) -> str:
    command = ["git", *IDENTITY, *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(cwd: Path) -> None:
    git("add", "--all", cwd=cwd)
    git("commit", "-q", "-m", "all", cwd=cwd)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository on branch `main` with one commit; the current directory."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    root = tmp_path / "repository"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg/model.py").write_text("depth = 1\n")
    (root / "notes.txt").write_text("one\ntwo\n")
    git("init", "-q", "--initial-branch=main", cwd=root)
    commit(root)
    monkeypatch.chdir(root)
    return root


def shown(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def files_of(root: Path) -> dict[str, tuple[bytes, bool]]:
    """Returns content and executable bit of each file in a work tree."""
    return {
        str(path.relative_to(root)): (
            os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes(),
            bool(path.lstat().st_mode & stat.S_IXUSR),
        )
        for path in root.rglob("*")
        if ".git" not in path.parts and (path.is_symlink() or path.is_file())
    }


def applied(code: CodeVersion, root: Path) -> dict[str, tuple[bytes, bool]]:
    """Returns the files of a clone at the recorded revision with the patch applied."""
    clone = root.parent / "clone"
    git("clone", "-q", str(root), str(clone), cwd=root)
    git("checkout", "-q", str(code.revision), cwd=clone)
    (root.parent / "code.patch").write_bytes(code.patch)
    git("apply", "--check", "../code.patch", cwd=clone)
    git("apply", "../code.patch", cwd=clone)
    return files_of(clone)


def _edit(root: Path) -> None:
    (root / "pkg/model.py").write_text("depth = 2\n")
    (root / "notes.txt").unlink()


def _stage(root: Path) -> None:
    _edit(root)
    (root / "pkg/new.txt").write_text("staged\n")
    git("add", "--all", cwd=root)
    (root / "pkg/model.py").write_text("depth = 3\n")


def _rename(root: Path) -> None:
    (root / "pkg/model.py").rename(root / "pkg/network.py")


def _rename_in_index(root: Path) -> None:
    git("mv", "notes.txt", "memo.txt", cwd=root)


def _name_strangely(root: Path) -> None:
    for name in ("a b.py", 'quo"te.py', "back\\slash.py", "new\nline.py", "tab\t.py", "é.py"):
        (root / name).write_text("x = 1\n")
    (root / LATIN).write_text("x = 1\n")
    for name in ("b c.txt", 'd"e.txt', os.fsdecode(b"f\xe9.txt")):
        (root / name).write_text("y\n")
        git("add", name, cwd=root)


def _end_strangely(root: Path) -> None:
    (root / "empty.py").touch()
    (root / "open.py").write_text("no newline")
    (root / "windows.py").write_bytes(b"a = 1\r\nb = 2\r\n")
    (root / "latin.py").write_bytes(b"# caf\xe9\x0c\n\n")
    (root / "notes.txt").write_text("one\ntwo\ndiff --git a/x b/x\nno newline")


def _change_modes(root: Path) -> None:
    (root / "run.sh").write_text("exit\n")
    (root / "run.sh").chmod(0o755)
    (root / "pkg/model.py").chmod(0o755)


def _link(root: Path) -> None:
    (root / "notes.txt").unlink()
    (root / "notes.txt").symlink_to("pkg/model.py")


def _remove_from_index(root: Path) -> None:
    git("rm", "-q", "--cached", "pkg/model.py", cwd=root)


def _intend_to_add(root: Path) -> None:
    (root / "soon.txt").write_text("soon\n")
    git("add", "--intent-to-add", "soon.txt", cwd=root)


def _configure(root: Path) -> None:
    for name, value in (
        *(("diff.noprefix", "true"), ("diff.mnemonicPrefix", "true"), ("color.ui", "always")),
        *(("core.quotePath", "false"), ("diff.external", "false"), ("diff.context", "0")),
        *(("diff.renames", "copies"), ("diff.relative", "true")),
    ):
        git("config", name, value, cwd=root)
    _rename_in_index(root)
    (root / 'quo"té.txt').write_text("x\n")
    git("add", "--all", cwd=root)
    (root / "pkg/model.py").write_text("depth = 4\n")


@pytest.mark.parametrize(
    "change",
    [
        _edit, _stage, _rename, _rename_in_index, _name_strangely, _end_strangely, _change_modes,
        _link, _remove_from_index, _intend_to_add, _configure,
    ],
)  # fmt: skip
@pytest.mark.parametrize("folder", ["", "pkg"])
def test_git_apply_restores_the_uncommitted_changes(
    change: Callable[[Path], None],
    folder: str,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = files_of(repository)
    change(repository)
    monkeypatch.chdir(repository / folder)

    code = read_code_version()

    assert code.revision == git("rev-parse", "HEAD", cwd=repository)
    assert (code.branch, dict(code.left_out), code.notes) == ("main", {}, ())
    after = files_of(repository)
    assert applied(code, repository) == after
    # A file may be removed from the index only.
    different = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert {shown(name) for name in different or ["pkg/model.py"]} == {*(code.changed or ())}


def test_empty_file_has_no_lines_in_the_patch(repository: Path) -> None:
    (repository / "empty.py").touch()

    assert b"@@" not in read_code_version().patch


def test_changed_files_are_listed_with_readable_names(repository: Path) -> None:
    _edit(repository)
    (repository / LATIN).touch()

    code = read_code_version()

    assert list(code.changed or ()) == ["notes.txt", "pkg/model.py", "caf\\xe9.py"]


def test_clean_repository_has_no_patch(repository: Path, tmp_path: Path) -> None:
    code = read_code_version(tmp_path / "run")

    entry = keep_patch(code, tmp_path / "run")

    assert entry == {
        "revision": git("rev-parse", "HEAD", cwd=repository),
        "branch": "main", "patch": None, "sha256": None, "changed": {}, "left_out": {},
        "notes": [],
    }  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_detached_head_has_no_branch(repository: Path) -> None:
    git("checkout", "-q", "--detach", cwd=repository)

    assert read_code_version().branch is None


@pytest.mark.parametrize(
    "name",
    [
        ".env", ".env.json", ".aws/config.ini", "data.csv", "notebook.ipynb", "a.txt",
        "ignored.py", "pkg/node_modules/a.json", "__pycache__/a.py", "runs/a/config.yaml",
        "old/b/config.yaml", "old/b/run.json", "old/b/checkpoints/ckpt-1.json",
        "venv/pyvenv.cfg", "venv/lib/a.py",
    ],
)  # fmt: skip
def test_other_untracked_files_are_not_in_the_patch(name: str, repository: Path) -> None:
    (repository / ".gitignore").write_text("ignored.py\n")
    commit(repository)
    for path in ("old/b/run.json", "venv/pyvenv.cfg", name):
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text('{\n "attempts": []}')

    code = read_code_version(Path("runs/a"))

    assert (code.changed, code.left_out, code.patch) == ({}, {}, b"")


def test_a_file_named_run_json_is_not_always_a_run(repository: Path) -> None:
    (repository / "run.json").write_text('{"speed": 3}')

    assert read_code_version().changed != {}


def test_committed_files_of_the_run_directory_are_not_in_the_patch(repository: Path) -> None:
    (repository / "runs/a").mkdir(parents=True)
    (repository / "runs/a/config.yaml").write_text("1\n")
    commit(repository)
    (repository / "runs/a/config.yaml").write_text("2\n")

    assert read_code_version(Path("runs/a")).changed == {}
    assert [*(read_code_version(Path("runs/b")).changed or ())] == ["runs/a/config.yaml"]


def test_run_directory_may_be_the_root_of_the_repository(repository: Path) -> None:
    _edit(repository)
    (repository / "new.py").touch()

    code = read_code_version(Path())

    assert [*(code.changed or ())] == ["notes.txt", "pkg/model.py"]
    assert "is a run directory" in code.notes[0]


def _large(root: Path) -> None:
    (root / "notes.txt").write_text("x\n" * 200_000)


def _large_untracked(root: Path) -> None:
    (root / "table.json").touch()
    os.truncate(root / "table.json", 2**42)  # It would not fit into the memory.


def _binary(root: Path) -> None:
    (root / "notes.txt").write_bytes(b"\0\1")


def _binary_untracked(root: Path) -> None:
    (root / "a.py").write_bytes(b"\0\1")


def _secret_name(root: Path) -> None:
    (root / "google_credentials.json").write_text("{}")


def _private_key(root: Path) -> None:
    (root / "account.json").write_text(KEY)


def _private_key_in_code(root: Path) -> None:
    (root / "pkg/model.py").write_text(KEY)


def _tracked_environment(root: Path) -> None:
    (root / ".env").write_text("PASSWORD=x\n")
    git("add", "--force", ".env", cwd=root)


def _linked(root: Path) -> None:
    (root / "a.py").symlink_to("pkg/model.py")


def _pipe(root: Path) -> None:
    os.mkfifo(root / "a.py")


def _nested_repository(root: Path) -> None:
    git("init", "-q", "sub", cwd=root)
    (root / "sub/a.txt").touch()
    commit(root / "sub")
    git("add", "sub", cwd=root)


@pytest.mark.parametrize(
    ("change", "name", "reason"),
    [
        (_large, "notes.txt", "larger than 256 KiB"),
        (_large_untracked, "table.json", "larger than 256 KiB"),
        (_binary, "notes.txt", "a binary file"),
        (_binary_untracked, "a.py", "a binary file"),
        (_secret_name, "google_credentials.json", "may contain a secret"),
        (_private_key, "account.json", "may contain a secret"),
        (_private_key_in_code, "pkg/model.py", "may contain a secret"),
        (_tracked_environment, ".env", "may contain a secret"),
        (_linked, "a.py", "not a regular file"),
        (_nested_repository, "sub", "a submodule"),
    ],
)
def test_file_that_is_left_out_has_a_reason(
    change: Callable[[Path], None], name: str, reason: str, repository: Path
) -> None:
    change(repository)
    (repository / "kept.py").write_text("x = 1\n")

    code = read_code_version()

    assert dict(code.left_out) == {name: reason}
    assert {*(code.changed or ())} == {name, "kept.py"}
    found = applied(code, repository)
    assert found["kept.py"] == (b"x = 1\n", False)
    assert found.keys() == {"kept.py", "notes.txt", "pkg/model.py"}


def test_named_pipe_does_not_block(repository: Path) -> None:
    _pipe(repository)

    assert read_code_version().patch == b""


def test_patch_has_at_most_one_mebibyte(repository: Path) -> None:
    for number in range(6):
        (repository / f"{number}.py").write_text("x" * 200_000)

    code = read_code_version()

    assert dict(code.left_out) == {"5.py": "the patch would be larger than 1 MiB"}
    assert len(code.patch) < 2**20
    applied(code, repository)


def test_patch_has_at_most_300_files_and_those_near_the_root_come_first(repository: Path) -> None:
    (repository / "data").mkdir()
    for number in range(400):
        (repository / f"data/{number}.py").touch()
    (repository / "train.py").touch()

    code = read_code_version()

    assert code.patch.count(b"diff --git") == 300
    assert b"train.py" in code.patch
    assert len(code.left_out) == 101
    assert {*code.left_out.values()} == {"more than 300 files"}
    assert code.notes == ("101 more changed files are not listed",)


def _no_repository(root: Path) -> None:
    (root / ".git").rename(root / "git")


def _no_commit(root: Path) -> None:
    _no_repository(root)
    git("init", "-q", cwd=root)


def _damaged(root: Path) -> None:
    (root / ".git/index").write_text("damaged")


def _merge_conflict(root: Path) -> None:
    git("checkout", "-q", "-b", "other", cwd=root)
    (root / "notes.txt").write_text("other\n")
    commit(root)
    git("checkout", "-q", "main", cwd=root)
    (root / "notes.txt").write_text("main\n")
    commit(root)
    subprocess.run(["git", *IDENTITY, "merge", "-q", "other"], cwd=root, capture_output=True)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (_no_repository, "not in a git repository"),
        (_no_commit, "the git repository has no commit"),
        (_damaged, "the uncommitted changes are unknown: "),
    ],
)
def test_reason_for_a_missing_patch_is_a_note(
    change: Callable[[Path], None], note: str, repository: Path
) -> None:
    revision = git("rev-parse", "HEAD", cwd=repository)
    change(repository)

    code = read_code_version()

    assert code.revision == (revision if change is _damaged else None)
    assert (code.changed, code.patch) == (None, b"")
    assert code.notes[0].startswith(note)


def test_changes_during_a_merge_are_in_the_patch(repository: Path) -> None:
    _merge_conflict(repository)

    assert applied(read_code_version(), repository) == files_of(repository)


def test_unexpected_error_is_a_note(repository: Path) -> None:
    (note,) = read_code_version(Path("a\0b")).notes

    assert note.startswith("the uncommitted changes are unknown: ")


def test_missing_git_is_a_note(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))

    assert read_code_version().notes == ("git is not installed",)


def test_git_that_takes_too_long_is_killed(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbit_runner.reporting.git.SECONDS", 1.0)
    os.mkfifo(repository.parent / "pipe")
    reader = os.open(repository.parent / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    (repository / ".gitattributes").write_text("*.txt filter=slow\n")
    git("config", "filter.slow.clean", "exec 9> ../pipe; sleep 300", cwd=repository)
    (repository / "notes.txt").write_text("three\n")

    code = read_code_version()

    assert code.revision
    assert code.notes == ("the uncommitted changes are unknown: git took longer than 1 seconds",)
    # The pipe is closed once the filter, which git started, has been killed as well.
    closed = select.poll()
    closed.register(reader, select.POLLHUP)
    assert closed.poll(10_000)
    os.close(reader)


def test_output_of_git_is_limited(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("reporting.git", "reporting.code_version"):
        monkeypatch.setattr(f"orbit_runner.{module}.MAX_OUTPUT", 2**20)
    (repository / "notes.txt").write_text("x\n" * 2**20)

    assert read_code_version().notes == (
        "the uncommitted changes are unknown: they are larger than 1 MiB",
    )


def test_index_of_the_repository_is_not_written(repository: Path) -> None:
    os.utime(repository / "notes.txt", (1, 1))  # `git diff` would refresh it in the index.
    before = (repository / ".git/index").stat().st_mtime_ns

    assert read_code_version().changed == {}
    assert (repository / ".git/index").stat().st_mtime_ns == before


def test_starts_with_other_changes_have_their_own_patches(repository: Path) -> None:
    run = repository / "runs/a"
    entries = []
    for depth in (2, 3, 2, 1, 3):
        (repository / "pkg/model.py").write_text(f"depth = {depth}\n")
        entries.append(keep_patch(read_code_version(run), run))

    names = [entry["patch"] for entry in entries]
    assert names == ["code.patch", "code-2.patch", "code.patch", None, "code-2.patch"]
    assert sorted(path.name for path in run.iterdir()) == ["code-2.patch", "code.patch"]
    for entry in entries[:2]:
        content = (run / entry["patch"]).read_bytes()
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()


def test_run_directory_has_at_most_20_patches(repository: Path) -> None:
    run = repository / "runs/a"
    for depth in range(2, 23):
        (repository / "pkg/model.py").write_text(f"depth = {depth}\n")
        entry = keep_patch(read_code_version(run), run)

    assert len([*run.iterdir()]) == 20
    assert (entry["patch"], entry["notes"]) == (
        None, ["the run directory already has 20 patches"],
    )  # fmt: skip
    assert entry["sha256"]


def test_patch_that_cannot_be_written_is_a_note(repository: Path) -> None:
    _edit(repository)
    (repository / "runs").touch()

    entry = keep_patch(read_code_version(), repository / "runs/a")

    assert entry["patch"] is None
    assert entry["notes"][0].startswith("the patch cannot be written: ")


def _trained(code: CodeVersion, **values: Any) -> dict[str, Any]:
    return {"mode": "train", "train_steps": 20, "code": code.as_dict(), **values}


def test_differences_name_the_revision_and_the_files(repository: Path) -> None:
    (repository / "pkg/model.py").write_text("depth = 2\n")
    (repository / "same.py").touch()
    before = read_code_version()
    (repository / "pkg/model.py").write_text("depth = 3\n")
    (repository / "new.py").touch()
    git("commit", "-q", "--allow-empty", "-m", "empty", cwd=repository)
    now = read_code_version()

    assert [*code_differences([_trained(before)], 20, before)] == []
    assert [*code_differences([_trained(before)], 20, now)] == [
        f"git revision: {str(before.revision)[:7]} → {str(now.revision)[:7]}",
        "uncommitted changes of the code: new.py, pkg/model.py",
    ]


def test_differences_name_at_most_five_files(repository: Path) -> None:
    before = read_code_version()
    for number in range(7):
        (repository / f"{number}.py").touch()

    assert [*code_differences([_trained(before)], 20, read_code_version())] == [
        "uncommitted changes of the code: 0.py, 1.py, 2.py, 3.py, 4.py and 2 more"
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
def test_differences_from_the_start_that_reached_the_checkpoint(
    attempts: list[dict[str, Any]], now: CodeVersion, expected: list[str]
) -> None:
    assert [*code_differences(attempts, 20, now)] == expected


def test_module_does_not_import_tensorflow() -> None:
    code = "import sys, orbit_runner.reporting.code_version; assert 'tensorflow' not in sys.modules"

    subprocess.run([sys.executable, "-c", code], check=True)
