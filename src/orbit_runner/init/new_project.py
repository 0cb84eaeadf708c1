"""Writes a project of the user's own from the files in `templates/project`."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Mapping
from pathlib import Path

from orbit_runner.errors import RunnerError, format_list, shorten

TEMPLATE = Path(__file__).resolve().parents[1] / "templates" / "project"
# Maps each file of a project to its purpose.
FILES = {
    "README.md": "commands, and what to change",
    "Makefile": "make run, make test",
    "experiments/my_project.yaml": "the experiment: settings of the task and of training",
    "my_project/__init__.py": "the package",
    "my_project/config.py": "declares the settings of the task, and registers it",
    "my_project/data.py": "reads the CSV files",
    "my_project/task.py": "network, batches, loss and metrics",
    "data/train.csv": "120 rows to train on",
    "data/validation.csv": "30 rows to evaluate on",
    "tests/test_my_project.py": "checks that the task learns, and that a resumed run is exact",
    "pyproject.toml": "makes the package installable, and registers its task with Orbit Runner",
    ".gitignore": "excludes run directories from git",
}
# Placeholders in the template: the name of the package, and the prefix of its classes.
_PLACEHOLDERS = re.compile("my_project|MyProject")
_NAME = re.compile("[A-Za-z](?:[A-Za-z0-9_]*[A-Za-z0-9])?")
_RULE = "ASCII letters, digits and _, from a letter to a letter or digit"


def write_project(directory: Path, name: str) -> dict[str, str]:
    """Writes all files of a project, and returns the purpose of each.

    Args:
        directory: The directory; it is created if it does not exist.
        name: The name of the package.

    Raises:
        RunnerError: The directory contains files, or cannot be written.
    """
    check_empty(directory)
    texts = {
        # In this repository, a file named .gitignore would apply to the template itself.
        _fill_placeholders(path, name): _fill_placeholders(
            (TEMPLATE / path.replace(".gitignore", "gitignore")).read_text(encoding="utf-8"), name
        )
        for path in FILES
    }
    write_files(directory, texts)
    return {_fill_placeholders(path, name): purpose for path, purpose in FILES.items()}


def write_files(directory: Path, texts: Mapping[str, str]) -> None:
    """Writes texts by their paths below a directory; raises `RunnerError` if it cannot."""
    try:
        for path, text in texts.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunnerError(
            f"cannot write {error.filename or directory}: {error.strerror}\n"
            "use a directory that can be created or is empty",
            path="DIR",
            code="not-writable",
        ) from None


def package_name(directory: Path, name: str | None) -> str:
    """Returns the name of the package: `name`, or one made from the last part of `directory`.

    Raises `RunnerError` if no package can have it.
    """
    candidate = make_identifier(directory.resolve().name) if name is None else name
    if _NAME.fullmatch(candidate) and not keyword.iskeyword(candidate):
        return candidate
    got = f"got {shorten(repr(candidate))}, " if name is not None or candidate else ""
    raise RunnerError(
        f"{got}expected the name of a package\nallowed: {_RULE}, and no keyword of Python",
        path="DIR" if name is None else "--name",
        code="not-allowed",
    )


def check_empty(directory: Path) -> None:
    """Raises `RunnerError` if a directory contains files, or is something else."""
    if not os.path.lexists(directory):
        return
    try:
        # A repository that has just been created contains only .git.
        names = sorted(name for name in os.listdir(directory) if name != ".git")
    except OSError as error:
        raise RunnerError(
            f"cannot read {directory}: {error.strerror}", path="DIR", code="wrong-file-type"
        ) from None
    if names:
        raise RunnerError(
            f"{directory} contains files, which `runner init` does not overwrite\n"
            f"{format_list(names, 3)}\nuse a directory that is empty or does not exist",
            path="DIR",
            code="already-exists",
        )


def _fill_placeholders(text: str, name: str) -> str:
    """Returns a text or a path of the template with the names of the project."""
    class_name = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    names = {"my_project": name, "MyProject": class_name}
    return _PLACEHOLDERS.sub(lambda match: names[match[0]], text)


def make_identifier(text: str) -> str:
    """Returns a text as the name of a package; "" if it has no letters and digits."""
    name = re.sub(r"[\W_]+", "_", text.lower(), flags=re.ASCII).strip("_")
    return f"project_{name}" if name[:1].isdigit() else name
