"""Mirrors Model Garden's config classes as frozen, typed classes with the same field names.

Model Garden's classes check only names, and not all of them. Types are therefore taken from
annotations and widened to fit the actual values.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Union

from official.modeling.hyperparams import base_config, oneof

from orbit_runner.config.declarations import path_kind
from orbit_runner.config.parsing.conversion import Mismatch, convert
from orbit_runner.config.schema.base import Config, OneOf, config_class

_HELP = "a Model Garden setting"
_SCALARS = (str, int, float, bool, type(None))
_LISTS = (list, tuple, collections.abc.Sequence)


@config_class
class OfficialSection(Config):
    """A mirrored section, with defaults for what the runner reads from data sections."""

    global_batch_size: ClassVar[int] = 0
    drop_remainder: ClassVar[bool] = False
    is_training: ClassVar[bool | None] = None
    enable_tf_data_service: ClassVar[bool] = False
    tf_data_service_address: ClassVar[str | None] = None
    absent: ClassVar[Mapping[str, str]] = types.MappingProxyType(
        {"exclude": "is not supported by Model Garden's pipelines, whose order is not computed"}
    )


def mirror(config: object, *, fixed: bool = False) -> Any:
    """Returns the mirror of a value of Model Garden: a config, a scalar, or a list of these.

    Configs become configs of the mirroring class, lists become tuples, and configs without a fixed
    shape become mappings. If `fixed`, a plain `hyperparams.Config` has exactly the settings that it
    holds.
    """
    if isinstance(config, base_config.Config):
        if _is_free_form(config, fixed=fixed):
            return types.MappingProxyType(to_plain(config))
        return mirror_config(config, fixed=fixed)
    if isinstance(config, (list, tuple)):
        return tuple(mirror(item) for item in config)
    return config


def mirror_config(
    config: base_config.Config, bases: tuple[type[Config], ...] = (), *, fixed: bool = False
) -> Any:
    """Returns the mirror of a config of Model Garden that has a fixed shape.

    `bases` are the base classes of its class; if empty, they depend on the kind of config. If
    `fixed`, a plain `hyperparams.Config` has exactly the settings that it holds.
    """
    values = {name: mirror(value, fixed=fixed) for name, value in _values(config).items()}
    kind: Any = type(config)
    cls = mirror_class(kind, _extras(config), bases, _misfit_types(kind, values))
    known = {f.name for f in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in values.items() if name in known})


def to_plain(config: object) -> Any:
    """Returns a config of Model Garden as nested dicts, lists and scalars."""
    if isinstance(config, base_config.Config):
        return {name: to_plain(value) for name, value in _values(config).items()}
    return [to_plain(item) for item in config] if isinstance(config, (list, tuple)) else config


def type_signature(value: object) -> tuple[type, object]:
    """Returns a hashable value that is equal for equal values of equal types, at any depth."""
    if isinstance(value, base_config.Config):
        items = ((name, type_signature(item)) for name, item in _values(value).items())
        return type(value), tuple(items)
    if isinstance(value, (list, tuple)):
        return type(value), tuple(type_signature(item) for item in value)
    return type(value), repr(value)


def nested_classes(config: base_config.Config) -> Iterator[type]:
    """Yields the classes of a config of Model Garden and of all its nested sections."""
    yield type(config)
    for value in _values(config).values():
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, base_config.Config):
                yield from nested_classes(item)


@functools.cache
def mirror_class(
    cls: Any,
    extras: tuple[str, ...] = (),
    bases: tuple[type[Config], ...] = (),
    wider: tuple[tuple[str, object], ...] = (),
) -> type[Config]:
    """Returns a frozen config class that mirrors a class of Model Garden, with the same defaults.

    `extras` are names that an instance has in addition to its fields, and `wider` are pairs of a
    field name and another type that the field accepts. If `bases` is empty, the base classes depend
    on the kind of class.
    """
    bases = bases or ((OneOf,) if issubclass(cls, oneof.OneOfConfig) else (OfficialSection,))
    hints = _hints(cls)
    more = dict(wider)
    specs: list[tuple[str, object, object]] = [
        (
            name,
            _union_of(hints[name], more[name]) if name in more else hints[name],
            _field(name, value),
        )
        for name, value in _defaults(cls).items()
        if name in hints
    ]
    specs += [(name, Any, _field(name, None)) for name in extras]
    mirrored_class = dataclasses.make_dataclass(
        cls.__name__, specs, bases=bases, frozen=True, kw_only=True, eq=bases[0] is not OneOf,
        namespace={"__doc__": f"{cls.__module__}.{cls.__qualname__}", "mirrors": cls},
    )  # fmt: skip
    mirrored_class.__module__ = __name__
    return mirrored_class


def extra_fields(
    config: base_config.Config, base: type[Config]
) -> list[tuple[str, object, object]]:
    """Returns (name, type, dataclass field) of each field of a config that `base` does not have.

    Only the names are compared.
    """
    known = {*base.garden_only, *(f.name for f in dataclasses.fields(base))}
    cls: Any = type(config)
    hints = _hints(cls)
    declared = [
        (name, hints[name], _field(name, value))
        for name, value in _defaults(cls).items()
        if name not in known and name in hints
    ]
    # A plain `hyperparams.Config` declares no fields and has whatever it was created with.
    undeclared = [
        (name, Any, _field(name, mirror(getattr(config, name), fixed=True)))
        for name in _extras(config)
        if name not in known
    ]
    return declared + undeclared


@functools.cache
def _hints(cls: type[base_config.Config]) -> dict[str, object]:
    hints = typing.get_type_hints(cls)
    defaults = _values(cls())
    return {name: _hint(hints[name], value) for name, value in defaults.items() if name in hints}


@functools.cache
def _defaults(cls: type[base_config.Config]) -> dict[str, object]:
    return {name: mirror(value) for name, value in _values(cls()).items()}


def _misfit_types(cls: Any, values: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    """Returns (name, type) of the fields whose value in an experiment does not fit their type."""
    hints = _hints(cls)
    return tuple(
        (name, _type_of_value(value))
        for name, value in values.items()
        if name in hints and not isinstance(value, Config) and not _fits(value, hints[name])
    )


def _fits(value: object, hint: object) -> bool:
    try:
        convert(value, hint)
    except Mismatch:
        return False
    return True


def _field(name: str, default: object) -> object:
    metadata = {"help": _HELP, "merged": True, "path": path_kind(name)}
    return dataclasses.field(default_factory=lambda: default, metadata=metadata)


def _values(config: base_config.Config) -> dict[str, object]:
    reserved = config.RESERVED_ATTR
    return {name: value for name, value in vars(config).items() if name not in reserved}


def _extras(config: base_config.Config) -> tuple[str, ...]:
    # Other attributes of a `OneOfConfig` are never read, because only a block can be chosen.
    names = {f.name for f in dataclasses.fields(config)}
    extras = tuple(name for name in _values(config) if name not in names)
    return () if isinstance(config, oneof.OneOfConfig) else extras


def _is_free_form(config: base_config.Config, *, fixed: bool = False) -> bool:
    """Returns whether a config has no fixed shape: it is bare, or a name is not an identifier."""
    is_bare = type(config) is base_config.Config and not fixed
    return is_bare or not all(n.isidentifier() for n in _extras(config))


def _hint(hint: object, value: object) -> object:
    """Returns the type of a setting, widened to accept its own default."""
    converted_hint = _convert_hint(hint)
    if isinstance(value, base_config.Config):
        return Mapping[str, Any] if _is_free_form(value) else converted_hint
    fits = _fits(mirror(value), converted_hint)
    return converted_hint if fits else _union_of(converted_hint, _type_of_value(value))


def _type_of_value(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return list[Any]
    return type(value) if isinstance(value, _SCALARS) else Any  # also for a mapping


def _convert_hint(hint: object) -> object:
    origin = typing.get_origin(hint)
    options = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union_of(*(_convert_hint(option) for option in options))
    if origin in _LISTS:
        items = [_convert_hint(option) for option in options if option is not Ellipsis]
        return types.GenericAlias(list, (_union_of(*items),))
    if isinstance(hint, type) and issubclass(hint, base_config.Config):
        return Mapping[str, Any] if hint is base_config.Config else mirror_class(hint)
    if hint in _LISTS:
        return list[Any]
    if hint in (dict, Mapping) or origin in (dict, collections.abc.Mapping):
        return Mapping[str, Any]
    return hint if hint in _SCALARS else Any


def _union_of(*hints: object) -> object:
    # Not `a | b`, which generic types and `Any` do not support in Python 3.10.
    return Union[tuple(hints) or (Any,)]  # noqa: UP007
