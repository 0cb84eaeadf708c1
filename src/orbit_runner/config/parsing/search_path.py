"""Finds experiments and config files: in the working directory first, then the shipped ones."""

from __future__ import annotations

import os
from pathlib import Path

from orbit_runner.config.errors import ConfigError, Origin
from orbit_runner.errors import unknown_name_message
from orbit_runner.run_directory.paths import CONFIG, RunDirectory
from orbit_runner.storage.paths import PathError, is_remote

SUFFIXES = (".yaml", ".yml", ".gin", ".json")
_EXPECTED = "expected an experiment, a file or a run directory"
_PACKAGE = Path(__file__).resolve().parents[2]


def shipped_root() -> Path:
    """Returns the directory that contains the shipped `experiments/` and `configs/`."""
    if (_PACKAGE / "experiments").is_dir():
        return _PACKAGE
    return _PACKAGE.parent.parent


def experiment_files() -> dict[str, Path]:
    """Returns experiment files by name. Those in the working directory take precedence."""
    files: dict[str, Path] = {}
    for root in (Path.cwd(), shipped_root()):
        for path in sorted((root / "experiments").glob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                files.setdefault(path.stem, path)
    return dict(sorted(files.items()))


def fragment_files() -> dict[str, Path]:
    """Returns the files below `configs/`, by the name that `--config_file` accepts.

    The files in `configs/sweeps/` and `configs/clusters/` are not among them: they are for `runner
    sweep`, and for clusters.
    """
    files: dict[str, Path] = {}
    for root in (Path.cwd(), shipped_root()):
        configs = root / "configs"
        for path in sorted(configs.rglob("*")):
            is_fragment = path.relative_to(configs).parts[0] not in ("sweeps", "clusters")
            if path.suffix in SUFFIXES and path.is_file() and is_fragment:
                files.setdefault(path.relative_to(root).as_posix(), path)
    return dict(sorted(files.items()))


def find_experiment(name: str) -> Path:
    """Returns the file of an experiment. Raises ConfigError if it is not found.

    `name` is a name such as `digits`, a file, or a run directory.
    """
    if not name:
        raise ConfigError.of("--experiment", f"is empty; {_EXPECTED}", code="not-set")
    if is_remote(name):
        is_file = Path(name).suffix in SUFFIXES
        return find_file(name if is_file else f"{name.rstrip('/')}/{CONFIG}")
    path = Path(name)
    if names_run(name):
        return RunDirectory(path).config
    if path.suffix in SUFFIXES:
        return find_file(name)
    experiments = experiment_files()
    if name not in experiments and os.path.isdir(path):
        message = f"{name} is a directory without {CONFIG}\n{_EXPECTED}"
        raise ConfigError.of("--experiment", message, code="unknown-name")
    if name not in experiments:
        raise ConfigError.of(
            "--experiment",
            unknown_name_message("experiment", name, [*experiments]),
            code="unknown-name",
        )
    return experiments[name]


def names_run(name: str) -> bool:
    """Returns whether a name means a run directory, also if an experiment has this name."""
    return os.path.isfile(RunDirectory(Path(name)).config)


def find_file(name: str, including_dir: Path | None = None) -> Path:
    """Returns a config file. Raises ConfigError, with the directories searched, if it is not found.

    `name` is an absolute path, a path relative to the working directory or to the shipped files, or
    the URL of an object, which is copied to the local cache. `including_dir`, the directory of an
    including file, is searched first.
    """
    if is_remote(name):
        from orbit_runner.storage.staging import stage_file

        try:
            return stage_file(name)
        except PathError as error:
            raise ConfigError.of("", str(error), code=error.code) from None
    roots = [root for root in (including_dir, Path.cwd(), shipped_root()) if root is not None]
    for root in roots:
        # `os.path`, because methods of `Path` raise an error if the name is too long.
        if os.path.isfile(root / name):
            return root / name
    if any(os.path.exists(root / name) for root in roots):
        # A pipe can be read only once, but a config is read again, such as by each trial or worker.
        message = f"{name} is a directory, pipe or device, expected a regular file"
        raise ConfigError.of("", message, code="wrong-file-type")
    known = [*fragment_files(), *(f"experiments/{p.name}" for p in experiment_files().values())]
    near = unknown_name_message("file", name, known).split("\n")[0]
    searched = ", ".join(dict.fromkeys(str(root) for root in roots))
    raise ConfigError.of("", f"{near}\nsearched in: {searched}", code="missing-file")


def read_text(path: Path, label: str) -> str:
    """Returns the text of a config file, called `label` in messages.

    Raises ConfigError if the file cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"cannot be read: {error}\nsave it as UTF-8"
        raise ConfigError.of("", message, Origin(label), code="bad-syntax") from None
    except OSError as error:
        raise ConfigError.of(
            "", f"cannot be read: {error}", Origin(label), code="unreadable-file"
        ) from None
