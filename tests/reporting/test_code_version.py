"""The git revision and the uncommitted changes of the current directory, in real repositories."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.run_directory.code_version import (
    keep_patch,
    read_code_version,
)
from tests.support.repository import KEY, LATIN, applied, commit, edit, files_of, git, shown


def _stage(root: Path) -> None:
    edit(root)
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


def _convert(root: Path) -> None:
    git("config", "core.autocrlf", "input", cwd=root)
    git("config", "filter.pointer.clean", "echo pointer", cwd=root)
    (root / ".git/info/attributes").write_text("*.json filter=pointer\n*.ini -diff\n")
    (root / "windows.py").write_bytes(b"a = 1\r\n")
    (root / "net.json").write_text("{}\n")
    (root / "net.ini").write_text("[net]\n")


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
        edit, _stage, _rename, _rename_in_index, _name_strangely, _end_strangely, _change_modes,
        _link, _remove_from_index, _intend_to_add, _convert, _configure,
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
    edit(repository)
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
    edit(repository)
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


@pytest.mark.slow
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
