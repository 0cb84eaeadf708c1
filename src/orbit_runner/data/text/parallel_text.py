"""Parallel text: two files whose lines are translations of each other."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.config.schema.data import input_paths
from orbit_runner.data.bad_records import check_bad_records
from orbit_runner.data.disk_cache import Values, cached
from orbit_runner.data.files import data_folder, named_files
from orbit_runner.data.fingerprint import DataFile, describe_files
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.text.dataset import FileLines, PairDataset
from orbit_runner.data.text.lines import count_lines, find_bad_lines, lines_digest, read_files
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


class ParallelText(PairDataset):
    """Text files whose lines are translations of each other."""

    is_text = True

    def text_files(self) -> tuple[list[Path], list[Path]]:
        """Returns the files of the sources and of the targets."""
        return find_files(**self._places())

    def options(self, vocab_size: int, vocabulary: Vocabulary | None) -> dict[str, object]:
        """Returns the arguments of `load`."""
        return self._places() | {
            "max_length": self.section.max_seq_length,
            "is_training": bool(self.section.is_training),
            "vocabulary": vocabulary,
            "max_bad_records": self.section.max_bad_records,
        }

    def check(self, vocab_size: int, vocabulary: Vocabulary | None) -> None:
        """Raises `DataError` if a file is missing, empty, not UTF-8, or has other lines."""
        limit = self.section.max_bad_records
        sources, targets = self.text_files()
        _check_lines(tuple(sources), tuple(targets), limit)

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files, with digests of their text."""
        sources, targets = self.text_files()
        digest = functools.partial(lines_digest, strict=self._is_strict)
        return describe_files([*sources, *targets], digest)

    def bad_pairs(self) -> frozenset[int]:
        """Returns the numbers of the pairs with a line that is not UTF-8."""
        return find_bad_pairs(self.text_files(), self.section.max_bad_records)

    def places(self) -> list[list[FileLines]]:
        """Returns the files of both sides."""
        return [
            [FileLines(path, count_lines([path], strict=self._is_strict)[0]) for path in side]
            for side in self.text_files()
        ]

    @property
    def _is_strict(self) -> bool:
        """Whether a line that is not UTF-8 is an error."""
        return not self.section.max_bad_records

    def _places(self) -> dict[str, Any]:
        """Returns the arguments of `find_files`."""
        by_default = "train" if self.section.is_training else "validation"
        return {
            "split": self.section.split or by_default,
            "data_dir": self.section.data_dir,
            "input_path": input_paths(self.section),
            "languages": (self.section.src_lang, self.section.tgt_lang),
        }


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
    *,
    split: str,
    data_dir: str = "",
    input_path: Sequence[str] = (),
    languages: tuple[str, str] = ("", ""),
    vocabulary: Vocabulary,
    max_length: int,
    is_training: bool,
    max_bad_records: int = 0,
) -> PairSource:
    """Returns the pairs of parallel text as subword ids, in the order of the files.

    The first four arguments are those of `find_files`. `max_length` is the maximum number of tokens
    of a sentence, including `EOS`. In training, blank and longer pairs are left out, and no
    references are kept; in evaluation, longer sentences are truncated, and the references are kept
    whole. Up to `max_bad_records` pairs are left out because a line is not UTF-8. Raises DataError
    if a file is missing, empty or not UTF-8, or if the numbers of lines differ.
    """
    sides = find_files(split=split, data_dir=data_dir, input_path=input_path, languages=languages)
    excluded = find_bad_pairs(sides, max_bad_records)
    lines, *digests = count_pairs(*sides, strict=not max_bad_records)
    sources, targets = (
        _encode_files(vocabulary, files, digest, excluded)
        for files, digest in zip(sides, digests, strict=True)
    )
    references = None if is_training else tuple(read_files(sides[1], excluded))
    name = f"{_NAME} {sides[0][0].name}"
    pairs = PairSource(name, sources, targets, vocabulary.size, references)
    pairs = limit_lengths(pairs, max_length, is_training=is_training)
    return _expand_kept(pairs, lines, excluded) if excluded else pairs


ParallelText.reader = staticmethod(load)


def _encode_files(
    vocabulary: Vocabulary,
    files: Sequence[Path],
    digest: str,
    excluded: Collection[int] = frozenset(),
) -> Ragged:
    """Returns the subword ids of each line of the files, one row per line.

    `digest` is the digest of the lines, and part of the cache key. `excluded` are the lines to
    leave out: see `read_files`.
    """
    key = [hashlib.sha256(vocabulary.model).hexdigest(), digest, sorted(excluded)]

    def encode() -> Values:
        rows = Ragged.concatenate(list(_encode_chunks(vocabulary, files, excluded)))
        return {"values": rows.values, "offsets": rows.offsets}

    return Ragged(**cached("text", key, encode))


def _encode_chunks(
    vocabulary: Vocabulary, files: Sequence[Path], excluded: Collection[int]
) -> Iterator[Ragged]:
    lines = read_files(files, excluded)
    progress = Progress(f"splitting {files[0].name} into subwords")
    done = 0
    while chunk := list(itertools.islice(lines, _CHUNK_LINES)):
        yield vocabulary.encode(chunk)
        done += len(chunk)
        progress(f"{done:,} lines")


@cache_source(maxsize=4)
def _check_lines(sources: tuple[Path, ...], targets: tuple[Path, ...], limit: int) -> None:
    count_pairs(sources, targets, strict=not limit)
    find_bad_pairs((sources, targets), limit)


def find_bad_pairs(sides: tuple[Sequence[Path], Sequence[Path]], limit: int) -> frozenset[int]:
    """Returns the numbers of the pairs, from 0, that have a line that is not UTF-8.

    Logs them once per process. If `limit` is 0, returns none without reading the files. Raises
    DataError if there are more than `limit`.
    """
    if not limit or not sides[0]:
        return frozenset()
    return _bad_pairs(tuple(sides[0]), tuple(sides[1]), limit)


@cache_source(maxsize=8)
def _bad_pairs(sources: tuple[Path, ...], targets: tuple[Path, ...], limit: int) -> frozenset[int]:
    total, *_ = count_pairs(sources, targets, strict=False)
    problems = find_bad_lines(targets) | find_bad_lines(sources)
    name = f"{_NAME} {sources[0].name}"
    check_bad_records(name, problems, limit, total, "pairs")
    return frozenset(problems)


def _expand_kept(pairs: PairSource, lines: int, excluded: Collection[int]) -> PairSource:
    """Returns the pairs with `kept` extended to all `lines` of the files."""
    kept = np.ones(lines, bool)
    kept[list(excluded)] = False
    if pairs.kept is not None:
        kept[np.flatnonzero(kept)] = pairs.kept
    return dataclasses.replace(pairs, kept=kept)


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


def count_pairs(
    sources: Sequence[Path], targets: Sequence[Path], *, strict: bool = True
) -> tuple[int, str, str]:
    """Returns the number of pairs and the digests of both sides; for `strict`, see `count_lines`.

    Raises DataError if the numbers of lines differ.
    """
    source_lines, source = count_lines(sources, strict=strict)
    target_lines, target = count_lines(targets, strict=strict)
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
