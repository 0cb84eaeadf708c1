"""What the translation task reads: pairs of sentences, and which are in a step; no TensorFlow."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.task_data import TaskData
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.order.epochs import NO_EXAMPLES, Rows
from orbit_runner.data.places import Places, UnknownExample, index_of, unknown_id_error
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.text.order import PairBatching
from orbit_runner.data.text.parallel_text import PairDataset
from orbit_runner.data.text.source import PairSource
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary, vocabulary_of_text
from orbit_runner.determinism.numerics_record import SENTENCEPIECE
from orbit_runner.errors import DataError
from orbit_runner.registry import TEXT_SOURCES
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.examples import find_excluded
from orbit_runner.tasks.shared_config import SECTIONS

if TYPE_CHECKING:
    from orbit_runner.tasks.translation.config import TranslationConfig, TranslationDataConfig
    from orbit_runner.utils.types import JsonObject

# The asset of a run, which is then all that translation needs.
VOCABULARY_FILE = "vocabulary.model"
_SIDES = ("inputs", "targets")
# The settings that errors of datasets name, below `task`.
_TASK_SETTINGS = {
    "vocabulary": "sentencepiece_model_path",
    "vocab_size": "vocab_size",
    "vocab_character_coverage": "vocab_character_coverage",
}


def open_pairs(section: TranslationDataConfig) -> PairDataset:
    """Returns the pairs that a section names. Reads nothing."""
    dataset: PairDataset = TEXT_SOURCES.get(section.source).load()(section)
    return dataset


def load_vocabulary(config: TranslationConfig, assets: Assets) -> Vocabulary | None:
    """Returns the vocabulary of a run; of a new run, reads it or builds it from the training text.

    None if all data are ids. Raises `DataError` if the vocabulary cannot be read or built.
    """
    if not (needs_vocabulary(config) or assets.has(VOCABULARY_FILE)):
        return None
    return _parse_vocabulary(assets.get(VOCABULARY_FILE, lambda: _make_vocabulary(config).model))


@functools.lru_cache(maxsize=4)
def _parse_vocabulary(model: bytes) -> Vocabulary:
    return Vocabulary(model, VOCABULARY_FILE)


def _make_vocabulary(config: TranslationConfig) -> Vocabulary:
    if config.sentencepiece_model_path:
        return _read_vocabulary(config.sentencepiece_model_path)
    dataset = open_pairs(config.train_data)
    sources, targets = dataset.text_files()
    return vocabulary_of_text(
        [*sources, *targets],
        size=config.vocab_size,
        character_coverage=config.vocab_character_coverage,
    )


def needs_vocabulary(config: TranslationConfig) -> bool:
    """Returns whether a run needs the vocabulary: unless all data are ids."""
    return any(open_pairs(getattr(config, section)).is_text for section in SECTIONS)


@cache_source(maxsize=4)
def _read_vocabulary(path: str) -> Vocabulary:
    return Vocabulary.load(path)


class PairExamples:
    """Pairs of sentences, numbered without those that exceed the limits of training."""

    def __init__(
        self, config: TranslationConfig, data: TranslationDataConfig, model_dir: str | None
    ) -> None:
        self._data = data
        self._vocabulary = load_vocabulary(config, Assets(model_dir))
        vocab_size = self._vocabulary.size if self._vocabulary else config.vocab_size
        dataset = open_pairs(data)
        self._pairs = dataset.read(vocab_size, self._vocabulary)
        self._places = dataset.places()
        self.id_help = "an index as `runner batch` prints it" + (
            ", or FILE:LINE" if self._places else ""
        )
        self.excluded = find_excluded(data, self._pairs.size, self.find)
        self.source = self._pairs.name
        self.order = PairBatching(**batching_of(data, self._pairs, self.excluded)).order()

    def describe(self, rows: Rows, chosen: np.ndarray, *, text: bool = False) -> list[JsonObject]:
        """Returns files, lines, numbers of tokens and perhaps the sentences of each chosen row."""
        return [self._describe(int(pair), text) for pair in rows.examples[chosen]]

    def find(self, text: str) -> int:
        """Returns the index of the pair with a line, in a file of either language."""
        index = index_of(text, self._pairs.size)
        if index is not None:
            return index
        rows = [row for places in self._places if (row := _find_row(places, text)) is not None]
        if not rows:
            raise unknown_id_error(text, self.id_help)
        kept = self._pairs.kept
        if kept is not None and not kept[rows[0]]:
            limit = self._data.max_seq_length
            reason = f"is not trained on: a side is empty or has more than {limit} tokens"
            raise unknown_id_error(text, self.id_help, reason)
        return int(np.searchsorted(self._rows, rows[0]))

    def _describe(self, pair: int, text: bool) -> JsonObject:
        if pair < 0:
            return {"padding": True}
        description: JsonObject = {}
        sides = (self._pairs.sources, self._pairs.targets)
        for name, places in zip(_SIDES, self._places, strict=False):
            path, line = places.part_and_number(int(self._rows[pair]))
            description[name] = f"{path}:{line}"
        description["tokens"] = [int(side.lengths[pair]) for side in sides]
        if text:
            texts = [self._text(side.row(pair).tolist()) for side in sides]
            description["text"] = dict(zip(_SIDES, texts, strict=True))
        return description

    @functools.cached_property
    def _rows(self) -> np.ndarray:
        """The row of each pair in the files, int64 [pairs]."""
        kept = self._pairs.kept
        return np.arange(self._pairs.size) if kept is None else np.flatnonzero(kept)

    def _text(self, ids: list[int]) -> str:
        return self._vocabulary.decode([ids])[0] if self._vocabulary else " ".join(map(str, ids))


def batching_of(
    data: TranslationDataConfig, pairs: PairSource, excluded: np.ndarray = NO_EXAMPLES
) -> dict[str, Any]:
    """Returns how the pairs of the training data are batched: the arguments of `PairBatching`."""
    return {
        "source": pairs,
        "batch_tokens": data.batch_tokens,
        "global_batch_size": data.global_batch_size,
        "max_length": data.max_seq_length,
        "static_shapes": data.static_batch,
        "rows_multiple": data.batch_rows_multiple,
        "seed": data.seed or 0,
        "shuffle": data.shuffle_buffer_size > 1,
        "excluded": excluded,
    }


def _find_row(places: Places, text: str) -> int | None:
    """Returns the row that `FILE:NUMBER` names, counted over all files; None if there is none."""
    with contextlib.suppress(UnknownExample):
        return places.find(text)
    return None


class TranslationData(TaskData):
    """Pairs of sentences, and the vocabulary of both languages."""

    excludes_examples = True
    file_reading = "memory"

    def problems(self) -> Iterator[Problem]:
        """Yields problems with the files of the datasets."""
        for section in SECTIONS:
            try:
                if self._vocabulary_path:
                    _read_vocabulary(self._vocabulary_path)
                open_pairs(getattr(self.config, section)).check()
            except DataError as error:
                yield Problem(self.setting_of_error(section, error), str(error), code=error.code)

    @property
    def _vocabulary_path(self) -> str:
        """The file of the vocabulary; "" if it is built from the texts, or not needed."""
        path = self.config.sentencepiece_model_path
        return path if path and needs_vocabulary(self.config) else ""

    def files(self) -> Mapping[str, Sequence[DataFile]]:
        """Returns the files of both sections and of the vocabulary."""
        pairs = {section: open_pairs(getattr(self.config, section)) for section in SECTIONS}
        files = {name: dataset.data_files() for name, dataset in pairs.items() if dataset.is_text}
        if path := self._vocabulary_path:
            paths = [Path(path).expanduser()]
            files["sentencepiece_model_path"] = describe_files(paths, content_digest)
        return files

    def packages(self) -> Sequence[str]:
        """Returns SentencePiece unless all data are ids."""
        return (SENTENCEPIECE,) if needs_vocabulary(self.config) else ()

    def training_examples(
        self, section: TranslationDataConfig, model_dir: str | None
    ) -> PairExamples:
        """Returns which examples are in the batch of each training step."""
        return PairExamples(self.config, section, model_dir)

    def learn(self, assets: Assets) -> Vocabulary | None:
        """Returns the subword vocabulary, or None if all data are ids."""
        return load_vocabulary(self.config, assets)

    def setting_of_error(self, section: str, error: DataError) -> str:
        """Returns the path, below `task`, of the setting that an error is about."""
        name = "max_seq_length" if error.field == "max_length" else error.field
        return _TASK_SETTINGS.get(name) or f"{section}.{name}"
