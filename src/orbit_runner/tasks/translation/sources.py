"""Loads the sentence pairs and the vocabulary of a config. Does not import TensorFlow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.config.schema.data import input_paths
from orbit_runner.data.files import named_files
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.shared_examples import (
    SharedExamples,
    bytes_keys,
    compare_keys,
    shared_files,
)
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.text import parallel_text
from orbit_runner.data.text.lines import count_lines, lines_digest, read_files
from orbit_runner.data.text.source import EOS, PairSource
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary
from orbit_runner.data.text.tokenizer.vocabulary_files import load_or_build_vocabulary
from orbit_runner.data.tfrecord.framing import record_files
from orbit_runner.data.tfrecord.index_cache import index_files
from orbit_runner.errors import DataError
from orbit_runner.registry import TEXT_SOURCES
from orbit_runner.tasks.assets import Assets

if TYPE_CHECKING:
    from orbit_runner.tasks.translation.config import TranslationConfig, TranslationDataConfig

# The asset of a run, which is then all that translation needs.
VOCABULARY_FILE = "vocabulary.model"
_SECTIONS = ("train_data", "validation_data")
# Larger texts are compared by their files, because reading them would delay the start.
_MOST_COMPARED_BYTES = 2**26
TEXT, RECORDS, SYNTHETIC = "parallel_text", "token_records", "synthetic"


def check_files(config: TranslationConfig, section: str) -> None:
    """Raises `DataError` if a file of a section is missing, empty or unreadable.

    Also raises it if the two languages have different numbers of lines. Reads records completely.
    """
    data, vocabulary = getattr(config, section), None
    if config.sentencepiece_model_path and _needs_vocabulary(config):
        vocabulary = _read_vocabulary(config.sentencepiece_model_path)
    if data.source == TEXT:
        _check_text(text_arguments(data), data.max_bad_records)
    elif data.source != SYNTHETIC:
        load_pairs(data, vocabulary.size if vocabulary else config.vocab_size, vocabulary)


def text_files(config: TranslationConfig) -> dict[str, list[DataFile]]:
    """Returns descriptions of the files of both sections and of the vocabulary.

    `check_files` must have been called before.
    """
    found = {}
    for section in ("train_data", "validation_data"):
        data = getattr(config, section)
        if data.source == TEXT:
            sides = parallel_text.find_files(**dict(text_arguments(data)))
            digest = functools.partial(lines_digest, strict=not data.max_bad_records)
            found[section] = describe_files([*sides[0], *sides[1]], digest)
        elif data.source == RECORDS:
            files = named_files(RECORDS, data.data_dir, input_paths(data))
            found[section] = record_files(files, index_files(files))
    if config.sentencepiece_model_path and _needs_vocabulary(config):
        path = Path(config.sentencepiece_model_path).expanduser()
        found["sentencepiece_model_path"] = describe_files([path], content_digest)
    return found


def load_vocabulary(config: TranslationConfig, assets: Assets) -> Vocabulary | None:
    """Returns the vocabulary of a run; of a new run, reads it or builds it from the training text.

    None if all data are ids. Raises `DataError` if the vocabulary cannot be read or built.
    """
    if not (_needs_vocabulary(config) or assets.has(VOCABULARY_FILE)):
        return None
    model = assets.get(
        VOCABULARY_FILE,
        lambda: _make_vocabulary(config).model,
        earlier=lambda: assets.file_of_earlier_version(VOCABULARY_FILE),
    )
    return _parse_vocabulary(model)


@functools.lru_cache(maxsize=4)
def _parse_vocabulary(model: bytes) -> Vocabulary:
    return Vocabulary(model, VOCABULARY_FILE)


def _make_vocabulary(config: TranslationConfig) -> Vocabulary:
    if config.sentencepiece_model_path:
        return _read_vocabulary(config.sentencepiece_model_path)
    data = config.train_data
    sides = (
        parallel_text.find_files(**dict(text_arguments(data))) if data.source == TEXT else ([], [])
    )
    without = parallel_text.find_bad_pairs(sides, data.max_bad_records)
    if without:
        lines, *_ = parallel_text.count_pairs(*sides, strict=False)
        without |= {lines + pair for pair in without}
    return load_or_build_vocabulary(
        files=[*sides[0], *sides[1]],
        size=config.vocab_size,
        character_coverage=config.vocab_character_coverage,
        excluded=without,
    )


def load_pairs(
    data: TranslationDataConfig, vocab_size: int, vocabulary: Vocabulary | None
) -> PairSource:
    """Returns the pairs of a section, loaded into memory once per process.

    `vocabulary` may be None if the pairs are ids. Raises `DataError` if the pairs cannot be read.
    """
    options: dict[str, Any] = {"max_length": data.max_seq_length}
    if data.source == SYNTHETIC:
        options |= {
            "num_examples": data.synthetic.num_examples,
            "kind": data.synthetic.kind,
            "vocab_size": vocab_size,
            "seed": data.seed or 0,
        }
        return _load_cached(data.source, tuple(options.items()))
    options |= dict(text_arguments(data)) | {"is_training": bool(data.is_training)}
    if data.source == TEXT:
        options |= {"vocabulary": vocabulary, "max_bad_records": data.max_bad_records}
    else:
        options["vocab_size"] = vocab_size
        del options["languages"]
    return _load_cached(data.source, tuple(options.items()))


def shared_pairs(
    config: TranslationConfig, excluded_rows: Callable[[], np.ndarray | None]
) -> SharedExamples | None:
    """Returns the validation pairs that are also training pairs, or None.

    `excluded_rows` returns the indices of the training pairs that are left out, or None.
    """
    sections = (config.train_data, config.validation_data)
    advice = "name other files in validation_data"
    if {data.source for data in sections} != {TEXT}:
        files = [[file.path for file in text_files(config).get(name, ())] for name in _SECTIONS]
        return shared_files(files[0], files[1], advice)
    sides = [parallel_text.find_files(**dict(text_arguments(data))) for data in sections]
    paths = [path for pair in sides for side in pair for path in side]
    if sum(path.stat().st_size for path in paths) > _MOST_COMPARED_BYTES:
        files = [[str(path) for path in pair[0]] for pair in sides]
        return shared_files(files[0], files[1], advice)
    train, validation = (bytes_keys(_pair_bytes(*pair)) for pair in sides)
    excluded = excluded_rows()
    if excluded is not None:
        train = np.delete(train, excluded)
    where = f"line {{}} of {_format_paths(sides[1][0])}"
    places = (lambda row: "", lambda row: where.format(row + 1))
    return compare_keys(train, validation, "pairs", places, advice)


def _pair_bytes(sources: list[Path], targets: list[Path]) -> Iterator[bytes]:
    """Yields each sentence with its translation; both are lines."""
    pairs = zip(read_files(sources), read_files(targets), strict=True)
    return (f"{source}\n{target}".encode() for source, target in pairs)


def _needs_vocabulary(config: TranslationConfig) -> bool:
    sources = {config.train_data.source, config.validation_data.source}
    return TEXT in sources or (sources != {SYNTHETIC} and bool(config.sentencepiece_model_path))


def text_arguments(data: TranslationDataConfig) -> tuple[tuple[str, Any], ...]:
    """Returns the arguments of `parallel_text.find_files` for a section, as hashable pairs."""
    split = data.split
    if not split and data.source == TEXT:
        split = "train" if data.is_training else "validation"
    return (
        ("split", split),
        ("data_dir", data.data_dir),
        ("input_path", input_paths(data)),
        ("languages", (data.src_lang, data.tgt_lang)),
    )


@cache_source(maxsize=4)
def _check_text(place: tuple[tuple[str, Any], ...], max_bad_records: int) -> None:
    sources, targets = parallel_text.find_files(**dict(place))
    strict = not max_bad_records
    left, _ = count_lines(sources, strict=strict)
    right, _ = count_lines(targets, strict=strict)
    if left != right:
        raise DataError(
            f"got {left:,} lines in {_format_paths(sources)} and {right:,} in "
            f"{_format_paths(targets)}, expected as many in both: line n of one is the "
            "translation of line n of the other",
            field="input_path",
        )
    parallel_text.find_bad_pairs((sources, targets), max_bad_records)


def _format_paths(paths: list[Path]) -> str:
    return ", ".join(map(str, paths[:3])) + (" …" if paths[3:] else "")


@cache_source(maxsize=4)
def _read_vocabulary(path: str) -> Vocabulary:
    return Vocabulary.load(path)


@cache_source(maxsize=8)
def _load_cached(source: str, options: tuple[tuple[str, Any], ...]) -> PairSource:
    load = TEXT_SOURCES.get(source).load()
    found: PairSource = load(**dict(options))
    return found


__all__ = ["EOS", "VOCABULARY_FILE", "check_files", "load_pairs", "load_vocabulary"]
