"""The git revision and the uncommitted changes of the current directory, in real repositories."""

from pathlib import Path

import pytest

from orbit_runner.run_directory.code_version import keep_patch, read_code_version
from tests.support.repository import applied, commit, edit, files_of, git, shown


def _stage(root: Path) -> None:
    edit(root)
    (root / "pkg/new.txt").write_text("staged\n")
    git("add", "--all", cwd=root)
    (root / "pkg/model.py").write_text("depth = 3\n")


def _rename_in_index(root: Path) -> None:
    git("mv", "notes.txt", "memo.txt", cwd=root)


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
    ("change", "folder"),
    [(edit, ""), (_stage, "pkg"), (_rename_in_index, "pkg"), (_configure, "pkg")],
)
def test_git_apply_restores_the_uncommitted_changes(change, folder, repository, monkeypatch):
    before = files_of(repository)
    change(repository)
    monkeypatch.chdir(repository / folder)

    code = read_code_version()

    assert code.revision == git("rev-parse", "HEAD", cwd=repository)
    assert code.notes == ()
    after = files_of(repository)
    assert applied(code, repository) == after
    different = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert {shown(name) for name in different} == {*(code.changed or ())}


def test_clean_repository_has_no_patch(repository, tmp_path):
    code = read_code_version(tmp_path / "run")

    entry = keep_patch(code, tmp_path / "run")

    assert entry == {
        "revision": git("rev-parse", "HEAD", cwd=repository),
        "patch": None,
        "changed": {},
        "notes": [],
    }
    assert not (tmp_path / "run").exists()


def test_binary_and_large_files_and_secrets_are_left_out_with_a_note(repository):
    contents = {
        "binary": (b"\0\1" * 9, "a binary or large file"),
        "large": (b"x\n" * 2**19, "a binary or large file"),
        "pkg/.env": (b"PASSWORD=x\n", "a possible secret"),
        "key": (b"-----BEGIN RSA PRIVATE KEY-----\n", "a possible secret"),
        "a.environment": (b"x\n", ""),
    }
    for name, (content, _) in contents.items():
        (repository / name).write_bytes(content)
    git("add", "--all", cwd=repository)

    code = read_code_version()

    assert {*(code.changed or ())} == {*contents}
    notes = {f"not in the patch: {name}, {why}" for name, (_, why) in contents.items() if why}
    assert {*code.notes} == notes
    assert code.patch.count(b"diff --git") == 1


def test_untracked_files_are_not_in_the_patch(repository):
    (repository / "new.py").touch()

    code = read_code_version()

    assert (code.changed, code.notes, code.patch) == ({}, (), b"")


def test_committed_files_of_the_run_directory_are_not_in_the_patch(repository):
    (repository / "runs/a").mkdir(parents=True)
    (repository / "runs/a/config.yaml").write_text("1\n")
    commit(repository)
    (repository / "runs/a/config.yaml").write_text("2\n")

    assert read_code_version(Path("runs/a")).changed == {}
    assert [*(read_code_version(Path("runs/b")).changed or ())] == ["runs/a/config.yaml"]
