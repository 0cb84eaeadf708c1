"""The sections `callbacks` and `trackers`, whose items may name a class of the user."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import urlsplit

from orbit_runner.config.schema.base import NO_ARGUMENTS, Config, config_class, field
from orbit_runner.errors import unknown_name_message

TENSORBOARD = "tensorboard"
# The arguments of the runner's own trackers.
ARGUMENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        TENSORBOARD: (),
        "mlflow": ("experiment_name", "run_name", "tracking_uri"),
        "wandb": ("project", "entity", "group", "name", "tags", "mode", "directory"),
    }
)
# The modules that they import. The extra of the same name installs them.
_MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"mlflow": ("mlflow", "sqlalchemy"), "wandb": ("wandb",)}
)
_WANDB_MODES = ("online", "offline")


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
        if problem := _class_name_problem(self.class_name, "my_package.MyCallback"):
            yield "class_name", problem

    def preflight(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) if the module is not found. The class is loaded later."""
        if problem := _module_problem(self.class_name):
            yield "class_name", problem


@config_class
class TrackerConfig(Config):
    """A tracker. If it takes no arguments, its name alone is sufficient."""

    shorthand: ClassVar[str] = "class_name"
    class_name: str = field(
        "",
        help="tensorboard, mlflow, wandb, or a subclass of orbit_runner.Tracker, with its module: "
        "my_package.MyTracker",
    )
    arguments: Mapping[str, Any] = field(
        factory=lambda: NO_ARGUMENTS, help="keyword arguments of the tracker"
    )

    @property
    def installation(self) -> str:
        """The command that installs what one of the runner's own trackers imports."""
        return f"pip install 'orbit-runner[{self.class_name}]'"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) for an unknown name, and for wrong arguments of a known one."""
        if self.class_name in ARGUMENTS:
            for message in self._argument_problems():
                yield "arguments", message
        elif "." not in self.class_name:
            message = unknown_name_message("tracker", self.class_name, [*ARGUMENTS])
            yield "class_name", f"{message}, or a class with its module: my_package.MyTracker"
        elif problem := _class_name_problem(self.class_name, "my_package.MyTracker"):
            yield "class_name", problem

    def preflight(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) if a module that the tracker needs is not found."""
        if self.class_name in ARGUMENTS:
            missing = [name for name in _MODULES.get(self.class_name, ()) if not _is_found(name)]
            if missing:
                yield (
                    "class_name",
                    f"{self.class_name!r} requires the package {missing[0]!r}, which is not "
                    f"installed\ninstall it: {self.installation}",
                )
        elif problem := _module_problem(self.class_name):
            yield "class_name", problem

    def _argument_problems(self) -> Iterator[str]:
        known = ARGUMENTS[self.class_name]
        for name, value in self.arguments.items():
            if name not in known:
                yield unknown_name_message(f"argument of {self.class_name}", name, known)
            elif name == "tags":
                is_list = isinstance(value, (list, tuple))
                if not is_list or not all(isinstance(tag, str) for tag in value):
                    yield f"tags: got {value!r}, expected a list of strings"
            elif not isinstance(value, str):
                yield f"{name}: got {value!r}, expected a string"
            elif name == "mode" and value not in _WANDB_MODES:
                yield f"mode: {unknown_name_message('mode', value, _WANDB_MODES)}"
            elif name == "tracking_uri" and _has_secret(value):
                yield (
                    "tracking_uri: contains a user name or password, which would be stored in the "
                    "run directory\nset the environment variable MLFLOW_TRACKING_URI instead, or "
                    "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
                )


def _is_found(module: str) -> bool:
    """Returns whether a package is installed; a directory of that name is not sufficient."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def _has_secret(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
        return bool(parts.username or parts.password)
    except ValueError:
        return False


def _class_name_problem(class_name: str, example: str) -> str:
    """Returns what is wrong with the name of a class, or "" if it has a module and a class."""
    module, _, name = class_name.rpartition(".")
    if all(part.isidentifier() for part in (*module.split("."), name)):
        return ""
    return f"got {class_name!r}, expected a module and a class: {example}"


def _module_problem(class_name: str) -> str:
    """Returns why the module of a class is not found, or "". The class is loaded later."""
    module = class_name.rpartition(".")[0]
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        return f"cannot import {module!r}: {error}"
    if spec is not None:
        return ""
    return (
        f"no module named {module!r}\n"
        "run from the directory that contains it, or add that directory to PYTHONPATH"
    )
