"""Sentence pairs, and parallel text: two files whose lines are translations of each other.

Does not import TensorFlow. Each way of storing pairs is a subclass of `PairDataset`; the task asks
a dataset, and never which of them it is.
"""

from __future__ import annotations

import abc
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from orbit_runner.config.schema.data import input_paths
from orbit_runner.data.disk_cache import Values, cached
from orbit_runner.data.files import data_folder, named_files
from orbit_runner.data.fingerprint import DataFile, describe_files
from orbit_runner.data.places import Places
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.text.lines import count_lines, lines_digest, read_files
from orbit_runner.data.text.source import PairSource, Ragged, limit_lengths
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary
from orbit_runner.errors import DataError, format_count
from orbit_runner.utils.log import Progress

_NAME = "parallel_text"
_CHUNK_LINES = 16_384
_HINT = (
    "provide two text files with one sentence per line, such as train.en.gz and train.de.gz, or "
    "download a dataset that `runner data list` shows"
)


class PairDataset(abc.ABC):
    """Pairs of sentences that a section of a config names.

    Attributes:
        section: The section, such as `train_data`.
    """

    is_text: ClassVar[bool] = False  # Whether there are files, of which a vocabulary makes ids.

    def __init__(self, section: Any) -> None:
        self.section = section

    @abc.abstractmethod
    def read(self, vocab_size: int, vocabulary: Vocabulary | None) -> PairSource:
        """Returns the pairs, read into memory once per process.

        `vocabulary` may be None if the pairs are ids. Raises `DataError` if they cannot be read.
        """

    def text_files(self) -> tuple[list[Path], list[Path]]:
        """Returns the files with the text of the sources and of the targets; none for ids."""
        return [], []

    def check(self) -> None:
        """Raises `DataError` if a file is missing, empty, not UTF-8, or has other lines."""
        count_pairs(*self.text_files())

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files, with digests of their text."""
        sources, targets = self.text_files()
        return describe_files([*sources, *targets], lines_digest)

    def places(self) -> list[Places]:
        """Returns the lines of the files of each side; [] for no files."""
        sides = [[(str(p), count_lines([p])[0]) for p in side] for side in self.text_files()]
        return [Places(tuple(parts), unit="line") for parts in sides if parts]


class ParallelText(PairDataset):
    """Text files whose lines are translations of each other."""

    is_text = True

    def text_files(self) -> tuple[list[Path], list[Path]]:
        """Returns the files of the sources and of the targets."""
        by_default = "train" if self.section.is_training else "validation"
        return find_files(
            split=self.section.split or by_default,
            data_dir=self.section.data_dir,
            input_path=input_paths(self.section),
            languages=(self.section.src_lang, self.section.tgt_lang),
        )

    def read(self, vocab_size: int, vocabulary: Vocabulary | None) -> PairSource:
        """Returns the pairs, read into memory once per process. Raises `DataError` as `load`."""
        assert vocabulary is not None
        sources, targets = self.text_files()
        return _load(
            tuple(sources),
            tuple(targets),
            vocabulary=vocabulary,
            max_length=self.section.max_seq_length,
            is_training=bool(self.section.is_training),
        )


def find_files(
    *,
    split: str,
    data_dir: str = "",
    input_path: Sequence[str] = (),
    languages: tuple[str, str] = ("", ""),
) -> tuple[list[Path], list[Path]]:
    """Returns the files of the sources and the files of the targets, in order.

    They are `<split>.<language>` or `<split>.<language>.gz` in `data_dir`, in which `~` is the home
    directory. Alternatively, `input_path` is two names or patterns, of the sources and of the
    targets, and `split` is ignored. `languages` are those of the sources and of the targets. Raises
    DataError if a file is missing.
    """
    if not input_path:
        directory = data_folder(_NAME, data_dir, _HINT)
        for field, language in zip(("src_lang", "tgt_lang"), languages, strict=True):
            if not language:
                raise DataError(
                    "is not set; file names are <split>.<language>, such as train.en",
                    field=field,
                    code="not-set",
                )
        source, target = (_find_file(directory, split, language) for language in languages)
        return [source], [target]
    if len(input_path) != 2:
        raise DataError(
            f"{_NAME}: got {format_count(len(input_path), 'name')}, expected 2: one for the "
            "sources and one for the targets; for several files, use a pattern such as news-*.en",
            field="input_path",
            code="not-allowed",
        )
    sources, targets = (named_files(_NAME, data_dir, [name]) for name in input_path)
    return sources, targets


def load(
    sources: Sequence[Path],
    targets: Sequence[Path],
    *,
    vocabulary: Vocabulary,
    max_length: int,
    is_training: bool,
) -> PairSource:
    """Returns the pairs of parallel text as subword ids, in the order of the files.

    `max_length` is the maximum number of tokens of a sentence, including `EOS`. In training, blank
    and longer pairs are left out, and no references are kept; in evaluation, longer sentences are
    truncated, and the references are kept whole. Raises DataError if a file is empty or not UTF-8,
    or if the numbers of lines differ.
    """
    _, source_digest, target_digest = count_pairs(sources, targets)
    pairs = PairSource(
        f"{_NAME} {sources[0].name}",
        _encode_files(vocabulary, sources, source_digest),
        _encode_files(vocabulary, targets, target_digest),
        vocabulary.size,
        references=None if is_training else tuple(read_files(targets)),
    )
    return limit_lengths(pairs, max_length, is_training=is_training)


_load = cache_source(maxsize=8)(load)


def _encode_files(vocabulary: Vocabulary, files: Sequence[Path], digest: str) -> Ragged:
    """Returns the subword ids of each line of the files, one row per line.

    `digest` is the digest of the lines, and part of the cache key.
    """

    def encode() -> Values:
        rows = Ragged.concatenate(list(_encode_chunks(vocabulary, files)))
        return {"values": rows.values, "offsets": rows.offsets}

    key = [hashlib.sha256(vocabulary.model).hexdigest(), digest]
    return Ragged(**cached("text", key, encode))


def _encode_chunks(vocabulary: Vocabulary, files: Sequence[Path]) -> Iterator[Ragged]:
    lines = read_files(files)
    progress = Progress(f"splitting {files[0].name} into subwords")
    num_lines = 0
    while chunk := list(itertools.islice(lines, _CHUNK_LINES)):
        yield vocabulary.encode(chunk)
        num_lines += len(chunk)
        progress(f"{num_lines:,} lines")


def _find_file(directory: Path, split: str, language: str) -> Path:
    names = [f"{split}.{language}{end}" for end in ("", ".gz")]
    for name in names:
        if (directory / name).is_file():
            return directory / name
    others = sorted(path.name for path in directory.iterdir() if path.is_file())
    listing = f"found: {', '.join(others[:8])}" if others else "it contains no files"
    raise DataError(
        f"{_NAME}: no {names[0]} or {names[1]} in {directory}; {listing}",
        field="split",
        code="missing-file",
    )


def count_pairs(sources: Sequence[Path], targets: Sequence[Path]) -> tuple[int, str, str]:
    """Returns the number of pairs and the digests of both sides.

    Raises DataError if the numbers of lines differ.
    """
    source_lines, source = count_lines(sources)
    target_lines, target = count_lines(targets)
    if source_lines != target_lines:
        raise DataError(
            f"got {source_lines:,} lines in {_format_paths(sources)} and {target_lines:,} in "
            f"{_format_paths(targets)}, expected as many in both: line n of one is the "
            "translation of line n of the other",
            field="input_path",
            code="data-mismatch",
        )
    return source_lines, source, target


def _format_paths(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths[:3])) + (" …" if paths[3:] else "")
