"""Settings of weights and shares, and their checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from orbit_runner.config.errors import Problem, no_effect, not_allowed, out_of_range
from orbit_runner.config.schema.base import FLOAT_MAX, Config, Rule, config_class, field
from orbit_runner.config.schema.data import DataConfig
from orbit_runner.data.tables.cell_texts import normal_text
from orbit_runner.errors import nearest_name_hint, shorten, unknown_name_message

if TYPE_CHECKING:
    from typing_extensions import Self

BALANCED = "balanced"
# The settings of a section that the sources of a mixture can override.
_SOURCE_SETTINGS = ("source", "data_dir", "input_path", "function")


def class_weights_field() -> Any:
    """Declares the setting `class_weights` of a task."""
    return field(
        "",
        help="weight of each class in the training loss: `balanced`, or weights by class, such as "
        "{no: 1, yes: 3}; by default 1",
    )


@config_class
class MixtureSource(Config):
    """A source of a mixture. Settings that it leaves out are those of the section."""

    weight: float = field(1.0, ge=0.0, help="share in the batches, relative to the other sources")
    source: str = field("", help="name of the dataset")
    data_dir: str = field("", path="dir", help="directory of the dataset files")
    input_path: str | list[str] = field("", path="patterns", help="files or glob patterns")
    function: str = field(
        "", help="`source: arrays`: function that returns the arrays: my_package.data:load"
    )


@config_class
class MixedDataConfig(DataConfig):
    """A dataset whose examples can be drawn by class or from several sources."""

    _rules: ClassVar[tuple[Rule, ...]] = (
        Rule("mixture", lambda data: data.is_training is False and data.mixture,
             "draws training examples; set it in train_data", "not-allowed"),
        Rule("class_sampling", lambda data: data.is_training is False and data.class_sampling,
             "draws training examples; set it in train_data", "not-allowed"),
        Rule("class_sampling", lambda data: data.mixture and data.class_sampling,
             "mixture is set, too; remove one", "conflict"),
        Rule("mixture", lambda data: len(data.mixture) == 1,
             "got one source, expected two or more", "out-of-range"),
        Rule("mixture",
             lambda data: len(data.mixture) > 1 and not any(s.weight for s in data.mixture),
             "all weights are 0", "out-of-range"),
    )  # fmt: skip
    mixture: list[MixtureSource] = field(
        (), help="sources to draw training examples from, each with its weight"
    )
    class_sampling: str | Mapping[str, Any] = field(
        "",
        help="share of each class in training batches: `balanced`, or weights by class, such as "
        "{no: 1, yes: 3}; by default that in the dataset",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields mixtures that cannot be drawn from."""
        yield from super().problems()
        yield from value_problems("class_sampling", self.class_sampling)
        known = {class_field.name for class_field in dataclasses.fields(self)}
        for number, source in enumerate(self.mixture):
            for name in _SOURCE_SETTINGS:
                if getattr(source, name) and name not in known:
                    yield no_effect(f"mixture[{number}].{name}", "is not read by this task")

    @property
    def part(self) -> str:
        """The part of the rows that the section reads, if a table is split."""
        return self.split or ("train" if self.is_training else "validation")

    @property
    def sources(self) -> tuple[Self, ...]:
        """The section of each source of the mixture; the section itself if there is none."""
        if not self.mixture:
            return (self,)
        known = [name for name in _SOURCE_SETTINGS if name in self.__dataclass_fields__]
        return tuple(
            self.replace(
                mixture=(),
                **{name: value for name in known if (value := getattr(source, name))},
            )
            for source in self.mixture
        )


def setting_of_source(number: int, name: str) -> str:
    """Returns the path of a source's setting `name`, which may be that of its whole section."""
    return f"mixture[{number}].{name}" if name in _SOURCE_SETTINGS else name


def value_problems(name: str, weights: str | Mapping[str, Any]) -> Iterator[Problem]:
    """Yields (field, message) for a value that is neither `balanced` nor weights by class."""
    if isinstance(weights, str):
        if weights not in ("", BALANCED):
            hint = nearest_name_hint(weights, [BALANCED])
            yield not_allowed(
                name, f"got {weights!r}{hint}\nallowed: {BALANCED}, or a weight for each class"
            )
        return
    for key, value in weights.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value <= FLOAT_MAX:
            yield out_of_range(
                f"{name}.{key}",
                f"got {shorten(repr(value))}, expected a number from 0 to {FLOAT_MAX:g}",
            )
            return
    if not any(weights.values()):
        yield out_of_range(name, "all weights are 0")


def weights_by_class(weights: Mapping[str, Any], classes: Sequence[str]) -> dict[str, Any]:
    """Returns weights by the names of their classes; `True` of YAML is the class `true`."""
    return {
        name if name in classes else normal_text(name): weight
        for name, weight in zip(map(str, weights), weights.values(), strict=True)
    }


def class_problems(
    name: str, weights: str | Mapping[str, object], classes: Sequence[str]
) -> Iterator[Problem]:
    """Yields (field, message) for weights of unknown classes, and for classes without weight.

    `classes` are the names of all classes.
    """
    if isinstance(weights, str):
        return
    keys = [*weights_by_class(weights, classes)]
    known = ", ".join(classes[:20]) + (", …" if len(classes) > 20 else "")
    for key in keys:
        if key not in classes:
            yield Problem(
                name,
                f"unknown class {key!r}{nearest_name_hint(key, classes)}\nclasses: {known}",
                code="unknown-class",
            )
            return
    lacking = [class_name for class_name in classes if class_name not in keys]
    if lacking:
        more = f" and {len(lacking) - 1} more" if lacking[1:] else ""
        yield Problem(
            name,
            f"has no weight for class {lacking[0]!r}{more}\nclasses: {known}",
            code="unknown-class",
        )


def source_problems(section: str, data: DataConfig, known: Sequence[str]) -> Iterator[Problem]:
    """Yields (field, message) for unknown data sources of a section and of any mixture."""
    if data.source not in known:
        yield not_allowed(
            f"{section}.source", unknown_name_message("data source", data.source, known)
        )
    for number, source in enumerate(getattr(data, "mixture", ())):
        if source.source and source.source not in known:
            place = f"{section}.mixture[{number}].source"
            yield not_allowed(place, unknown_name_message("data source", source.source, known))
