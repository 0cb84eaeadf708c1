"""Configs that tasks share: saved datasets, splits of rows, and networks in a registry."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbit_runner.config.errors import Problem, conflict, no_effect, not_set, out_of_range
from orbit_runner.config.schema.base import Config, config_class, default_of, field
from orbit_runner.config.schema.data import source_registry
from orbit_runner.config.schema.experiment import TaskConfig
from orbit_runner.config.schema.weights import DATA_LOCATION, METRICS
from orbit_runner.errors import unknown_name_message
from orbit_runner.tasks.imbalance.config import (
    MixedDataConfig,
    class_weights_field,
    source_problems,
    value_problems,
)

if TYPE_CHECKING:
    from orbit_runner.data.tables.split import RowSplit

SECTIONS = ("train_data", "validation_data")
# The settings that say what a section reads, besides those that only its source has.
_PLACES = ("source", "data_dir", "input_path", "synthetic")


@config_class
class StoredDataConfig(MixedDataConfig):
    """A dataset that TensorFlow Datasets or Hugging Face may have saved."""

    tfds_name: str = field("", help="`source: tfds`: dataset, as name, name/config or name:version")
    tfds_split: str = field(
        "",
        help="`source: tfds`: split, such as train; by default depending on is_training",
    )
    tfds_data_dir: str = field(
        "",
        path="dir",
        weights=DATA_LOCATION,
        help="`source: tfds`: data directory; by default $TFDS_DATA_DIR or ~/tensorflow_datasets",
    )
    hugging_face_split: str = field(
        "",
        help="`source: hugging_face`: part of a saved DatasetDict, such as train; by default "
        "depending on is_training",
    )


@config_class
class NetworkTaskConfig(TaskConfig):
    """A task whose `model` and `source` are names in registries."""

    def problems(self) -> Iterator[Problem]:
        """Yields a model without a name, and unknown sources."""
        yield from super().problems()
        if not getattr(self.model, "name", ""):
            registry = type(self).__dataclass_fields__["model"].metadata["variants"]
            known = ", ".join(entry.name for entry in registry.entries())
            yield not_set("model.name", f"is not set\nallowed: {known}")
        # If neither is set, one problem says so.
        has_source = self.train_data.source or self.validation_data.source
        for name in SECTIONS if has_source else SECTIONS[:1]:
            data = self.section(name)
            known_sources = [entry.name for entry in source_registry(data).entries()]
            yield from source_problems(name, data, known_sources)

    def section(self, name: str) -> Any:
        """Returns a section with the source that it reads."""
        return getattr(self, name)


@config_class
class TableSplitConfig(Config):
    """How the rows of a table are split: by a column, or by a hash."""

    column: str = field("", help="column whose values are the names of the parts")
    fractions: Mapping[str, Any] | None = field(
        None, help="share of the rows of each part, such as {train: 0.8, validation: 0.2}"
    )
    hash_of: list[str] = field(
        (),
        help="`fractions`: columns that decide on the part of a row, such as an ID; by default all "
        "features, so that equal rows are in the same part",
    )
    seed: int = field(0, le=2**32 - 1, help="`fractions`: another seed gives other parts")

    def problems(self) -> Iterator[Problem]:
        """Yields fractions that are not shares, and settings without effect."""
        if bool(self.column) == bool(self.fractions):
            got = "both" if self.column else "neither"
            yield conflict("column", f"got {got} of column and fractions, expected one of them")
            return
        if self.column and self.hash_of:
            yield no_effect("hash_of", "has no effect with column")
        shares = [*(self.fractions or {}).values()]
        message = ""
        if not all(_is_share(share) for share in shares):
            got = ", ".join(map(repr, shares))
            message = f"got {got}, expected numbers above 0 and at most 1"
        elif math.fsum(shares) > 1 + 1e-9:
            message = f"got a sum of {math.fsum(shares):g}, expected at most 1"
        if message:
            yield out_of_range("fractions", message)

    def row_split(self, hash_of: Sequence[str] = ()) -> RowSplit:
        """Returns the split; by default, it depends on the columns in `hash_of`."""
        from orbit_runner.data.tables.split import RowSplit

        fractions = tuple((self.fractions or {}).items())
        return RowSplit(self.column, fractions, tuple(self.hash_of or hash_of), self.seed)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts; empty if a column defines them."""
        return tuple(self.fractions or ())


@config_class
class ClassificationTaskConfig(NetworkTaskConfig):
    """A task whose examples may have classes, and can be split into parts."""

    class_weights: str | Mapping[str, Any] = class_weights_field()
    split: TableSplitConfig | None = field(
        None, help="how rows are split into parts; null: each section reads all rows of its files"
    )
    metrics: list[str | Mapping[str, Any]] = field(
        (),
        weights=METRICS,
        help="more metrics of evaluations, by the names of Keras: [auc, {class_name: F1Score, "
        "config: {average: macro}}], or classes",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields wrong weights of classes, and parts that `split` does not have."""
        yield from super().problems()
        yield from value_problems("class_weights", self.class_weights)
        for section in SECTIONS:
            yield from part_problems(section, self.section(section), self.split)


@config_class
class SplitTaskConfig(TaskConfig):
    """A task whose validation data can be a part of its training data.

    They are if the training data are split, and the validation data have no source of their own.
    """

    def problems(self) -> Iterator[Problem]:
        """Yields settings of validation data that are a part of the training data."""
        yield from super().problems()
        data = self.validation_data
        if not self.validates_on_part:
            return
        if not data.global_batch_size:
            yield out_of_range("validation_data.global_batch_size", "got 0, allowed: at least 1")
        for name in self.shared_data_settings:
            unset = default_of(type(data).__dataclass_fields__[name])
            if getattr(data, name) not in (unset, getattr(self.train_data, name)):
                message = (
                    "has no effect: without a source, these are rows of train_data\n"
                    "for other files, set validation_data.source, too, and split: null"
                )
                yield no_effect(f"validation_data.{name}", message)

    @property
    def row_parts(self) -> TableSplitConfig | None:
        """How the training data are split into parts; None if they are not."""
        parts: TableSplitConfig | None = self.split
        return parts

    @property
    def validates_on_part(self) -> bool:
        """Whether the validation data are a part of the training data."""
        return self.row_parts is not None and not self.validation_data.source

    @property
    def shared_data_settings(self) -> Sequence[str]:
        """Names in `train_data` that say what the validation data are, too: of a part of it."""
        return (*_PLACES, *self.train_data.traits.settings) if self.validates_on_part else ()

    def section(self, name: str) -> Any:
        """Returns a section with the source that it reads."""
        data = getattr(self, name)
        shared = self.shared_data_settings if name == SECTIONS[1] else ()
        return data.replace(**{setting: getattr(self.train_data, setting) for setting in shared})


def _is_share(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1


def part_problems(
    section: str, data: MixedDataConfig, split: TableSplitConfig | None
) -> Iterator[Problem]:
    """Yields a part of a section that `split`, the setting of the task, does not have.

    Without it, a section can name a split that all its sources have themselves.
    """
    path = f"{section}.split"
    stored = [part.traits for part in data.sources if not part.traits.is_generated]
    if split is not None:
        if stored and split.parts and data.part not in split.parts:
            message = unknown_name_message("part", data.part, split.parts)
            yield Problem(path, message, code="unknown-part")
        return
    for traits in stored:
        if not data.split or data.split in traits.splits:
            continue
        if traits.splits:
            message = unknown_name_message("value", data.split, traits.splits)
            yield Problem(path, message, code="unknown-name")
        else:
            other = traits.split_setting
            advice = f"{other} chooses a part that is stored"
            if other == "split":
                advice = "set task.split, or remove this setting"
            yield not_set(path, f"got {data.split!r}, but task.split is not set; {advice}")
        return
