"""Copies the values of a resolved config to a config of Model Garden's class."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from official.modeling.hyperparams import base_config

from orbit_runner.config.parsing.tree import PythonTuple
from orbit_runner.config.schema.base import Config, OneOf
from orbit_runner.model_garden.schema import mirror
from orbit_runner.tf_internals import section_class, unlock


def to_native(original: Any, config: Config) -> Any:
    """Returns an unlocked copy of a config of Model Garden with the values of `config`.

    Names that only one of the two has are ignored. Equal values are not replaced, so a tuple stays
    a tuple, and an int that is a valid float stays an int.
    """
    made = copy.deepcopy(original)
    unlock(made)
    _copy_values(made, config)
    return made


def _copy_values(target: Any, config: Config) -> None:
    for name in _used_fields(config):
        if name not in vars(target):
            continue
        value, there = getattr(config, name), vars(target)[name]
        if isinstance(value, Config) and isinstance(there, base_config.Config):
            unlock(there)
            _copy_values(there, value)
        elif value != mirror(there) or not _has_tuples(there, value):
            vars(target)[name] = _native_value(value, there, type(target), name)


def _has_tuples(there: Any, value: Any) -> bool:
    """Returns whether an equal value has a tuple wherever `value` is marked as one."""
    if not isinstance(value, tuple):
        return True
    if isinstance(value, PythonTuple) and not isinstance(there, tuple):
        return False
    return all(_has_tuples(*pair) for pair in zip(there, value, strict=True))


def _used_fields(config: Config) -> list[str]:
    # Blocks that are not chosen keep the experiment's values; nothing reads them.
    if isinstance(config, OneOf):
        return ["type", config.type] if config.type else ["type"]
    return list(config.__dataclass_fields__)


def _native_value(value: Any, there: Any, owner: Any, name: str) -> Any:
    """Returns a value as Model Garden has it: with lists and its own classes."""
    if isinstance(value, Config):
        # Sections that both packages define, such as `ema`, do not mirror a class.
        made = (getattr(value, "mirrors", None) or section_class(owner, name))()
        _copy_values(made, value)
        return made
    if isinstance(value, Mapping):
        return base_config.Config(
            {k: _native_value(v, None, owner, name) for k, v in value.items()}
        )
    if isinstance(value, tuple):
        items = [_native_value(item, None, owner, name) for item in value]
        return tuple(items) if isinstance(there, tuple) or isinstance(value, PythonTuple) else items
    return value
