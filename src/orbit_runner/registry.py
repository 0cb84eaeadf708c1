"""Names for tasks, networks and data sets, imported only when one is used.

An entry is a config class and an implementation, both given as `"module:name"` (or as the object
itself), so that listing and checking names imports neither them nor tensorflow:

    TASKS.register("my_task", config="my_pkg.config:MyTaskConfig", target="my_pkg.task:MyTask")
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from orbit_runner.config.problems import unknown
from orbit_runner.errors import RunnerError


@dataclasses.dataclass(frozen=True)
class Entry:
    """One name in a registry.

    Attributes:
        name: The name in configs.
        config: The config class of its section, or where to import it from.
        target: The implementation, or where to import it from.
        help: One line for `runner list`.
    """

    name: str
    config: Any
    target: Any
    help: str = ""

    def load_config(self) -> Any:
        """Imports and returns the config class.

        Raises:
            RunnerError: It cannot be imported.
        """
        return _load(self.name, self.config)

    def load(self) -> Any:
        """Imports and returns the implementation.

        Raises:
            RunnerError: It cannot be imported.
        """
        return _load(self.name, self.target)


def _load(name: str, reference: Any) -> Any:
    if not isinstance(reference, str):
        return reference
    module, _, attribute = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise RunnerError(f"{name!r} is registered as {reference}: {error}") from error


class Registry:
    """A set of named entries of one kind."""

    def __init__(self, kind: str, *, entry_point_group: str | None = None) -> None:
        """Makes an empty registry.

        Args:
            kind: What its entries are, for messages.
            entry_point_group: Entry points of installed packages that register entries when
                loaded; looked at only when a name is not known already, or when all are listed.
        """
        self.kind = kind
        self._group = entry_point_group
        self._entries: dict[str, Entry] = {}

    def register(self, name: str, *, config: Any, target: Any, help: str = "") -> Entry:
        """Adds an entry.

        Args:
            name: Its name in configs.
            config: Its config class, or `"module:name"` of it.
            target: Its implementation, or `"module:name"` of it.
            help: One line for `runner list`.

        Returns:
            The entry.

        Raises:
            RunnerError: The name is taken by something else.
        """
        entry = Entry(name, config, target, help)
        taken = self._entries.get(name)
        # The same line may run twice: by `--import` and by an entry point.
        if taken is not None and (taken.config, taken.target) != (config, target):
            raise RunnerError(f"{self.kind} {name!r} is registered already, by {taken.target}")
        self._entries[name] = entry
        return entry

    def get(self, name: str) -> Entry:
        """Returns the entry of that name.

        Raises:
            KeyError: There is none; the message names the nearest and lists all.
        """
        if name not in self._entries:
            self._load_entry_points()
        if name not in self._entries:
            raise KeyError(unknown(self.kind, name, list(self._entries)))
        return self._entries[name]

    def entries(self) -> list[Entry]:
        """Returns all entries, those of installed packages included, sorted by name."""
        self._load_entry_points()
        return [self._entries[name] for name in sorted(self._entries)]

    def _load_entry_points(self) -> None:
        group, self._group = self._group, None
        if group is None:
            return
        for point in entry_points(group=group):
            try:
                loaded: Callable[[], None] | Any = point.load()
            except (ImportError, AttributeError) as error:
                raise RunnerError(f"entry point {group}: {point.name}: {error}") from error
            if callable(loaded):
                loaded()


TASKS = Registry("task", entry_point_group="orbit_runner.tasks")
IMAGE_MODELS = Registry("model")
SOURCES = Registry("data source")

TASKS.register(
    "image_classification",
    config="orbit_runner.tasks.image_classification.config:ImageClassificationConfig",
    target="orbit_runner.tasks.image_classification.task:ImageClassificationTask",
    help="one label an image",
)
_IMAGE_CONFIGS = "orbit_runner.tasks.image_classification.config"
IMAGE_MODELS.register(
    "cnn",
    config=f"{_IMAGE_CONFIGS}:CnnConfig",
    target="orbit_runner.modeling.cnn:cnn",
    help="two convolutions and a dense layer: the small MNIST network",
)
IMAGE_MODELS.register(
    "mlp",
    config=f"{_IMAGE_CONFIGS}:MlpConfig",
    target="orbit_runner.modeling.mlp:mlp",
    help="dense layers",
)
IMAGE_MODELS.register(
    "resnet_cifar",
    config=f"{_IMAGE_CONFIGS}:ResNetCifarConfig",
    target="orbit_runner.modeling.resnet_cifar:resnet_cifar",
    help="residual networks for 32×32 images, v1 (He et al. 2015) and v2 (2016)",
)
_SOURCE = "orbit_runner.config.data:DataConfig"
for _name, _help in {
    "digits": "1,797 handwritten digits of 8×8 pixels, inside scikit-learn",
    "mnist": "MNIST, and sets in its IDX format such as Fashion-MNIST",
    "cifar10": "CIFAR-10, binary version",
    "synthetic": "constant or seeded random tensors",
}.items():
    SOURCES.register(_name, config=_SOURCE, target=f"orbit_runner.data.{_name}:load", help=_help)
SOURCES.register(
    "tfrecord",
    config=_SOURCE,
    target="orbit_runner.data.tfrecord.source:load",
    help="images of one size in TFRecord files with Model Garden's features, streamed",
)
