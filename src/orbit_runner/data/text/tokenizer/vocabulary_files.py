"""The vocabulary of a training text, which is built once and stored in a file."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Collection, Sequence
from pathlib import Path

from orbit_runner.data.text.lines import count_lines, read_files
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary, build_vocabulary
from orbit_runner.errors import DataError, format_choices
from orbit_runner.utils.cache import cache_directory, write_shared_file
from orbit_runner.utils.log import note

# Increase this if a change makes the same text give another vocabulary.
_VERSION = 1
_MOST_LINES = 2_000_000
_WRITE_BITS = 0o222


def load_or_build_vocabulary(
    *,
    path: str = "",
    files: Sequence[Path] = (),
    size: int = 8000,
    character_coverage: float = 0.9999,
    excluded: Collection[int] = frozenset(),
) -> Vocabulary:
    """Returns the vocabulary in a file, or that of the training text, which is built if needed.

    A built vocabulary is stored in the directory of the text or, if that is not writable, in the
    user's cache directory. Its file name has the size and a digest of the text and the settings.
    `excluded` are the lines to leave out: see `read_files`. If `path` is set, the other arguments
    are ignored. Raises DataError if the file is not a valid vocabulary, if the text cannot be read
    or has too few words, or if no directory is writable.
    """
    if path:
        return Vocabulary.load(path)
    if not files:
        raise DataError(
            "no file is set, and there is no text to build a vocabulary from",
            field="vocabulary",
            code="not-set",
        )
    lines, digest = count_lines(files, strict=not excluded)
    settings: list[object] = [_VERSION, size, character_coverage, digest]
    if excluded:
        settings.append(sorted(excluded))
        lines -= len(excluded)
    name = f"vocabulary-{size}-{_digest(settings)}.model"
    # Next to the data, so that all machines with access to the data use the same vocabulary.
    directories = [files[0].absolute().parent, cache_directory("text")]
    kept = next(
        (directory / name for directory in directories if (directory / name).is_file()), None
    )
    if kept is None:
        step = -(-lines // _MOST_LINES)
        note(f"building a vocabulary of {size:,} subwords from {lines:,} lines")
        text = itertools.islice(read_files(files, excluded), 0, None, step)
        built = build_vocabulary(text, size=size, character_coverage=character_coverage)
        kept = _store_model(built.model, directories, name)
        note(f"vocabulary: {kept}")
    return Vocabulary.load(kept)


def _digest(settings: list[object]) -> str:
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]


def _store_model(model: bytes, directories: Sequence[Path], name: str) -> Path:
    for directory in directories:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # The superuser can also write to read-only directories.
            if not directory.stat().st_mode & _WRITE_BITS:
                continue
            write_shared_file(directory / name, model, first_wins=True)
        except OSError:
            continue
        return directory / name
    raise DataError(
        f"cannot be written to {format_choices(directories)}; set it to an existing model file",
        field="vocabulary",
        code="not-writable",
    )
