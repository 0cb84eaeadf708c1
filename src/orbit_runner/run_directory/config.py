"""Which config made a checkpoint, and the settings in `config.yaml`.

The record of a checkpoint contains the fingerprint of its config. `read_settings` reads
`config.yaml` without building a config.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from orbit_runner.config.fingerprint import (
    can_affect_weights,
    config_fingerprint,
    is_data_location,
)
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schedule_length import follow_run, follow_same_run
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import LOGICAL_REPLICAS
from orbit_runner.config.schema.schedules import AUTO
from orbit_runner.config.serialize import Difference, differences
from orbit_runner.errors import RunnerError, SettingError
from orbit_runner.run_directory.branch import read_branch
from orbit_runner.run_directory.paths import RunDirectory

_MOST_CHANGES = 12


def resolve_run(
    run: Path, imports: tuple[str, ...] = (), changes: Sequence[tuple[str, str, str]] = ()
) -> ResolvedConfig:
    """Returns the config of a run, from `config.yaml`; raises `RunnerError` if it has none.

    `imports` are modules to import first, and `changes` those of settings: (flag, path, text).
    """
    path = str(RunDirectory(run).require_config())
    return resolve(Request(experiment=path, imports=imports, flags=tuple(changes)))


def is_made_with(run: Path, fingerprint: str, config: ExperimentConfig) -> bool:
    """Returns whether a checkpoint was made with `config`, as far as its weights are concerned.

    `fingerprint` is that in the checkpoint's record; "" if it has none, which matches any
    config. The steps that a branch has in common with another run were made with the config of that
    run, so its config matches, too.
    """
    if fingerprint in ("", config_fingerprint(config)):
        return True
    branch = read_branch(run)
    return branch is not None and fingerprint in branch.configs


def check_restored_config(run: Path, fingerprint: str, config: ExperimentConfig) -> None:
    """Raises an error if a run may not continue with `config` from a checkpoint.

    `fingerprint` is that in the checkpoint's record. See `check_same_settings`.
    """
    if is_made_with(run, fingerprint, config):
        return
    if not RunDirectory(run).config.is_file():
        raise _other_config_error(run, ())
    # The run may have been resumed with this config, and have stopped before it saved a checkpoint.
    check_same_settings(run, config)


def check_same_settings(run: Path, config: ExperimentConfig) -> None:
    """Raises `RunnerError` if a config gives other weights than that in `config.yaml` of a run.

    Raises `SettingError` if the number of logical replicas differs.
    """
    from orbit_runner.run_directory.data_record import find_record  # It imports NumPy.

    before = resolve_run(run).config
    if before.trainer.train_steps:
        before = follow_run(before, before.trainer.train_steps)
    now = follow_same_run(config, before)
    was = before.runtime.logical_replicas
    logical = now.runtime.logical_replicas
    if was != logical:
        raise SettingError(
            LOGICAL_REPLICAS,
            f"got {logical}, but {run} contains a run with {was}\n"
            f"allowed: {was}; or use another --model_dir",
            code="other-config",
        )
    # Without a data record, it is unknown whether another directory contains the same data.
    records_data = find_record(run)[0] is not None
    changes = [
        change
        for change in differences(before, now)
        if can_affect_weights(change.path, before)
        or can_affect_weights(change.path, now)
        or (is_data_location(change.path, now) and not records_data)
    ]
    if changes:
        raise _other_config_error(run, changes)


def _other_config_error(run: Path, changes: Sequence[Difference]) -> RunnerError:
    lines = [
        f"{run} contains a run with a different config{':' if changes else ''}",
        *(f"  {change.path}: {change.left} → {change.right}" for change in changes[:_MOST_CHANGES]),
        *(
            f"auto depends on the length of the run; to keep that of this run, set {change.left}"
            for change in changes
            if change.right == AUTO
        ),
        "use another --model_dir, or --resume=override to resume with the new config",
    ]
    return RunnerError("\n".join(lines), code="other-config")


# The parser in C is ten times as fast, but PyYAML may have been built without it.
_Loader: type[yaml.CSafeLoader] | type[yaml.SafeLoader] = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)
# PyYAML raises others than its own for values such as `!!int ""`.
_ERRORS = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)


def read_settings(run: Path) -> dict[str, object]:
    """Returns all settings of a run by dotted path; empty if the file cannot be read."""
    return parse_settings(read_config_text(run))


def parse_settings(text: str) -> dict[str, object]:
    """Returns the settings in the text of a `config.yaml`; empty if it cannot be read."""
    try:
        content = yaml.load(text, Loader=_Loader)
        return dict(flat_values(content)) if isinstance(content, dict) else {}
    except _ERRORS:
        return {}


def read_config_text(run: Path) -> str:
    """Returns the text of `config.yaml`; "" if it cannot be read."""
    try:
        return RunDirectory(run).config.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def flat_values(values: Mapping[Any, object], above: str = "") -> Iterator[tuple[str, object]]:
    """Yields (dotted path, value) of nested sections."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat_values(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
