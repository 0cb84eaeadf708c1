"""Loads the choices of a config section. Uses only NumPy, so that they can be checked early."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from orbit_runner.config.errors import Problem
from orbit_runner.data.dataset import Reader
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.ratings.interactions import Interactions, RatingSource, leave_one_out
from orbit_runner.data.source_cache import cache_source
from orbit_runner.errors import SettingError
from orbit_runner.registry import RATING_SOURCES
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.recommendation.config import RecommendationDataConfig

# The asset of a run.
RATINGS_FILE = "ratings.npz"


def load_source(config: RecommendationDataConfig) -> RatingSource:
    """Returns the choices of one section, with the latest of each user held out.

    They are loaded once per process. Raises `DataError` if they are missing or invalid.
    """
    reader: Reader = RATING_SOURCES.get(config.source).load()
    return _load(reader.load, config.min_interactions, **reader.arguments(config))


def load_interactions(config: RecommendationDataConfig) -> Interactions:
    """Returns all choices of one section in the order of its file, loaded once per process."""
    reader: Reader = RATING_SOURCES.get(config.source).load()
    return _load_interactions(reader.load, **reader.arguments(config))


def source_files(config: RecommendationDataConfig) -> list[DataFile]:
    """Returns descriptions of the files of one section."""
    return describe_files(load_source(config).files, content_digest)


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedRatings:
    """The users and items that a network is trained on, and the choices of each user.

    Attributes:
        user_ids: Published ids, int64 [users], ascending. A user's number is the place here.
        item_ids: Published ids, int64 [items], ascending.
        starts: The index of each user's first choice, then the total: int64 [users + 1].
        items: The chosen items by number, int32 [choices].
    """

    user_ids: np.ndarray
    item_ids: np.ndarray
    starts: np.ndarray
    items: np.ndarray

    def check(self, source: RatingSource, section: str) -> None:
        """Raises `SettingError` if a section has other users or items than the run."""
        users = source.num_users
        same_users = np.array_equal(self.user_ids[:users], source.user_ids)
        if same_users and np.array_equal(self.item_ids, source.item_ids):
            return
        raise SettingError(
            f"task.{section}.source",
            f"got {_describe_source(source)}, but the run was trained on other ones: "
            f"{len(self.user_ids):,} users and {len(self.item_ids):,} items\n"
            "use the data of the training, or another --model_dir",
            code="data-mismatch",
        )


def trained_ratings(config: RecommendationDataConfig, assets: Assets) -> TrainedRatings:
    """Returns the users, items and choices that a run was trained on; of a new run, reads them."""

    def compute() -> bytes:
        source = load_source(config)
        content = io.BytesIO()
        np.savez(
            content,
            user_ids=source.user_ids,
            item_ids=source.item_ids,
            starts=source.starts,
            items=source.items,
        )
        return content.getvalue()

    content = assets.get(RATINGS_FILE, compute)
    try:
        return TrainedRatings(**np.load(io.BytesIO(content), allow_pickle=False))
    # NumPy and zipfile raise a dozen kinds of errors for damaged files.
    except Exception as error:
        raise assets.damaged(RATINGS_FILE, error) from None


@cache_source(maxsize=4)
def _load(
    load: Callable[..., Interactions], min_interactions: int, **arguments: Any
) -> RatingSource:
    # Not from the cache below, because a run needs all choices only here.
    return leave_one_out(load(**arguments), min_interactions)


@cache_source(maxsize=1)
def _load_interactions(load: Callable[..., Interactions], **arguments: Any) -> Interactions:
    return load(**arguments)


def mismatch_problems(
    train: RatingSource, validation: RatingSource, num_negatives: int
) -> Iterator[Problem]:
    """Yields (field, message) for choices of training and validation that do not match.

    `validation` must have the same items as `train`, and its users or the first of them. Each
    held-out item is ranked among `num_negatives` others, or all of them if 0.
    """
    users = validation.num_users
    same = np.array_equal(train.item_ids, validation.item_ids) and np.array_equal(
        train.user_ids[:users], validation.user_ids
    )
    if not same:
        yield Problem(
            "validation_data.source",
            f"got {_describe_source(validation)}, expected those of train_data: "
            f"{_describe_source(train)}\n"
            "both sections must read the same dataset: one choice per user is held out of training",
            code="data-mismatch",
        )
    if num_negatives >= validation.num_items:
        yield Problem(
            "validation_data.num_eval_negatives",
            f"got {num_negatives}, expected fewer than the {validation.num_items:,} items, or 0 "
            "for all of them",
            code="data-mismatch",
        )


def _describe_source(source: RatingSource) -> str:
    return f"{source.num_users:,} users and {source.num_items:,} items of {source.name}"
