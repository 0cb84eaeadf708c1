"""A target: a parser or reader, valid files for it, and what it must do with any other."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from orbit_runner.errors import RunnerError
from tools.fuzz.mutations import mutate

# Longer messages do not fit on a screen: 12 problems of a few lines each.
_LONGEST_MESSAGE = 40_000
CORPUS = Path(__file__).resolve().parents[2] / "tests" / "fuzz" / "corpus"


# Returns valid contents; the directory is empty.
Seeds = Callable[[Path], Sequence[bytes]]


class Unclear(Exception):
    """An error of the runner whose message does not name the file, or is too long."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A function that reads a file, and valid contents for it.

    Attributes:
        name: The name on the command line.
        file: The name of the file.
        seeds: Returns valid contents.
        read: Reads the file. Any error except `RunnerError` is a problem.
        names_file: Whether messages must name the file.
        words: Texts to insert, such as names of settings.
        frame: Returns the content of the file from a mutated content, such as one with checksums.
    """

    name: str
    file: str
    seeds: Seeds
    read: Callable[[Path], object]
    names_file: bool = True
    words: Callable[[], Sequence[bytes]] = tuple
    frame: Callable[[bytes], bytes] = bytes


class Case:
    """Prepares a target in a directory, and runs it on contents."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target, self.path = target, folder / target.file
        folder.mkdir(parents=True, exist_ok=True)
        self.seeds = [*target.seeds(folder)]
        self._words = [*target.words()]

    def content(self, seed: int, number: int) -> bytes:
        """Returns the content of a case. The first cases are the valid contents."""
        if number < len(self.seeds):
            return self.seeds[number]
        draws = random.Random(f"{self.target.name}/{seed}/{number}")
        return mutate(self.seeds, self._words, draws)

    def run(self, content: bytes) -> bool:
        """Reads content, and returns whether it was valid.

        Raises:
            Unclear: The message of an error is not as it should be.
            Exception: What the reader raised instead of a `RunnerError`.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(self.target.frame(content))
        try:
            self.target.read(self.path)
        except RunnerError as error:
            message = str(error)
            if len(message) > _LONGEST_MESSAGE:
                raise Unclear(f"a message of {len(message):,} characters") from error
            if self.target.names_file and self.path.name not in message:
                raise Unclear(f"the message does not name the file: {message[:300]}") from error
            return False
        return True


def kept_contents(name: str) -> list[Path]:
    """Returns the files of the corpus for a target: contents that were problems once."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())
