"""The section `callbacks`: classes that are called at events of a run."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from orbit_runner.config.schema.base import Config, field

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallbackConfig(Config):
    """A callback. If it takes no arguments, its class name alone is sufficient."""

    shorthand: ClassVar[str] = "class_name"
    class_name: str = field(
        "", help="subclass of orbit_runner.Callback, with its module: my_package.MyCallback"
    )
    arguments: Mapping[str, Any] = field(
        factory=lambda: _NONE, help="keyword arguments of the constructor"
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) if the class name has no module."""
        module, _, name = self.class_name.rpartition(".")
        if not all(part.isidentifier() for part in (*module.split("."), name)):
            yield (
                "class_name",
                f"got {self.class_name!r}, expected a module and a class: my_package.MyCallback",
            )

    def preflight(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) if the module is not found. The class is loaded later."""
        module = self.class_name.rpartition(".")[0]
        try:
            found = importlib.util.find_spec(module)
        except (ImportError, ValueError) as error:
            yield "class_name", f"cannot import {module!r}: {error}"
            return
        if found is None:
            yield (
                "class_name",
                f"no module named {module!r}\n"
                "run from the directory that contains it, or add that directory to PYTHONPATH",
            )
