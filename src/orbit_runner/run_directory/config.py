"""Which config made a checkpoint: fingerprints, and the settings behind them.

The record of a checkpoint contains the fingerprint of its config. The settings behind each
fingerprint are kept in `checkpoints/configs/`, so that a later version of this package, which has
more settings, can compare them one by one. Runs of versions that did not keep them have a
`config.yaml` that names each setting of that version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.fingerprint import (
    has_same_settings,
    identity_settings,
    is_data_location,
    is_fingerprint_of,
    settings_fingerprint,
)
from orbit_runner.config.parsing.tree import Section
from orbit_runner.config.parsing.yaml_files import load_file
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import flat_settings, inline_yaml
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.branch import read_branch
from orbit_runner.run_directory.data_record import has_record
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import read_json_object, write_atomically

_MOST_CHANGES = 12


def is_made_with(run: Path, fingerprint: str, config: ExperimentConfig) -> bool:
    """Returns whether a checkpoint was made with `config`, as far as its weights are concerned.

    `fingerprint` is that in the checkpoint's record; "" if it has none, which matches any
    config. The steps that a branch has in common with another run were made with the config of that
    run, so its config matches, too.
    """
    if not fingerprint or is_fingerprint_of(fingerprint, config):
        return True
    branch = read_branch(run)
    if branch is not None and fingerprint in branch.configs:
        return True
    settings = _kept_settings(run, fingerprint)
    if settings is None:
        settings = written_settings(run)
        if settings is None or settings_fingerprint(settings) != fingerprint:
            return False
    if _has_other_data_directory(settings, config) and not has_record(run):
        return False  # Without a record, it is unknown whether the data is the same.
    return has_same_settings(settings, config)


def check_same_config(run: Path, fingerprint: str, config: ExperimentConfig) -> None:
    """Raises `RunnerError` if the latest checkpoint of a run was made with a different config.

    `fingerprint` is that in the checkpoint's record.
    """
    if is_made_with(run, fingerprint, config):
        return
    accepted = written_settings(run)
    if accepted is not None and has_same_settings(accepted, config):
        return  # The run was resumed with this config, and stopped before it saved a checkpoint.
    before = _kept_settings(run, fingerprint)
    lines = [] if before is None else [*_changes(before, identity_settings(config))]
    raise RunnerError(
        f"{run} contains a run with a different config{':' if lines else ''}\n"
        + "".join(f"  {line}\n" for line in lines[:_MOST_CHANGES])
        + "use another --model_dir, or --resume=override to resume with the new config "
        '(in Python: model_dir, resume="override")',
        code="other-config",
    )


def _changes(before: dict[str, object], now: dict[str, object]) -> Iterator[str]:
    for path in sorted({*before, *now}):
        if before.get(path) != now.get(path):
            old, new = (inline_yaml(values.get(path)) for values in (before, now))
            yield f"{path}: {old} → {new}"


def _has_other_data_directory(settings: dict[str, object], config: ExperimentConfig) -> bool:
    """Returns whether a data directory differs; only earlier versions kept these settings."""
    now = flat_settings(config)
    return any(
        value != now.get(path) for path, value in settings.items() if is_data_location(path, config)
    )


def keep_settings(run: Path, settings: dict[str, object]) -> None:
    """Writes settings unless they are already kept.

    They are those that `identity_settings` or `written_settings` returned.
    """
    path = _path(run, settings_fingerprint(settings))
    if not path.is_file():
        write_atomically(path, json.dumps(settings, indent=1, sort_keys=True) + "\n")


def keep_config(run: Path, config: ExperimentConfig) -> None:
    """Writes the settings of a config, and those of the `config.yaml` that it replaces."""
    # If the directory exists, they were kept when that file was written.
    if not RunDirectory(run).settings.is_dir():
        before = written_settings(run)
        if before is not None:
            keep_settings(run, before)
    keep_settings(run, identity_settings(config))


def written_settings(run: Path) -> dict[str, object] | None:
    """Returns the settings that `config.yaml` names and that can affect the weights.

    They map dotted paths to values; None if the file does not exist or does not load.
    """
    path = RunDirectory(run).config
    if not path.is_file():
        return None
    try:
        named = set(_names(load_file(path, path.name, 0)))
        config = resolve(Request(experiment=str(path))).config
    except (ConfigError, OSError):
        return None
    return {name: value for name, value in identity_settings(config).items() if name in named}


def _names(section: Section, prefix: str = "") -> Iterator[str]:
    for name, node in section.children.items():
        yield f"{prefix}{name}"
        if isinstance(node, Section):
            yield from _names(node, f"{prefix}{name}.")


def _path(run: Path, fingerprint: str) -> Path:
    return RunDirectory(run).settings / f"{fingerprint[:16]}.json"


def _kept_settings(run: Path, fingerprint: str) -> dict[str, object] | None:
    try:
        settings = read_json_object(_path(run, fingerprint))
    except (OSError, ValueError):
        return None
    return settings if settings_fingerprint(settings) == fingerprint else None
