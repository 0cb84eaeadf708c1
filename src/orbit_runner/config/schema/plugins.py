"""The sections `callbacks` and `trackers`, whose items may name a class of the user."""

from __future__ import annotations

import importlib.util
import typing
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from orbit_runner.config.errors import Problem
from orbit_runner.config.parsing.conversion import Mismatch, convert
from orbit_runner.config.schema.base import NO_ARGUMENTS, Config, config_class, field
from orbit_runner.config.signatures import module_problem, reference_problem
from orbit_runner.errors import unknown_name_message
from orbit_runner.registry import TRACKERS

TENSORBOARD = "tensorboard"
TRACKER_NAMES = tuple(entry.name for entry in TRACKERS.registered())


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

    def problems(self) -> Iterator[Problem]:
        """Yields (field, message) if the class name has no module."""
        if problem := reference_problem(self.class_name, "my_package.MyCallback", to_class=True):
            yield Problem("class_name", problem, code="import-failed")

    def preflight(self) -> Iterator[Problem]:
        """Yields (field, message) if the module is not found. The class is loaded later."""
        if problem := module_problem(self.class_name.rpartition(".")[0]):
            yield Problem("class_name", problem, code="import-failed")


@config_class
class TrackerConfig(Config):
    """A tracker. If it takes no arguments, its name alone is sufficient."""

    shorthand: ClassVar[str] = "class_name"
    class_name: str = field(
        "",
        help=f"{', '.join(TRACKER_NAMES)}, or a subclass of orbit_runner.Tracker, with its module: "
        "my_package.MyTracker",
    )
    arguments: Mapping[str, Any] = field(
        factory=lambda: NO_ARGUMENTS, help="keyword arguments of the tracker"
    )

    @property
    def installation(self) -> str:
        """The command that installs what one of the runner's own trackers imports."""
        return f"pip install 'orbit-runner[{self.class_name}]'"

    def problems(self) -> Iterator[Problem]:
        """Yields (field, message) for an unknown name, and for wrong arguments of a known one."""
        if self.class_name in TRACKERS:
            for message in self._argument_problems():
                yield Problem("arguments", message, code="bad-arguments")
        elif "." not in self.class_name:
            message = unknown_name_message("tracker", self.class_name, TRACKER_NAMES)
            yield Problem(
                "class_name",
                f"{message}, or a class with its module: my_package.MyTracker",
                code="unknown-name",
            )
        elif problem := reference_problem(self.class_name, "my_package.MyTracker", to_class=True):
            yield Problem("class_name", problem, code="import-failed")

    def preflight(self) -> Iterator[Problem]:
        """Yields (field, message) if a module that the tracker needs is not found."""
        if self.class_name in TRACKERS:
            modules = TRACKERS.get(self.class_name).load().modules
            missing = [name for name in modules if not _is_found(name)]
            if missing:
                yield Problem(
                    "class_name",
                    f"{self.class_name!r} requires the package {missing[0]!r}, which is not "
                    f"installed\ninstall it: {self.installation}",
                    code="missing-package",
                )
        elif problem := module_problem(self.class_name.rpartition(".")[0]):
            yield Problem("class_name", problem, code="import-failed")

    def _argument_problems(self) -> Iterator[str]:
        tracker = TRACKERS.get(self.class_name).load()
        types_of_arguments = typing.get_type_hints(tracker.__init__)
        known = [name for name in types_of_arguments if name != "return"]
        correct = {}
        for name, value in self.arguments.items():
            if name not in known:
                yield unknown_name_message(f"argument of {self.class_name}", name, known)
                continue
            try:
                convert(value, types_of_arguments[name])
                correct[name] = value
            except Mismatch as error:
                yield f"{name}: {error}"
        yield from tracker.argument_problems(correct)


def _is_found(module: str) -> bool:
    """Returns whether a package is installed; a directory of that name is not sufficient."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None
