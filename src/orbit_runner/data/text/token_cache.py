"""Caches the token ids of files between runs if they took long to compute."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import time
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.data.text.lines import read_files
from orbit_runner.data.text.scan_cache import text_cache
from orbit_runner.data.text.source import Ragged
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary
from orbit_runner.utils.cache import write_shared_file
from orbit_runner.utils.log import Progress

_CHUNK_LINES = 16_384
# Results that took less time are not worth the space.
_KEPT_SECONDS = 5.0


def encode_files(
    vocabulary: Vocabulary,
    files: Sequence[Path],
    digest: str,
    excluded: Collection[int] = frozenset(),
) -> Ragged:
    """Returns the subword ids of each line of the files, one row per line.

    `digest` is the digest of the lines, and part of the cache key. `excluded` are the lines to
    leave out: see `read_files`.
    """
    key: list[object] = [hashlib.sha256(vocabulary.model).hexdigest(), digest]
    if excluded:
        key.append(sorted(excluded))
    (rows,) = load_or_encode(
        key, lambda: [Ragged.concatenate(list(_encode_chunks(vocabulary, files, excluded)))]
    )
    return rows


def load_or_encode(key: object, make: Callable[[], list[Ragged]]) -> list[Ragged]:
    """Returns the rows that `make` returns, from the cache if they are in it.

    `key` is everything that the rows depend on, and must be serializable as JSON.
    """
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
    entry = text_cache() / f"{name}.npz"
    encoded = _read(entry)
    if encoded is not None:
        return encoded
    began = time.monotonic()
    encoded = make()
    if time.monotonic() - began > _KEPT_SECONDS:
        # If the cache cannot be written, the next run only takes longer.
        with contextlib.suppress(OSError):
            _write(entry, encoded)
    return encoded


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


def _read(entry: Path) -> list[Ragged] | None:
    try:
        with np.load(entry) as arrays:
            count = len(arrays.files) // 2
            return [Ragged(arrays[f"values{k}"], arrays[f"offsets{k}"]) for k in range(count)]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _write(entry: Path, sides: Sequence[Ragged]) -> None:
    arrays: dict[str, Any] = {}
    for k, rows in enumerate(sides):
        arrays |= {f"values{k}": rows.values, f"offsets{k}": rows.offsets}
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_shared_file(entry, content.getbuffer())
