"""The vocabulary of a training text: built once, then kept in a file."""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.data.text.lines import count_lines, read_lines
from orbit_runner.data.text.scan_cache import text_cache
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary, build
from orbit_runner.errors import DataError
from orbit_runner.utils.cache import write_aside

# To be raised by whoever changes what is built from the same text.
_VERSION = 1
_MOST_LINES = 2_000_000
_WRITE_BITS = 0o222


def vocabulary_for(
    *,
    path: str = "",
    files: Sequence[Path] = (),
    size: int = 8000,
    character_coverage: float = 0.9999,
) -> Vocabulary:
    """Reads a vocabulary, or builds it from the training text if nobody has yet.

    A built one is kept in the folder of the text, or where that cannot be written in the cache
    folder of the user, under a name that has the size and a digest of the text and the settings.

    Args:
        path: The file of a SentencePiece model; the other arguments have no effect then.
        files: The text of all languages.
        size: The number of ids.
        character_coverage: Share of the text's characters that are pieces.

    Returns:
        The vocabulary.

    Raises:
        DataError: The file is none; the text cannot be read, or has too few words for that size;
            no folder can be written; fields `vocabulary`, `vocab_size`, `input_path`.
    """
    if path:
        return Vocabulary.load(path)
    if not files:
        raise DataError("no file is set, and there is no text to build it from", field="vocabulary")
    lines, digest = count_lines(files)
    settings = [_VERSION, size, character_coverage, digest]
    name = f"vocabulary-{size}-{_digest(settings)}.model"
    # Beside the data, so that all machines that see the data have the same.
    folders = [files[0].absolute().parent, text_cache()]
    kept = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if kept is None:
        step = -(-lines // _MOST_LINES)
        print(f"building a vocabulary of {size:,} from {lines:,} lines", file=sys.stderr)
        text = itertools.islice(_all_lines(files), 0, None, step)
        built = build(text, size=size, character_coverage=character_coverage)
        kept = _keep(built.model, folders, name)
        print(f"vocabulary: {kept}", file=sys.stderr)
    return Vocabulary.load(kept)


def _digest(settings: list[object]) -> str:
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]


def _all_lines(files: Sequence[Path]) -> Iterator[str]:
    return itertools.chain.from_iterable(map(read_lines, files))


def _keep(model: bytes, folders: Sequence[Path], name: str) -> Path:
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # The superuser may write where nobody was meant to.
            if not folder.stat().st_mode & _WRITE_BITS:
                continue
            write_aside(folder / name, model, first_wins=True)
        except OSError:
            continue
        return folder / name
    raise DataError(
        f"it cannot be written to {' nor to '.join(map(str, folders))}; set the file of one",
        field="vocabulary",
    )
