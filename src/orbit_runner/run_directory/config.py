"""Which config made a checkpoint: fingerprints, and the settings behind them.

The record of a checkpoint contains the fingerprint of its config. The settings behind each
fingerprint are kept in `checkpoints/configs/`: they are compared one by one if settings were added
since then, for example to the user's task. `read_settings` reads `config.yaml` without building a
config, and `read_setting` one of its settings, fast.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.fingerprint import (
    config_fingerprint,
    has_same_settings,
    identity_settings,
    settings_fingerprint,
)
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schedule_length import with_interval
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.branch import read_branch
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import read_json_object, write_atomically

_MOST_CHANGES = 12


def is_made_with(run: Path, fingerprint: str, config: ExperimentConfig) -> bool:
    """Returns whether a checkpoint was made with `config`, as far as its weights are concerned.

    `fingerprint` is that in the checkpoint's record; "" if it has none, which matches any
    config. The steps that a branch has in common with another run were made with the config of that
    run, so its config matches, too.
    """
    if fingerprint in ("", config_fingerprint(config)):
        return True
    branch = read_branch(run)
    if branch is not None and fingerprint in branch.configs:
        return True
    settings = _kept_settings(run, fingerprint)
    return settings is not None and has_same_settings(settings, config)


def check_same_config(run: Path, fingerprint: str, config: ExperimentConfig) -> None:
    """Raises `RunnerError` if the latest checkpoint of a run was made with a different config.

    `fingerprint` is that in the checkpoint's record.
    """
    if is_made_with(run, fingerprint, config):
        return
    # The run may have been resumed with this config, and have stopped before it saved a checkpoint.
    with contextlib.suppress(ConfigError, OSError):
        path = RunDirectory(run).config
        accepted = resolve(Request(experiment=str(path))).config if path.is_file() else None
        if accepted is not None and has_same_settings(identity_settings(accepted), config):
            return
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


def keep_config(run: Path, config: ExperimentConfig) -> None:
    """Writes the settings of a config that can affect the weights, unless they are already kept."""
    settings = identity_settings(config)
    path = _path(run, settings_fingerprint(settings))
    if not path.is_file():
        write_atomically(path, json.dumps(settings, indent=1, sort_keys=True) + "\n")


def _path(run: Path, fingerprint: str) -> Path:
    return RunDirectory(run).settings / f"{fingerprint[:16]}.json"


def _kept_settings(run: Path, fingerprint: str) -> dict[str, object] | None:
    try:
        settings = read_json_object(_path(run, fingerprint))
    except (OSError, ValueError):
        return None
    return settings if settings_fingerprint(settings) == fingerprint else None


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


def keep_interval(config: ExperimentConfig, run: Path) -> ExperimentConfig:
    """Returns the config with the interval of the records that a run has, if it is `auto`."""
    return with_interval(config, read_setting(run, "trainer.summary_interval"))


def read_setting(run: Path, path: str) -> object:
    """Returns one setting of a run, or None. Faster than `read_settings`, for many runs."""
    text = f"\n{read_config_text(run)}"
    start, end = 0, len(text)
    for depth, name in enumerate(path.split(".")):
        indent = "  " * depth
        at = text.find(f"\n{indent}{name}:", start, end)
        if at < 0:
            return None
        start = at + len(indent) + len(name) + 2
        after = re.compile(rf"\n {{0,{len(indent)}}}[^\s#]").search(text, start, end)
        end = after.start() if after else end
    try:
        return yaml.load(text[start:end], Loader=_Loader)
    except _ERRORS:
        return None


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
