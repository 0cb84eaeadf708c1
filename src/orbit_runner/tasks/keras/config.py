"""Config of the task that trains any Keras model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from orbit_runner.config.schema.base import NO_ARGUMENTS, Config, FrozenMapping, config_class, field
from orbit_runner.config.schema.data import SyntheticConfig, source_field
from orbit_runner.config.schema.experiment import TaskConfig
from orbit_runner.config.schema.weights import DATA_LOCATION, METRICS
from orbit_runner.config.signatures import (
    Signature,
    argument_problems,
    declared_parameters,
    literal_defaults,
    reference_problem,
)
from orbit_runner.errors import unknown_name_message
from orbit_runner.registry import ARRAY_SOURCES
from orbit_runner.tasks.imbalance.config import (
    MixedDataConfig,
    class_weights_field,
    value_problems,
)
from orbit_runner.tasks.keras.by_output import (
    loss_problems,
    output_metric_problems,
    weight_problems,
)
from orbit_runner.tasks.keras.keras_names import is_passed_function, layer_problems

_FILE_SUFFIX = ".keras"
SECTIONS = ("train_data", "validation_data")
_NO_IMAGES = "the function that returns the arrays can augment them"
NO_SPLIT = "set task.validation_split, or name other arrays in validation_data"
_NO_SYNTHETIC = "name a function that returns random arrays"
_NO_DIRECTORY = "set input_path, with its directory"
# The sources that can be in a mixture.
_MIXTURE_SOURCES = ("arrays", "npz")


@config_class
class KerasModelConfig(Config):
    """A Keras model: a function that builds it, a file, or a list of layers."""

    shorthand: ClassVar[str] = "build"
    build: str = field("", help="function that returns the model, with its module: my_nets:build")
    arguments: Mapping[str, Any] = field(
        factory=lambda: NO_ARGUMENTS,
        help="keyword arguments of the function; those with plain defaults are filled in",
    )
    file: str = field(
        "",
        path="file",
        weights=DATA_LOCATION,
        added_later=True,
        help="`.keras` file of the model and its initial weights, instead of a function",
    )
    custom_objects: Mapping[str, Any] = field(
        factory=lambda: NO_ARGUMENTS,
        added_later=True,
        help="classes and functions of your own in the file: {MyLayer: my_package.layers:MyLayer}",
    )
    digest: str = field(
        "", added_later=True, help="SHA-256 of a model that Python code passed, with its weights"
    )
    layers: list[str | Mapping[str, Any]] | None = field(
        None, help="layers of a sequential model, instead of a function: [Flatten, {Dense: {…}}]"
    )

    def __post_init__(self) -> None:
        """Adds the defaults of the function, so that `config.yaml` records them.

        A name that ends with `.keras` is that of a file.
        """
        if self.build.endswith(_FILE_SUFFIX) and not self.file:
            object.__setattr__(self, "file", self.build)
            object.__setattr__(self, "build", "")
        signature = _signature_of(self.build)
        if isinstance(signature, Signature):
            filled = FrozenMapping({**literal_defaults(signature), **self.arguments})
            object.__setattr__(self, "arguments", filled)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) for a model that is missing or defined twice."""
        given = [name for name in ("build", "file", "digest", "layers") if getattr(self, name)]
        if self.layers is not None and (self.build or self.arguments):
            yield "layers", f"{'build' if self.build else 'arguments'} is set, too; remove one"
        elif len(given) > 1:
            yield given[1], f"{given[0]} is set, too; remove one"
        elif self.custom_objects and not self.file:
            yield "custom_objects", "has no effect without file; remove it"
        elif self.file or self.digest:
            yield from self._given_problems()
        elif self.layers is not None:
            if not self.layers:
                yield "layers", "got [], expected at least one layer"
            for index, layer in enumerate(self.layers):
                for message in layer_problems(layer):
                    yield f"layers[{index}]", message
        elif not self.build:
            yield "build", "is not set; set it, file or layers"
        elif problem := reference_problem(self.build, "my_package.nets:build"):
            yield "build", problem

    def _given_problems(self) -> Iterator[tuple[str, str]]:
        if self.arguments:
            yield "arguments", "has no effect without build; remove it"
        if self.file and not self.file.endswith(_FILE_SUFFIX):
            yield (
                "file",
                f"got {self.file!r}, expected a .keras file\nload the model with Keras, and save "
                "it with model.save('model.keras')",
            )
        for name, reference in self.custom_objects.items():
            if problem := reference_problem(str(reference), "my_package.layers:MyLayer"):
                yield f"custom_objects.{name}", problem

    def preflight(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) for a function or file that does not exist, wrong arguments."""
        yield from _call_problems(self.build, self.arguments, "build")
        if self.file and "://" not in self.file and not Path(self.file).expanduser().is_file():
            yield "file", f"there is no file {self.file!r}"


@config_class
class KerasDataConfig(MixedDataConfig):
    """Arrays of inputs and labels, and their input pipeline."""

    source: str = source_field(ARRAY_SOURCES)
    function: str = field(
        "", help="`source: arrays`: function that returns the arrays: my_package.data:load"
    )
    arguments: Mapping[str, Any] = field(
        factory=lambda: NO_ARGUMENTS, help="`source: arrays`: keyword arguments of the function"
    )
    digest: str = field("", help="`source: memory`: SHA-256 of arrays that Python code passed")
    features: Mapping[str, Any] = field(
        factory=lambda: NO_ARGUMENTS, help="`source: memory`: shapes and types of these arrays"
    )
    data_dir: str = field("", help="directory of the dataset files", unsupported=_NO_DIRECTORY)
    split: str = field("", help="part of the dataset", unsupported=NO_SPLIT)
    augment: str = field("none", help="image augmentation", unsupported=_NO_IMAGES)
    augment_padding: int = field(
        4, help="pixels of padding around an image", unsupported=_NO_IMAGES
    )
    synthetic: SyntheticConfig = field(
        factory=SyntheticConfig, help="synthetic dataset", unsupported=_NO_SYNTHETIC
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields settings that are missing, unknown or without effect."""
        yield from super().problems()
        known = [entry.name for entry in ARRAY_SOURCES.entries()]
        if self.source and self.source not in known:
            yield "source", unknown_name_message("data source", self.source, known)
            return
        for number, source in enumerate(self.mixture):
            name = source.source or self.source
            if name not in _MIXTURE_SOURCES:
                message = unknown_name_message("data source", name, _MIXTURE_SOURCES)
                yield f"mixture[{number}].source", message
        if self.function and (problem := reference_problem(self.function, "my_package.data:load")):
            yield "function", problem

    def preflight(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) for a function that does not exist, or wrong arguments."""
        yield from _call_problems(self.function, self.arguments, "function")


def _training_data() -> KerasDataConfig:
    return KerasDataConfig(is_training=True)


def _validation_data() -> KerasDataConfig:
    return KerasDataConfig(is_training=False, drop_remainder=False)


@config_class
class KerasConfig(TaskConfig):
    """Training of any Keras model on arrays."""

    model: KerasModelConfig = field(
        factory=KerasModelConfig, help="the model, or the function that builds it"
    )
    train_data: KerasDataConfig = field(factory=_training_data, help="training data")
    validation_data: KerasDataConfig = field(factory=_validation_data, help="validation data")
    validation_split: float = field(
        0.0,
        ge=0.0,
        lt=1.0,
        help="fraction of the training data that is held out for validation, chosen by a hash of "
        "the index",
    )
    loss: str | list[str | Mapping[str, Any] | None] | Mapping[str, Any] = field(
        "",
        help="loss of Keras, such as mse, {name: huber, delta: 0.5} or my_package:loss, or one for "
        "each output: {price: mse, count: poisson}; by default from labels and outputs, if they "
        "leave no choice",
    )
    loss_weights: list[float] | Mapping[str, Any] = field(
        (),
        added_later=True,
        help="weight of the loss of each output in the sum: {price: 0.5}, or a list; by default 1",
    )
    class_weights: str | Mapping[str, Any] = class_weights_field()
    metrics: list[str | Mapping[str, Any] | list[str | Mapping[str, Any]]] | Mapping[str, Any] = (
        field(
            (),
            weights=METRICS,
            added_later=True,
            help="metrics of Keras, such as accuracy, {name: f1_score, average: macro}, or "
            "classes; or a list for each output: {kind: [accuracy]}",
        )
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields settings that are missing or contradict each other."""
        yield from super().problems()
        if not self.train_data.source:
            known = ", ".join(entry.name for entry in ARRAY_SOURCES.entries())
            yield "train_data.source", f"is not set\nallowed: {known}"
        if self.validation_split and self.validation_data.source:
            yield "validation_split", "validation_data.source is set, too; remove one"
        elif self.validation_split and not self.validation_data.global_batch_size:
            yield "validation_data.global_batch_size", "got 0, allowed: at least 1"
        yield from loss_problems(self.loss)
        yield from weight_problems(self.loss_weights)
        yield from value_problems("class_weights", self.class_weights)
        yield from output_metric_problems(self.metrics)


def _signature_of(reference: str) -> Signature | str | None:
    if reference_problem(reference, "") or is_passed_function(reference):
        return None
    from orbit_runner.tasks.keras.passed_objects import script_problem

    return script_problem(reference) or declared_parameters(reference)


def _call_problems(
    reference: str, arguments: Mapping[str, object], name: str
) -> Iterator[tuple[str, str]]:
    signature = _signature_of(reference)
    if isinstance(signature, str):
        yield name, signature
    elif signature is not None:
        for argument, message in argument_problems(signature, arguments, reference):
            yield f"arguments.{argument}", message
