"""Config of the recommendation task."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_runner.config.errors import Problem, out_of_range
from orbit_runner.config.schema.base import config_class, field
from orbit_runner.config.schema.data import (
    DataConfig,
    SyntheticConfig,
    source_field,
    training_field,
    validation_field,
)
from orbit_runner.models.configs import NeuMFConfig
from orbit_runner.registry import RATING_MODELS, RATING_SOURCES
from orbit_runner.tasks.shared_config import NetworkTaskConfig

_NO_SPLIT = "the latest choice of each user is held out, regardless of file names"


@config_class
class SyntheticRatingsConfig(SyntheticConfig):
    """Settings of `source: synthetic`."""

    num_examples: int = field(
        1024,
        ge=1,
        le=10**8,
        help="minimum number of choices; users are added until it is reached",
    )
    num_items: int = field(500, ge=64, le=10**8, help="number of items to choose from")
    seed: int = field(
        0, le=2**32 - 1, help="random seed; a smaller dataset is the beginning of a larger one"
    )


@config_class
class RecommendationDataConfig(DataConfig):
    """The choices of users and their input pipeline."""

    source: str = source_field(RATING_SOURCES)
    min_interactions: int = field(
        20,
        ge=2,
        help="minimum number of choices per user; users with fewer (none in published "
        "datasets) are left out",
    )
    split: str = field("", help="part of the dataset", unsupported=_NO_SPLIT)
    synthetic: SyntheticRatingsConfig = field(
        factory=SyntheticRatingsConfig, help="settings of `source: synthetic`"
    )


@config_class
class RatingTrainData(RecommendationDataConfig):
    """Training data. A batch consists of pairs of a user and an item."""

    num_negatives: int = field(
        4,
        ge=1,
        le=10**5,
        help="negative items per choice, drawn at random in each epoch from those not chosen",
    )
    shuffle_buffer_size: int = field(
        100, ge=0, help="0 or 1: keep the order of pairs; more: shuffle all pairs in each epoch"
    )


@config_class
class RatingEvalData(RecommendationDataConfig):
    """Evaluation data. A batch consists of users."""

    num_eval_negatives: int = field(
        99,
        ge=0,
        le=10**6,
        help="negative items to rank a user's latest choice among; 0: all items not chosen",
    )


@config_class
class RecommendationConfig(NetworkTaskConfig):
    """Recommendation of items to users, based on their past choices."""

    model: NeuMFConfig = field(factory=NeuMFConfig, help="the model", variants=RATING_MODELS)
    train_data: RatingTrainData = training_field(RatingTrainData)
    validation_data: RatingEvalData = validation_field(RatingEvalData)
    top_k: int = field(10, ge=1, help="k of HR@k and NDCG@k")

    def problems(self) -> Iterator[Problem]:
        """Yields settings that are missing or unknown."""
        yield from super().problems()
        among = self.validation_data.num_eval_negatives
        if among and self.top_k > among:
            setting = "validation_data.num_eval_negatives"
            yield out_of_range("top_k", f"got {self.top_k}, expected at most {setting}, {among}")
