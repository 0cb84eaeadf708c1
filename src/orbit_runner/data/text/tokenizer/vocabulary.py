"""A vocabulary of subwords, shared by both languages; does not need TensorFlow."""

from __future__ import annotations

import functools
import importlib
import io
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import sentencepiece

from orbit_runner.data.disk_cache import Values, cached
from orbit_runner.data.text.lines import count_lines, read_files
from orbit_runner.data.text.source import EOS, PAD, UNKNOWN, Ragged
from orbit_runner.errors import DataError, cut_at_word
from orbit_runner.utils.log import note

# The characters that are treated as spaces, as a regular expression for both Python and RE2. A
# tokenizer in another language must replace them first. Pieces contain U+2581 in place of a
# space, so text must not contain it.
SPACES = (
    "[\\x00-\\x20\\x7f\\x85\\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u2581\u3000\ufeff]+"
)
_SPACES = re.compile(SPACES)
# The model depends on the number of threads, so that number must not depend on the machine.
_THREADS = 8
_BATCH_LINES = 16_384
_MOST_LINES = 2_000_000


class Vocabulary:
    """A SentencePiece model with id 0 for padding, 1 for the end of text and 2 for unknown text.

    `model` is a serialized SentencePiece model. `pieces` are the subwords by id, with U+2581 for a
    space. `scores` are their log probabilities. Raises DataError if `model` is not a SentencePiece
    model or has other ids.
    """

    def __init__(self, model: bytes, name: str = "vocabulary") -> None:
        self.model = model
        self._name = name
        self._processor = _processor(model, name)
        _check_ids(self._processor, name)
        ids = range(self._processor.vocab_size())
        try:
            self.pieces: list[str] = [self._processor.id_to_piece(number) for number in ids]
        except UnicodeDecodeError as error:
            raise _error(f"{name}: has a piece that is not valid UTF-8 ({error.reason})") from None
        self.scores: list[float] = [self._processor.get_score(number) for number in ids]

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Returns the vocabulary in a model file; `~` in the path is the home directory.

        Raises DataError if the file cannot be read, is not a SentencePiece model or has other ids.
        """
        path = Path(path).expanduser()
        try:
            return cls(path.read_bytes(), str(path))
        except OSError as error:
            raise _error(
                f"{path}: cannot be read ({error.strerror}); leave it unset to build one from "
                "the training text",
                code="unreadable-file",
            ) from None

    @property
    def size(self) -> int:
        """The number of ids."""
        return len(self.pieces)

    def encode(self, lines: Sequence[str]) -> Ragged:
        """Returns the subword ids of each sentence as a row that ends with `EOS`."""
        parts = []
        for first in range(0, len(lines), _BATCH_LINES):
            cleaned = [clean(line) for line in lines[first : first + _BATCH_LINES]]
            parts.append(Ragged.from_rows(self._processor.encode(cleaned, add_eos=True)))
        return Ragged.concatenate(parts)

    def decode(self, rows: Iterable[Sequence[int]]) -> list[str]:
        """Returns the sentences of rows of ids.

        Padding, and all ids from the first `EOS`, are ignored. Unknown ids become ` ⁇ `. Sentences
        have no leading, trailing or repeated spaces.
        """
        known = range(self.size)
        numbers = [[int(n) if n in known else UNKNOWN for n in row] for row in rows]
        until = [row[: row.index(EOS)] if EOS in row else row for row in numbers]
        return [clean(text) for text in self._processor.decode(until)] if until else []

    def check_reproducible(self) -> None:
        """Raises DataError with the field `vocabulary` if `GraphTokenizer` cannot use the model."""
        # Imported here because it needs protobuf, which is slow to import.
        messages = importlib.import_module("sentencepiece.sentencepiece_model_pb2")
        proto = messages.ModelProto.FromString(self.model)
        trainer = proto.trainer_spec
        others = {
            "model_type": (trainer.model_type, trainer.UNIGRAM),
            "byte_fallback": (trainer.byte_fallback, False),
            "treat_whitespace_as_suffix": (trainer.treat_whitespace_as_suffix, False),
            "user_defined_symbols": (sum(p.type == p.USER_DEFINED for p in proto.pieces), 0),
        }
        wrong = [name for name, (got, expected) in others.items() if got != expected]
        if wrong:
            raise _error(
                f"{self._name}: the model splits text in a way that TensorFlow cannot reproduce, "
                f"because of its {', '.join(wrong)}; build it with --model_type=unigram, "
                "or leave it unset"
            )


def clean(line: str) -> str:
    """Returns a sentence with one space between words, and without leading or trailing spaces.

    Control characters are treated as spaces.
    """
    return _SPACES.sub(" ", line).strip(" ")


def build_vocabulary(
    lines: Iterable[str], *, size: int, character_coverage: float = 0.9999
) -> Vocabulary:
    """Returns a vocabulary built from sentences of all languages.

    It is a unigram model (Kudo, Subword Regularization, ACL 2018, section 3.2). Text is not
    normalized except for spaces. The same sentences give the same vocabulary. `size` is the number
    of ids. `character_coverage` is the fraction of the text's characters that are pieces; the
    rarest others are unknown. Raises DataError if the text has too few different words, or too many
    different characters, for that size.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=filter(None, map(clean, lines)),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            character_coverage=character_coverage,
            normalization_rule_name="identity",
            pad_id=PAD,
            eos_id=EOS,
            unk_id=UNKNOWN,
            bos_id=-1,
            num_threads=_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _build_error(size, str(error)) from None
    return Vocabulary(model.getvalue())


def vocabulary_of_text(
    files: Sequence[Path], *, size: int, character_coverage: float = 0.9999
) -> Vocabulary:
    """Returns the vocabulary of training text, which is built once and cached.

    Raises DataError if the text cannot be read or has too few words.
    """
    return _vocabulary_of_text(tuple(files), size, character_coverage, *count_lines(files))


@functools.lru_cache(maxsize=4)
def _vocabulary_of_text(
    files: tuple[Path, ...], size: int, character_coverage: float, lines: int, digest: str
) -> Vocabulary:
    def build() -> Values:
        note(f"building a vocabulary of {size:,} subwords from {lines:,} lines")
        text = itertools.islice(read_files(files), 0, None, -(-lines // _MOST_LINES))
        built = build_vocabulary(text, size=size, character_coverage=character_coverage)
        return {"model": np.frombuffer(built.model, np.uint8)}

    values = cached("text", ["vocabulary", size, character_coverage, digest], build)
    return Vocabulary(values["model"].tobytes())


def _processor(model: bytes, name: str) -> sentencepiece.SentencePieceProcessor:
    try:
        # If the model is empty, the processor has no model but raises no error.
        if model:
            return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        pass
    raise _error(f"{name}: is not a SentencePiece model ({len(model):,} bytes)")


def _check_ids(processor: sentencepiece.SentencePieceProcessor, name: str) -> None:
    got = {"pad": processor.pad_id(), "eos": processor.eos_id(), "unk": processor.unk_id()}
    expected = {"pad": PAD, "eos": EOS, "unk": UNKNOWN}
    if got != expected:
        raise _error(
            f"{name}: got ids {_format_ids(got)}, expected {_format_ids(expected)}; "
            "train it with --pad_id=0 --eos_id=1 --unk_id=2 --bos_id=-1, or leave it unset"
        )


def _format_ids(ids: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in ids.items())


def _build_error(size: int, reason: str) -> DataError:
    if "sentences_.empty()" in reason:
        return _error(
            "got no words, expected text to build the vocabulary from",
            "input_path",
            code="empty-data",
        )
    text = reason.rpartition("] ")[2]  # SentencePiece begins with a line of its source.
    return _error(
        f"cannot build a vocabulary of {size:,} subwords: {cut_at_word(text)}",
        "vocab_size",
        code="out-of-range",
    )


def _error(message: str, field: str = "vocabulary", *, code: str = "damaged-file") -> DataError:
    return DataError(message, field=field, code=code)
