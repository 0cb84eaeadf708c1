"""The section `callbacks`: classes that are called at events of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from orbit_runner.config.schema.base import NO_ARGUMENTS, Config, config_class, field
from orbit_runner.config.schema.class_names import class_name_problem, module_problem


@config_class
class CallbackConfig(Config):
    """A callback. If it takes no arguments, its class name alone is sufficient."""

    shorthand: ClassVar[str] = "class_name"
    class_name: str = field(
        "", help="subclass of orbit_runner.Callback, with its module: my_package.MyCallback"
    )
    arguments: Mapping[str, Any] = field(
        factory=lambda: NO_ARGUMENTS, help="keyword arguments of the constructor"
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) if the class name has no module."""
        if problem := class_name_problem(self.class_name, "my_package.MyCallback"):
            yield "class_name", problem

    def preflight(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) if the module is not found. The class is loaded later."""
        if problem := module_problem(self.class_name):
            yield "class_name", problem
