"""Finds experiments and fragments: in the working folder first, then those that are shipped."""

from __future__ import annotations

from pathlib import Path

from orbit_runner.config.origins import Origin
from orbit_runner.config.problems import ConfigError, Problem, unknown

SUFFIXES = (".yaml", ".yml", ".gin", ".json")
_PACKAGE = Path(__file__).resolve().parent.parent


def shipped_root() -> Path:
    """Returns the folder that holds the shipped `experiments/` and `configs/`."""
    if (_PACKAGE / "experiments").is_dir():
        return _PACKAGE
    return _PACKAGE.parent.parent


def experiment_files() -> dict[str, Path]:
    """Returns the experiments that a name alone finds, those of the working folder first."""
    found: dict[str, Path] = {}
    for root in (Path.cwd(), shipped_root()):
        for path in sorted((root / "experiments").glob("*")):
            if path.suffix in SUFFIXES:
                found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def fragment_files() -> dict[str, Path]:
    """Returns the fragments below `configs/`, by the name that `--config_file` takes."""
    found: dict[str, Path] = {}
    for root in (Path.cwd(), shipped_root()):
        for path in sorted((root / "configs").rglob("*")):
            if path.suffix in SUFFIXES:
                found.setdefault(path.relative_to(root).as_posix(), path)
    return dict(sorted(found.items()))


def find_experiment(name: str) -> Path:
    """Finds an experiment.

    Args:
        name: A name such as `digits`, a file, or the folder of a run.

    Returns:
        Its file.

    Raises:
        ConfigError: There is none.
    """
    path = Path(name)
    if path.is_dir() and (path / "config.yaml").is_file():
        return path / "config.yaml"
    if path.suffix in SUFFIXES:
        return find_file(name)
    experiments = experiment_files()
    if name not in experiments:
        raise ConfigError([Problem("--experiment", unknown("experiment", name, [*experiments]))])
    return experiments[name]


def find_file(name: str, beside: Path | None = None) -> Path:
    """Finds a config file.

    Args:
        name: A path: absolute, from the working folder, or of a shipped file.
        beside: A further folder to look in first, that of a file that includes this one.

    Returns:
        The file.

    Raises:
        ConfigError: There is none; the message names the folders searched.
    """
    roots = [root for root in (beside, Path.cwd(), shipped_root()) if root is not None]
    for root in roots:
        if (root / name).is_file():
            return root / name
    known = [*fragment_files(), *(f"experiments/{p.name}" for p in experiment_files().values())]
    near = unknown("file", name, known).split("\n")[0]
    searched = ", ".join(dict.fromkeys(str(root) for root in roots))
    raise ConfigError([Problem("", f"{near}\nsearched from: {searched}")])


def read_text(path: Path, label: str) -> str:
    """Reads a config file.

    Args:
        path: The file.
        label: What to call it in messages.

    Returns:
        Its text.

    Raises:
        ConfigError: The file cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("", f"cannot be read: {error}", Origin(label))]) from None
