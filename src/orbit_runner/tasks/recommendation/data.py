"""What the recommendation task reads: choices of users, and which are in a step; no TensorFlow."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.task_data import TaskData
from orbit_runner.data.dataset import arguments_of
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.order.epochs import Rows, ShuffledOrder, exclude_examples
from orbit_runner.data.order.keyed_random import random_bits, scale
from orbit_runner.data.order.steps import RowOrder
from orbit_runner.data.places import index_of, unknown_id_error
from orbit_runner.data.ratings.interactions import Interactions, RatingSource, leave_one_out
from orbit_runner.data.source_cache import cache_source
from orbit_runner.errors import DataError
from orbit_runner.registry import RATING_SOURCES
from orbit_runner.tasks.assets import Assets, other_data_error
from orbit_runner.tasks.examples import find_excluded
from orbit_runner.tasks.recommendation.config import RatingTrainData, RecommendationDataConfig
from orbit_runner.tasks.shared_config import SECTIONS

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

# The asset of a run.
RATINGS_FILE = "ratings.npz"


def load_source(config: RecommendationDataConfig) -> RatingSource:
    """Returns the choices of one section, with the latest of each user held out.

    They are loaded once per process. Raises `DataError` if they are missing or invalid.
    """
    load = RATING_SOURCES.get(config.source).load()
    arguments = arguments_of(load, config, **config.synthetic.as_dict())
    return _load(load, config.min_interactions, **arguments)


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
        if _same_ids(self, source):
            return
        others = f"{len(self.user_ids):,} other users and {len(self.item_ids):,} items"
        raise other_data_error(section, _describe_source(source), others)


def trained_ratings(config: RecommendationDataConfig, assets: Assets) -> TrainedRatings:
    """Returns the users, items and choices that a run was trained on; of a new run, reads them."""

    def compute() -> bytes:
        source = load_source(config)
        content = io.BytesIO()
        names = [field.name for field in dataclasses.fields(TrainedRatings)]
        np.savez(content, **{name: getattr(source, name) for name in names})
        return content.getvalue()

    return assets.get(
        RATINGS_FILE,
        compute,
        lambda content: TrainedRatings(**np.load(io.BytesIO(content), allow_pickle=False)),
    )


@cache_source(maxsize=4)
def _load(
    load: Callable[..., Interactions], min_interactions: int, **arguments: Any
) -> RatingSource:
    return leave_one_out(load(**arguments), min_interactions)


def mismatch_problems(
    train: RatingSource, validation: RatingSource, num_negatives: int
) -> Iterator[Problem]:
    """Yields (field, message) for choices of training and validation that do not match.

    `validation` must have the same items as `train`, and its users or the first of them. Each
    held-out item is ranked among `num_negatives` others, or all of them if 0.
    """
    if not _same_ids(train, validation):
        message = (
            f"got {_describe_source(validation)}, expected those of train_data: "
            f"{_describe_source(train)}\n"
            "both sections must read the same dataset: one choice per user is held out of training"
        )
        yield Problem("validation_data.source", message, code="data-mismatch")
    if num_negatives >= validation.num_items:
        message = (
            f"got {num_negatives}, expected fewer than the {validation.num_items:,} items, or 0 "
            "for all of them"
        )
        yield Problem("validation_data.num_eval_negatives", message, code="data-mismatch")


def _same_ids(known: RatingSource | TrainedRatings, source: RatingSource) -> bool:
    """Returns whether a source has the known items, and the known users or the first of them."""
    users = known.user_ids[: source.num_users]
    return np.array_equal(users, source.user_ids) and np.array_equal(
        known.item_ids, source.item_ids
    )


def _describe_source(source: RatingSource) -> str:
    return f"{source.num_users:,} users and {source.num_items:,} items of {source.name}"


class RatingExamples:
    """Example e belongs to choice e // k; it is the choice itself if k divides e.

    k is 1 + `num_negatives`. The other examples have an item that is drawn again in each epoch.
    """

    id_help = "an index as `runner batch` prints it, or USER/ITEM"

    def __init__(self, data: RatingTrainData) -> None:
        self._ratings = load_source(data)
        self._group_size = 1 + data.num_negatives
        self._seed = data.seed or 0
        self._size = self._ratings.size * self._group_size
        self.excluded = find_excluded(data, self._size, self.find)
        sequence = ShuffledOrder(self._size, self._seed, data.shuffle_buffer_size > 1)
        self.source = self._ratings.name
        self.order = RowOrder(exclude_examples(sequence, self.excluded), data.global_batch_size)

    def describe(self, rows: Rows, chosen: np.ndarray, *, text: bool = False) -> list[JsonObject]:
        """Returns user, item and label of each chosen row."""
        del text
        ids = rows.examples[chosen]
        epochs = rows.epochs[chosen]
        ratings = self._ratings
        choices = ids // self._group_size
        users, items = ratings.users[choices], ratings.items[choices]
        is_choice = ids % self._group_size == 0
        drawn = self._negatives(ids, epochs, users)
        return [
            {
                "user": int(ratings.user_ids[user]),
                "item": int(ratings.item_ids[item if positive else negative]),
                "label": int(positive),
                **({} if positive else {"negative_for": int(ratings.item_ids[item])}),
            }
            for user, item, positive, negative in zip(users, items, is_choice, drawn, strict=True)
        ]

    def find(self, text: str) -> int:
        """Returns the index of the example that is a choice itself."""
        index = index_of(text, self._size)
        if index is not None:
            return index
        user, slash, item = text.partition("/")
        if slash and user.isdecimal() and item.isdecimal():
            return self._index(text, int(user), int(item))
        raise unknown_id_error(text, self.id_help)

    def _index(self, text: str, user: int, item: int) -> int:
        ratings: RatingSource = self._ratings
        known = [np.flatnonzero(ratings.user_ids == user), np.flatnonzero(ratings.item_ids == item)]
        for name, matches in zip(("user", "item"), known, strict=True):
            if not len(matches):
                raise unknown_id_error(text, self.id_help, f"names a {name} that is not trained on")
        row, column = (int(matches[0]) for matches in known)
        start, stop = ratings.starts[row : row + 2]
        choice = start + int(np.searchsorted(ratings.items[start:stop], column))
        if choice == stop or ratings.items[choice] != column:
            held_out = ratings.held_out[row] == column
            reason = "is held out of training" if held_out else "is not a rating"
            raise unknown_id_error(text, self.id_help, reason)
        return int(choice) * self._group_size

    def _negatives(self, ids: np.ndarray, epochs: np.ndarray, users: np.ndarray) -> np.ndarray:
        """Returns the items that `pair_chunks` draws, int64 [b]."""
        ratings = self._ratings
        starts = ratings.starts[users]
        counts = ratings.starts[users + 1] - starts
        bits = random_bits(self._seed, ids, epochs, "negativ")
        free = (ratings.num_items - counts).astype(np.uint64)
        ranks = scale(bits, free).astype(np.int64)
        items = np.empty_like(ranks)
        for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
            # Below the k-th choice, there are that item minus k others.
            others = ratings.items[start : start + count] - np.arange(count)
            items[row] = ranks[row] + np.searchsorted(others, ranks[row], side="right")
        return items


class RecommendationData(TaskData):
    """The choices of users, of which the latest of each user is held out from training."""

    excludes_examples = True
    file_reading = "memory"

    def problems(self) -> Iterator[Problem]:
        """Yields problems with the files of the datasets."""
        sources = {}
        for section in SECTIONS:
            try:
                sources[section] = load_source(getattr(self.config, section))
            except DataError as error:
                yield Problem(self.setting_of_error(section, error), str(error), code=error.code)
        if len(sources) == len(SECTIONS):
            train, validation = (sources[section] for section in SECTIONS)
            count = self.config.validation_data.num_eval_negatives
            yield from mismatch_problems(train, validation, count)

    def files(self) -> Mapping[str, Sequence[DataFile]]:
        """Returns the files of both sections."""
        sources = {name: load_source(getattr(self.config, name)) for name in SECTIONS}
        return {
            name: describe_files(source.files, content_digest) for name, source in sources.items()
        }

    def training_examples(self, section: RatingTrainData, model_dir: str | None) -> RatingExamples:
        """Returns which examples are in the batch of each training step."""
        return RatingExamples(section)

    def learn(self, assets: Assets) -> TrainedRatings:
        """Returns the users, items and choices that the run is trained on."""
        return trained_ratings(self.config.train_data, assets)
