"""Loads the sentence pairs and the vocabulary of a config. Does not import TensorFlow."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.data.arrays import bytes_keys
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.shared_examples import (
    SharedExamples,
    compare_keys,
    shared_files,
)
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.text.dataset import PairDataset
from orbit_runner.data.text.lines import read_files
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary, vocabulary_of_text
from orbit_runner.registry import TEXT_SOURCES
from orbit_runner.tasks.assets import Assets

if TYPE_CHECKING:
    from orbit_runner.tasks.translation.config import TranslationConfig, TranslationDataConfig

# The asset of a run, which is then all that translation needs.
VOCABULARY_FILE = "vocabulary.model"
_SECTIONS = ("train_data", "validation_data")
# Larger texts are compared by their files, because reading them would delay the start.
_MOST_COMPARED_BYTES = 2**26


def open_pairs(section: TranslationDataConfig) -> PairDataset:
    """Returns the pairs that a section names. Reads nothing."""
    dataset: PairDataset = TEXT_SOURCES.get(section.source).load()(section)
    return dataset


def check_files(config: TranslationConfig, section: str) -> None:
    """Raises `DataError` if a file of a section is missing, empty or unreadable.

    Also raises it if the two languages have different numbers of lines.
    """
    if config.sentencepiece_model_path and needs_vocabulary(config):
        _read_vocabulary(config.sentencepiece_model_path)
    open_pairs(getattr(config, section)).check()


def text_files(config: TranslationConfig) -> dict[str, list[DataFile]]:
    """Returns descriptions of the files of both sections and of the vocabulary.

    `check_files` must have been called before.
    """
    datasets = {section: open_pairs(getattr(config, section)) for section in _SECTIONS}
    files = {name: dataset.data_files() for name, dataset in datasets.items() if dataset.is_text}
    if config.sentencepiece_model_path and needs_vocabulary(config):
        path = Path(config.sentencepiece_model_path).expanduser()
        files["sentencepiece_model_path"] = describe_files([path], content_digest)
    return files


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


def shared_pairs(
    config: TranslationConfig, excluded_rows: np.ndarray | None
) -> SharedExamples | None:
    """Returns the validation pairs that are also training pairs, or None.

    `excluded_rows` are the rows in the training files that are left out, or None.
    """
    datasets = [open_pairs(getattr(config, section)) for section in _SECTIONS]
    advice = "name other files in validation_data"
    if not all(dataset.is_text for dataset in datasets):
        return None
    sides = [dataset.text_files() for dataset in datasets]
    paths = [path for pair in sides for side in pair for path in side]
    if sum(path.stat().st_size for path in paths) > _MOST_COMPARED_BYTES:
        files = [[str(path) for path in pair[0]] for pair in sides]
        return shared_files(files[0], files[1], advice)
    train, validation = (bytes_keys(_pair_bytes(*pair)) for pair in sides)
    if excluded_rows is not None:
        train = np.delete(train, excluded_rows)
    where = f"line {{}} of {_format_paths(sides[1][0])}"
    places = (lambda row: "", lambda row: where.format(row + 1))
    return compare_keys(train, validation, "pairs", places, advice)


def _pair_bytes(sources: list[Path], targets: list[Path]) -> Iterator[bytes]:
    """Yields each sentence with its translation; both are lines."""
    pairs = zip(read_files(sources), read_files(targets), strict=True)
    return (f"{source}\n{target}".encode() for source, target in pairs)


def needs_vocabulary(config: TranslationConfig) -> bool:
    """Returns whether a run needs the vocabulary: unless all data are ids."""
    return any(open_pairs(getattr(config, section)).is_text for section in _SECTIONS)


def _format_paths(paths: list[Path]) -> str:
    return ", ".join(map(str, paths[:3])) + (" …" if paths[3:] else "")


@cache_source(maxsize=4)
def _read_vocabulary(path: str) -> Vocabulary:
    return Vocabulary.load(path)
