"""A git repository, and the files in it, for tests of the recorded code version."""

import os
import stat
import subprocess
from pathlib import Path

from orbit_runner.run_directory.code_version import CodeVersion

IDENTITY = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]


def git(*arguments: str, cwd: Path) -> str:
    command = ["git", *IDENTITY, *arguments]
    completed = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.strip()


def commit(cwd: Path) -> None:
    git("add", "--all", cwd=cwd)
    git("commit", "-q", "-m", "all", cwd=cwd)


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


def edit(root: Path) -> None:
    (root / "pkg/model.py").write_text("depth = 2\n")
    (root / "notes.txt").unlink()
