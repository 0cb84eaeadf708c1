"""Config of the task that trains any Keras model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from orbit_runner.config.errors import (
    Problem,
    conflict,
    no_effect,
    not_set,
    not_supported,
    wrong_type,
)
from orbit_runner.config.schema.base import NO_ARGUMENTS, Config, FrozenMapping, config_class, field
from orbit_runner.config.schema.data import (
    SyntheticConfig,
    source_field,
    training_field,
    validation_field,
)
from orbit_runner.config.schema.weights import DATA_LOCATION, METRICS
from orbit_runner.config.signatures import (
    argument_problems,
    declared_parameters,
    literal_defaults,
    reference_problem,
)
from orbit_runner.registry import ARRAY_SOURCES, SOURCES, TABLE_SOURCES
from orbit_runner.tasks.image_classification.data_config import (
    ImageDataConfig,
    ImageSplitConfig,
    MixupAndCutmix,
)
from orbit_runner.tasks.imbalance.config import class_weights_field, source_problems, value_problems
from orbit_runner.tasks.keras_items import item_problems, split_item
from orbit_runner.tasks.shared_config import SECTIONS, SplitTaskConfig, part_problems
from orbit_runner.tasks.tabular.data_config import TableDataConfig, names_of

if TYPE_CHECKING:
    from orbit_runner.data.tables.split import RowSplit

_FILE_SUFFIX = ".keras"
ARRAYS, TABLE, IMAGES = "arrays", "table", "images"  # the kinds of sources
NO_SPLIT = "set task.validation_split, or name other data in validation_data"
_NO_MIXING = "labels are class numbers here; use the task image_classification"
_NO_SYNTHETIC = "name a function that returns random arrays"
_NO_PARTS = "neither task.split nor task.validation_split is set"
# Settings of `split` that a kind of data does not have.
_UNREAD_BY = {ARRAYS: ("column", "hash_of", "stratified"), TABLE: ("stratified",)}
# Settings that only images have, besides those that only some of their sources read.
_OF_IMAGES = sorted(
    {*ImageDataConfig.__dataclass_fields__}
    - {*TableDataConfig.__dataclass_fields__}
    - {name for entry in SOURCES.registered() for name in entry.traits.settings}
)


_Metrics: TypeAlias = (
    list[str | Mapping[str, Any] | list[str | Mapping[str, Any]]] | Mapping[str, Any]
)


@config_class
class KerasModelConfig(Config):
    """A Keras model: a function that builds it, or a file."""

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
        help="`.keras` file of the model and its initial weights, instead of a function",
    )
    digest: str = field("", help="SHA-256 of a model that Python code passed, with its weights")

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

    def problems(self) -> Iterator[Problem]:
        """Yields (field, message) for a model that is missing or defined twice."""
        sources = [name for name in ("build", "file", "digest") if getattr(self, name)]
        if len(sources) > 1:
            yield conflict(sources[1], f"{sources[0]} is set, too; remove one")
        elif not sources:
            yield not_set("build", "is not set; set it, or file")
        elif self.arguments and not self.build:
            yield no_effect("arguments", "has no effect without build; remove it")
        elif self.file and not self.file.endswith(_FILE_SUFFIX):
            yield wrong_type(
                "file",
                f"got {self.file!r}, expected a .keras file\nload the model with Keras, and save "
                "it with model.save('model.keras')",
            )
        elif self.build and (message := reference_problem(self.build, "my_package.nets:build")):
            yield Problem("build", message, code="import-failed")

    def preflight(self) -> Iterator[Problem]:
        """Yields (field, message) for a function or file that does not exist, wrong arguments."""
        yield from _call_problems(self.build, self.arguments, "build")
        if self.file and "://" not in self.file and not Path(self.file).expanduser().is_file():
            yield Problem("file", f"there is no file {self.file!r}", code="missing-file")


@config_class
class KerasDataConfig(ImageDataConfig, TableDataConfig):
    """Arrays, a table or images, and their input pipeline."""

    source: str = source_field(ARRAY_SOURCES)
    function: str = field(
        "", help="`source: arrays`: function that returns the arrays: my_package.data:load"
    )
    arguments: Mapping[str, Any] = field(
        factory=lambda: NO_ARGUMENTS, help="`source: arrays`: keyword arguments of the function"
    )
    digest: str = field("", help="`source: memory`: SHA-256 of arrays that Python code passed")
    split: str = field(
        "",
        help="images: split of the dataset; or a part that task.split or task.validation_split "
        "defines, such as train, validation or test; by default depending on is_training",
    )
    center_crop_fraction: float | None = field(
        None, gt=0.0, le=1.0,
        help="side of the center crop as a fraction of the shorter side; null: the whole image",
    )  # fmt: skip
    mixup_and_cutmix: MixupAndCutmix | None = field(
        None, help="mixup and CutMix: mixtures of two images", unsupported=_NO_MIXING
    )
    synthetic: SyntheticConfig = field(
        factory=SyntheticConfig, help="synthetic dataset", unsupported=_NO_SYNTHETIC
    )

    def problems(self) -> Iterator[Problem]:
        """Yields settings that are missing, unknown or without effect."""
        yield from super().problems()
        kinds = {part.kind for part in (self, *self.sources) if part.source in ARRAY_SOURCES}
        if len(kinds) > 1:
            yield conflict(
                "mixture", f"got {' and '.join(sorted(kinds))}, expected sources of one kind"
            )
        if self.function and (problem := reference_problem(self.function, "my_package.data:load")):
            yield Problem("function", problem, code="import-failed")

    @property
    def kind(self) -> str:
        """What the source contains: `arrays`, `table` or `images`."""
        target = ARRAY_SOURCES.get(self.source).target
        for kind, registry in ((TABLE, TABLE_SOURCES), (IMAGES, SOURCES)):
            if target in (entry.target for entry in registry.registered()):
                return kind
        return ARRAYS

    def unread(self) -> Iterator[Problem]:
        """Yields settings that the source does not read, or that are for images."""
        yield from super().unread()
        if self._is_source_known and self.kind != IMAGES:
            message = f"is for images, and `source: {self.source}` has {self.kind}"
            yield from (no_effect(name, message) for name in _OF_IMAGES)

    def preflight(self) -> Iterator[Problem]:
        """Yields (field, message) for a function that does not exist, or wrong arguments."""
        if self.kind == ARRAYS:
            yield from _call_problems(self.function, self.arguments, "function")


@config_class
class KerasConfig(SplitTaskConfig):
    """Training of any Keras model on arrays."""

    model: KerasModelConfig = field(
        factory=KerasModelConfig, help="the model, or the function that builds it"
    )
    train_data: KerasDataConfig = training_field(KerasDataConfig)
    validation_data: KerasDataConfig = validation_field(KerasDataConfig)
    inputs: list[str] | Mapping[str, Any] | None = field(
        None,
        help="tables: columns that the model gets: a list, or a column or a list for each input; "
        "by default all others",
    )
    outputs: str | list[str] | Mapping[str, Any] = field(
        "",
        help="tables: column to predict, several columns of numbers, or a column or a list for "
        "each output",
    )
    weight_column: str = field(
        "", help="tables: column with the weight of each row, not scaled, as in `fit`"
    )
    image_size: list[int] | None = field(
        None,
        ge=1,
        help="images: height and width, and optionally channels, that all are resized to; null: "
        "those of the images",
    )
    split: ImageSplitConfig | None = field(
        None,
        help="how the training data are split into parts; without hash_of, by a hash of the index "
        "of arrays, of the inputs of a row of a table, of the path of an image",
    )
    validation_split: float = field(
        0.0,
        ge=0.0,
        lt=1.0,
        help="fraction of the training data that is held out for validation; short for split: "
        "{fractions: {validation: 0.2, train: 0.8}}",
    )
    loss: str | list[str | Mapping[str, Any] | None] | Mapping[str, Any] = field(
        "",
        help="loss of Keras, such as mse, {class_name: Huber, config: {delta: 0.5}} or "
        "my_package:loss, or one for each output: {price: mse, count: poisson}; by default that of "
        "`compile`, or from labels and outputs, if they leave no choice",
    )
    loss_weights: list[float] | Mapping[str, Any] = field(
        (),
        help="weight of the loss of each output in the sum: {price: 0.5}, or a list; by default 1",
    )
    class_weights: str | Mapping[str, Any] = class_weights_field()
    metrics: _Metrics = field(
        (),
        weights=METRICS,
        help="metrics of Keras, such as accuracy, {class_name: F1Score, config: {average: macro}}, "
        "or my_package:MyMetric; or a list for each output: {kind: [accuracy]}; by default those "
        "of `compile`",
    )
    weighted_metrics: _Metrics = field(
        (), weights=METRICS, help="the same, for metrics that use the weights of the examples"
    )
    optimizer: str | Mapping[str, Any] = field(
        "",
        help="optimizer of Keras, such as adam or {class_name: SGD, config: {learning_rate: 0.1}}, "
        "instead of trainer.optimizer_config; by default that of `compile`",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields settings that are missing or contradict each other."""
        yield from super().problems()
        known = [entry.name for entry in ARRAY_SOURCES.entries()]
        if not self.train_data.source:
            yield not_set("train_data.source", f"is not set\nallowed: {', '.join(known)}")
        for name in SECTIONS:
            if (data := getattr(self, name)).source:
                yield from source_problems(name, data, known)
        if self.validation_split and self.validation_data.source:
            yield conflict("validation_split", "validation_data.source is set, too; remove one")
        yield from self._split_problems()
        yield from self._kind_problems()
        for name in ("loss", "metrics", "weighted_metrics", "optimizer"):
            yield from item_problems(getattr(self, name), name)
        yield from value_problems("class_weights", self.class_weights)

    @property
    def kind(self) -> str:
        """What the training data contain: `arrays`, `table`, `images`, or "" if it is unknown."""
        known = self.train_data.source in ARRAY_SOURCES
        return self.train_data.kind if known else ""

    @property
    def own_optimizer(self) -> str:
        """The setting that names an optimizer, if it is set."""
        return "task.optimizer" if self.optimizer else ""

    @property
    def averages_weights(self) -> bool:
        """Whether the optimizer is told to keep a moving average of the weights."""
        config = split_item(self.optimizer)[1] if self.optimizer else None
        return bool(config and config.get("use_ema"))

    @property
    def row_parts(self) -> ImageSplitConfig | None:
        """How the training data are split into parts; None if they are not."""
        if self.split is not None or not self.validation_split:
            return self.split
        held_out = self.validation_split
        return ImageSplitConfig(fractions={"validation": held_out, "train": 1.0 - held_out})

    def section(self, name: str) -> KerasDataConfig | None:
        """Returns a section with the source that it reads, None if there is none."""
        data: KerasDataConfig = super().section(name)
        return data if data.source else None

    @property
    def row_split(self) -> RowSplit | None:
        """How arrays and images are split, None if each section reads all of them."""
        return None if self.row_parts is None else self.row_parts.row_split()

    def _split_problems(self) -> Iterator[Problem]:
        if self.split is not None and self.validation_split:
            yield conflict("split", "validation_split is set, too; remove one")
        for name in _UNREAD_BY.get(self.kind, ()) if self.split is not None else ():
            if getattr(self.split, name):
                yield not_supported(f"split.{name}", f"is not for {self.kind} data")
        for name in SECTIONS:
            if (data := self.section(name)) is None:
                continue
            if self.row_parts is not None or self.kind == IMAGES:
                yield from part_problems(name, data, self.row_parts)
            elif data.split:
                yield not_supported(f"{name}.split", f"got {data.split!r}, but {_NO_PARTS}")

    def _kind_problems(self) -> Iterator[Problem]:
        """Yields settings of another kind of data, and columns in a wrong form."""
        other = self.section(SECTIONS[1])
        if other and self.kind and (other.kind == TABLE) != (self.kind == TABLE):
            message = f"got {other.kind} data, expected {self.kind} as in train_data"
            yield conflict("validation_data.source", message)
        kinds = dict.fromkeys(("inputs", "outputs", "weight_column"), TABLE)
        for name, kind in {**kinds, "image_size": IMAGES}.items():
            if getattr(self, name) and self.kind != kind:
                message = f"is for {kind} data, and train_data has {self.kind or 'no source'}"
                yield no_effect(name, message)
        for name in ("inputs", "outputs"):
            setting = getattr(self, name) or "none"
            columns = setting.values() if isinstance(setting, Mapping) else [setting]
            if not all(map(names_of, columns)):
                yield wrong_type(name, f"got {setting!r}, expected columns by name")
        if self.kind == TABLE and not self.outputs:
            yield not_set("outputs", "is not set; set it to the column to predict")
        if self.image_size is not None and len(self.image_size) not in (2, 3):
            yield wrong_type(
                "image_size", f"got {[*self.image_size]}, expected height, width and channels"
            )

    @property
    def input_size(self) -> tuple[int, int, int] | None:
        """Height, width and channels that images are resized to; None if they are not."""
        if self.image_size is None:
            return None
        height, width, *channels = self.image_size
        return height, width, channels[0] if channels else 3


def _signature_of(reference: str) -> Signature | str | None:
    from orbit_runner.tasks.keras.passed_objects import FUNCTIONS, script_problem

    if reference_problem(reference, "") or reference in FUNCTIONS:
        return None
    return script_problem(reference) or declared_parameters(reference)


def _call_problems(reference: str, arguments: Mapping[str, object], name: str) -> Iterator[Problem]:
    signature = _signature_of(reference)
    if isinstance(signature, str):
        yield Problem(name, signature, code="import-failed")
    elif signature is not None:
        for problem in argument_problems(signature, arguments, reference):
            yield problem.below("arguments")
