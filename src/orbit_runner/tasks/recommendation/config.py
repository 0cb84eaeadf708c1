"""Config of the recommendation task."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orbit_runner.config.schema.base import Config, field
from orbit_runner.config.schema.data import DataConfig, SyntheticConfig
from orbit_runner.config.schema.experiment import TaskConfig
from orbit_runner.errors import DataError, unknown
from orbit_runner.registry import RATING_MODELS, RATING_SOURCES

_NO_IMAGES = "there are no images to augment"
_NO_SPLIT = "the latest choice of each user is held out, whatever the files are called"
_NO_FEATURES = "synthetic choices have a shape of their own; see num_items"
SECTIONS = ("train_data", "validation_data")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuMFConfig(Config):
    """GMF, MLP, or both; with the fields of Model Garden's NCF flags."""

    name: str = field("", help="the network: a name that `runner list` shows")
    kind: str = field("neumf", allowed=("gmf", "mlp", "neumf"), help="which of them; both: neumf")
    mf_dim: int = field(8, ge=1, le=65536, help="width of GMF's embeddings")
    layers: list[int] = field(
        (64, 32, 16, 8), ge=1, le=65536, help="widths of the MLP, that of its input first"
    )
    mf_regularization: float = field(
        0.0, ge=0.0, help="weight of GMF's squared embeddings in the loss"
    )
    mlp_regularization: float = field(
        0.0,
        ge=0.0,
        help="weight of the MLP's squared embeddings and kernels in the loss",
        formerly="older drivers took one number for each layer; now one holds for all layers",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields widths that two embeddings cannot have, and settings without effect."""
        if not self.layers or self.layers[0] % 2:
            got = list(self.layers)
            yield "layers", f"got {got}, expected an even number first: two embeddings side by side"
        for kind, name in (("gmf", "mlp_regularization"), ("mlp", "mf_regularization")):
            if self.kind == kind and getattr(self, name):
                yield name, f"got {getattr(self, name)}, of no effect with kind: {kind}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticRatingsConfig(SyntheticConfig):
    """Settings of `source: synthetic`."""

    num_examples: int = field(
        1024,
        ge=1,
        le=10**8,
        help="choices, at least; users are added until there are as many",
    )
    num_items: int = field(500, ge=64, le=10**8, help="items to choose from")
    seed: int = field(
        0, le=2**32 - 1, help="seed of the choices; a smaller set begins a larger one"
    )
    features: Mapping[str, Any] | None = field(None, help="shapes", unsupported=_NO_FEATURES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecommendationDataConfig(DataConfig):
    """The choices of users and their input pipeline."""

    variant: str = field(
        "",
        allowed=("", "100k", "1m", "20m"),
        help="which MovieLens; what is there where unset",
        formerly="older drivers called these ml-100k, ml-1m and ml-20m",
    )
    min_interactions: int = field(
        20, ge=2, help="users with fewer choices are left out; the published sets have none"
    )
    split: str = field("", help="part of the set", unsupported=_NO_SPLIT)
    augment: str = field("none", help="change of images", unsupported=_NO_IMAGES)
    augment_padding: int = field(4, help="pixels around an image", unsupported=_NO_IMAGES)
    synthetic: SyntheticRatingsConfig = field(
        factory=SyntheticRatingsConfig, help="for `source: synthetic`"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatingTrainData(RecommendationDataConfig):
    """Training data. A batch consists of pairs of a user and an item."""

    num_negatives: int = field(
        4,
        ge=1,
        le=10**5,
        help="items not chosen that are drawn for each choice, anew each epoch",
    )
    shuffle_buffer_size: int = field(
        100, ge=0, help="0 or 1: in order; more: each epoch is a permutation of all pairs"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatingEvalData(RecommendationDataConfig):
    """Evaluation data. A batch consists of users."""

    num_eval_negatives: int = field(
        99,
        ge=0,
        le=10**6,
        help="items not chosen that a user's latest is ranked among; 0: all of them",
    )


def _train() -> RatingTrainData:
    return RatingTrainData(is_training=True)


def _validation() -> RatingEvalData:
    return RatingEvalData(is_training=False, drop_remainder=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecommendationConfig(TaskConfig):
    """Recommendation of items to users, based on their past choices."""

    model: NeuMFConfig = field(factory=NeuMFConfig, help="the network", variants=RATING_MODELS)
    train_data: RatingTrainData = field(factory=_train, help="what is trained on")
    validation_data: RatingEvalData = field(factory=_validation, help="what is evaluated on")
    top_k: int = field(10, ge=1, help="k of HR@k and NDCG@k")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields settings that are missing or unknown."""
        yield from super().problems()
        if not self.model.name:
            known = ", ".join(entry.name for entry in RATING_MODELS.entries())
            yield "model.name", f"is not set\nallowed: {known}"
        sources = [entry.name for entry in RATING_SOURCES.entries()]
        for section in SECTIONS:
            data = getattr(self, section)
            if data.source not in sources:
                yield f"{section}.source", unknown("data source", data.source, sources)
        among = self.validation_data.num_eval_negatives
        if among and self.top_k > among:
            yield "top_k", f"got {self.top_k}: among {among} others each item is in the top of that"

    def preflight(self) -> Iterator[tuple[str, str]]:
        """Yields problems with the files of the datasets."""
        from orbit_runner.tasks.recommendation.sources import load_source, misfits

        found = {}
        for section in SECTIONS:
            try:
                found[section] = load_source(getattr(self, section))
            except DataError as error:
                yield f"{section}.{error.field}", str(error)
        if len(found) == len(SECTIONS):
            train, validation = (found[section] for section in SECTIONS)
            yield from misfits(train, validation, self.validation_data.num_eval_negatives)

    def data_files(self) -> Mapping[str, Sequence[Any]]:
        """Returns the files of both sections."""
        from orbit_runner.tasks.recommendation.sources import source_files

        return {name: source_files(getattr(self, name)) for name in SECTIONS}
