"""Checks values against the constraints of `field`: choices, limits, paths."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from orbit_runner.config.parsing.conversion import Mismatch, format_value
from orbit_runner.config.schema.base import FLOAT_MAX, INT_MAX, Config, OneOf
from orbit_runner.config.walk import nodes
from orbit_runner.errors import shorten, unknown_name_message
from orbit_runner.storage.paths import path_problem, scheme_of

if TYPE_CHECKING:
    from orbit_runner.config.schema.base import Metadata
    from orbit_runner.config.schema.experiment import ExperimentConfig

# The limits that `field` can declare: in words, and whether a number is within one.
LIMITS = {
    "gt": ("more than", operator.gt),
    "lt": ("less than", operator.lt),
    "ge": ("at least", operator.ge),
    "le": ("at most", operator.le),
}
_GARDEN_USE = (
    "Model Garden's pipelines can read only gs:// and local files; copy the files to either"
)


def check_choice(value: object, owner: type[OneOf]) -> None:
    """Raises Mismatch if a section has no block with this name."""
    if value is not None and value not in (*owner.choices(), *owner.unavailable):
        # LearningRateChoice: learning rate.
        words = re.sub("([A-Z])", r" \1", owner.__name__).lower().split()
        kind = " ".join(word for word in words if word != "choice")
        raise Mismatch(unknown_name_message(kind, value, owner.choices()), "not-allowed")


def check_value(value: Any, field: dataclasses.Field[object], default: object) -> None:
    """Raises Mismatch if a field does not allow a value. `default` is that of the field."""
    meta = field.metadata
    if meta.get("unsupported") and value != default:
        raise Mismatch(no_effect_message(format_value(value), meta["unsupported"]), "not-supported")
    allowed = meta.get("allowed")
    if allowed and value not in allowed:
        names = [str(option) for option in allowed if isinstance(option, str)]
        listed = ", ".join("null" if option is None else repr(option) for option in allowed)
        near = unknown_name_message("value", value, names).split("\n")[0]
        raise Mismatch(f"{near}\nallowed: {listed}", "not-allowed")
    if meta.get("subdirectory") and (problem := subdirectory_problem(value)):
        raise Mismatch(f"got {shorten(repr(value))}, {problem}", "bad-path")
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            _check_range(number, meta)


def subdirectory_problem(path: str) -> str:
    """Returns why a string cannot name a subdirectory, or "" if it can or is empty."""
    parts = path.split("/")
    if not path:
        return ""
    if path.startswith(("/", "~")) or ".." in parts or "://" in path:
        return "expected a relative path without `..`, because a directory is named after it"
    if all(part in ("", ".") for part in parts):
        return "expected a name, because a directory is named after it"
    if not path.isprintable() or any(len(part.encode()) > 255 for part in parts):
        return (
            "expected printable names of at most 255 bytes, because a directory is named after it"
        )
    return ""


def no_effect_message(value: str, reason: str) -> str:
    """Returns the message for a value that has no effect."""
    return f"got {value}, which has no effect here: {reason}"


def limits(kind: type, meta: Metadata) -> dict[str, float]:
    """Returns the limits of a number of a kind, by the keywords of `field`."""
    given = {key: meta.get(key) for key in LIMITS}
    if not meta.get("merged"):  # Model Garden's own fields have no default limits.
        widest = INT_MAX if issubclass(kind, int) else FLOAT_MAX
        given["ge"] = -widest if given["ge"] is None else given["ge"]
        given["le"] = widest if given["le"] is None else given["le"]
    return {key: limit for key, limit in given.items() if limit is not None}


def _check_range(value: float, meta: Metadata) -> None:
    if value != value:
        raise Mismatch("got NaN, allowed: a number", "out-of-range")
    for key, limit in limits(type(value), meta).items():
        words, is_within = LIMITS[key]
        if not is_within(value, limit):
            limit_text = str(limit) if isinstance(limit, int) else f"{limit:g}"
            got = shorten(repr(value), 40)
            raise Mismatch(f"got {got}, allowed: {words} {limit_text}", "out-of-range")


def path_problems(config: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, message) for each setting with a path that cannot be used."""
    for path, kind, text in _urls(config, "", ""):
        is_read = not config.official or kind == "checkpoint" or scheme_of(text) == "gs"
        if kind and (problem := path_problem(text, remote=is_read, use=_GARDEN_USE)):
            yield path, problem


def _urls(value: object, path: str, kind: str) -> Iterator[tuple[str, str, str]]:
    """Yields (dotted path, declared kind of path, path) for each string that contains URLs."""
    if isinstance(value, Config):
        for node in nodes(value, path):
            yield from _urls(node.value, node.path, node.field.metadata.get("path", ""))
    elif isinstance(value, str) and "://" in value:
        # A string may contain several paths, separated by commas.
        yield from ((path, kind, part.strip()) for part in value.split(",") if part.strip())
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _urls(item, f"{path}[{index}]", kind)
