"""Replaces `official.core.train_utils` in drivers of Model Garden, under the same names.

Configs are parsed by this runner. Names that are not defined here are Model Garden's own.
"""

from __future__ import annotations

import json
import logging
import os
import pprint
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from official.core import train_utils as official_train_utils

from orbit_runner.config.errors import ConfigError, note_text
from orbit_runner.config.parsing.overrides import load_override
from orbit_runner.config.parsing.tree import Section
from orbit_runner.config.resolve import OFFICIAL, Request, ResolvedConfig, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import to_yaml
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.storage.paths import is_remote, strip_file_scheme
from orbit_runner.storage.staging import upload_scope
from orbit_runner.utils.files import write_atomically

if TYPE_CHECKING:
    from official.modeling.hyperparams import base_config

# Saved now, because `drop_in` may replace them later.
_official_serialize_config = official_train_utils.serialize_config
_official_remove_ckpts = official_train_utils.remove_ckpts
_SECTIONS = ("train_data", "validation_data")


def parse_configuration(
    flags_obj: object, lock_return: bool = True, print_return: bool = True
) -> base_config.Config:
    """Returns the config that a driver's flags specify.

    Later sources override earlier sources: the experiment, each `config_file`, `tpu` and
    `tf_data_service`, `params_override`.

    Args:
        flags_obj: The flags: absl's, a `ParseConfigOptions`, or any object with their attributes.
        lock_return: Whether to lock the config.
        print_return: Whether to log the config.

    Returns:
        A config of Model Garden's class.

    Raises:
        ConfigError: If a setting is invalid, or a restriction of the experiment does not hold. The
            message lists all problems of all sources.
    """
    from orbit_runner.model_garden.driver.params import remember_source, to_driver

    resolved = resolve(_build_request(flags_obj))
    config = resolved.config
    if resolved.notes:
        logging.getLogger("absl").warning(note_text(resolved.notes))
    _check_restrictions(resolved)
    params = to_driver(config)
    _set_sequence_types(params, resolved, _flag(flags_obj, "params_override"))
    if _is_set_to_empty(flags_obj, "tpu", "runtime.tpu") and params.runtime.tpu is None:
        params.runtime.tpu = ""  # If a TPU is used, it is this machine's.
    if lock_return:
        params.lock()
    if print_return:
        text = pprint.pformat(params.as_dict())
        logging.getLogger("absl").info("Final experiment parameters:\n%s", text)
    return remember_source(params, config)


def _check_restrictions(resolved: ResolvedConfig) -> None:
    from orbit_runner.model_garden.experiment import broken_restrictions

    problems = resolved.locate(broken_restrictions(resolved.config.for_task))
    if problems:
        raise ConfigError(problems)


def _set_sequence_types(
    params: base_config.Config, resolved: ResolvedConfig, override: object
) -> None:
    """Makes each sequence that the user set a list or a tuple, as Model Garden does.

    Model Garden keeps the type that was given, and YAML and JSON have only lists. The type is
    visible in `params.yaml`, where a tuple needs a tag.
    """
    tuples = set(_tuple_paths(override, "")) if isinstance(override, Mapping) else set()
    for path, origin in resolved.origins.items():
        section = params
        *above, name = path.split(".")
        for part in above:
            section = getattr(section, part, None)
        value = getattr(section, "__dict__", {}).get(name)
        is_registered = origin.layer < 1
        if is_registered or not isinstance(value, (list, tuple)) or any(map(_is_config, value)):
            continue
        vars(section)[name] = tuple(value) if path in tuples else list(value)


def _is_config(value: object) -> bool:
    return hasattr(value, "as_dict")


def _tuple_paths(values: Mapping[str, object], prefix: str) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _tuple_paths(value, f"{prefix}{name}.")
        elif isinstance(value, tuple):
            yield f"{prefix}{name}"


def _build_request(flags_obj: object) -> Request:
    experiment = _flag(flags_obj, "experiment")
    if not experiment:
        raise RunnerError(
            "is not set; see `runner list --official`", path="--experiment", code="not-set"
        )
    overridden = _overridden_paths(flags_obj)
    return Request(
        experiment=OFFICIAL + str(experiment).removeprefix(OFFICIAL),
        config_files=_override_texts(_flag(flags_obj, "config_file")),
        params_overrides=_override_texts(_flag(flags_obj, "params_override")),
        # Flags have the highest priority here, but not in Model Garden, where `params_override`
        # does.
        flags=tuple(
            setting
            for setting in _flag_settings(flags_obj)
            if not _is_covered(setting[1], overridden)
        ),
    )


def _flag(flags_obj: object, name: str) -> Any:
    return getattr(flags_obj, name, None)


def _override_texts(value: Any) -> tuple[str, ...]:
    if not value:
        return ()
    if isinstance(value, Mapping):
        return (json.dumps(value),)
    return (str(value),) if isinstance(value, (str, os.PathLike)) else tuple(map(str, value))


def _flag_settings(flags_obj: object) -> Iterator[tuple[str, str, str]]:
    tpu = _flag(flags_obj, "tpu")
    service = _flag(flags_obj, "tf_data_service")
    if tpu:
        yield "--tpu", "runtime.tpu", str(tpu)
    for section in _SECTIONS if service else ():
        yield "--tf_data_service", f"task.{section}.tf_data_service_address", str(service)


def _is_set_to_empty(flags_obj: object, name: str, path: str) -> bool:
    return _flag(flags_obj, name) == "" and not _is_covered(path, _overridden_paths(flags_obj))


def _overridden_paths(flags_obj: object) -> list[str]:
    """Returns the dotted paths that `params_override` sets, [] if it cannot be parsed."""
    try:
        return [
            path
            for text in _override_texts(_flag(flags_obj, "params_override"))
            for path in _leaf_paths(load_override(text, "--params_override", 0), "")
        ]
    except ConfigError:
        return []  # Resolving the config reports the error.


def _leaf_paths(section: Section, prefix: str) -> Iterator[str]:
    for name, node in section.children.items():
        if isinstance(node, Section):
            yield from _leaf_paths(node, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _is_covered(path: str, overridden: list[str]) -> bool:
    return any(path == parent or path.startswith(f"{parent}.") for parent in overridden)


def serialize_config(params: ExperimentConfig | base_config.Config, model_dir: str) -> None:
    """Writes the config to `params.yaml`, which Model Garden can load.

    Args:
        params: The experiment config, of Model Garden's class or of this runner.
        model_dir: The run directory. It is created if it does not exist.

    Raises:
        RunnerError: If `model_dir` is None.
    """
    if model_dir is None:
        raise RunnerError(
            "is not set; set it to the run directory", path="--model_dir", code="not-set"
        )
    if is_remote(model_dir):
        with upload_scope(model_dir, "model_dir") as directory:
            serialize_config(params, str(directory))
        return
    model_dir = strip_file_scheme(model_dir)
    if isinstance(params, ExperimentConfig):
        if not params.is_official:
            write_atomically(Path(model_dir) / "params.yaml", to_yaml(params))
            return
        from orbit_runner.model_garden.driver.params import to_driver

        params = to_driver(params)
    _official_serialize_config(params, model_dir)


def remove_ckpts(model_dir: str) -> None:
    """Removes the checkpoints of a run, both this runner's and Model Garden's, so that it restarts.

    Args:
        model_dir: The run directory.
    """
    _official_remove_ckpts(model_dir)
    shutil.rmtree(RunDirectory(Path(model_dir)).checkpoints, ignore_errors=True)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(official_train_utils, name)
