"""Parallel text: two files whose lines are translations of each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from orbit_runner.data.files import data_folder, named_files
from orbit_runner.data.text.limits import within_limits
from orbit_runner.data.text.lines import count_lines, read_lines
from orbit_runner.data.text.source import PairSource
from orbit_runner.data.text.token_cache import encode_files
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary
from orbit_runner.errors import DataError

_NAME = "parallel_text"
_HINT = (
    "provide two text files with one sentence per line, such as train.en.gz and train.de.gz, or "
    "download a dataset that `runner data list` shows"
)


def find(
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
        folder = data_folder(_NAME, data_dir, _HINT)
        for field, language in zip(("src_lang", "tgt_lang"), languages, strict=True):
            if not language:
                raise DataError(
                    "is not set; file names are <split>.<language>, such as train.en",
                    field=field,
                )
        source, target = (_find(folder, split, language) for language in languages)
        return [source], [target]
    if len(input_path) != 2:
        raise DataError(
            f"{_NAME}: got {len(input_path)} names, expected 2: one for the sources and one for "
            "the targets; for several files, use a pattern such as news-*.en",
            field="input_path",
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
) -> PairSource:
    """Returns the pairs of parallel text as subword ids, in the order of the files.

    The first four arguments are those of `find`. `max_length` is the maximum number of tokens of a
    sentence, including `EOS`. In training, blank and longer pairs are left out, and no references
    are kept; in evaluation, longer sentences are truncated, and the references are kept whole.
    Raises DataError if a file is missing, empty or not UTF-8, or if the numbers of lines differ.
    """
    sides = find(split=split, data_dir=data_dir, input_path=input_path, languages=languages)
    digests = _pair_digests(*sides)
    sources, targets = (
        encode_files(vocabulary, files, digest)
        for files, digest in zip(sides, digests, strict=True)
    )
    references = None if is_training else tuple(chain.from_iterable(map(read_lines, sides[1])))
    name = f"{_NAME} {sides[0][0].name}"
    pairs = PairSource(name, sources, targets, vocabulary.size, references)
    return within_limits(pairs, max_length, is_training=is_training)


def _find(folder: Path, split: str, language: str) -> Path:
    names = [f"{split}.{language}{end}" for end in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    others = sorted(path.name for path in folder.iterdir() if path.is_file())
    there = f"found: {', '.join(others[:8])}" if others else "it contains no files"
    raise DataError(f"{_NAME}: no {names[0]} or {names[1]} in {folder}; {there}", field="split")


def _pair_digests(sources: Sequence[Path], targets: Sequence[Path]) -> tuple[str, str]:
    """Returns the digests of both sides; raises DataError if the numbers of lines differ."""
    (source_lines, source), (target_lines, target) = count_lines(sources), count_lines(targets)
    if source_lines != target_lines:
        raise DataError(
            f"got {source_lines:,} lines in {_format_paths(sources)} and {target_lines:,} in "
            f"{_format_paths(targets)}, expected the same number: one line is the translation of "
            "the other",
            field="input_path",
        )
    return source, target


def _format_paths(paths: Sequence[Path]) -> str:
    more = f" (and {len(paths) - 1} more)" if paths[1:] else ""
    return f"{paths[0]}{more}"
