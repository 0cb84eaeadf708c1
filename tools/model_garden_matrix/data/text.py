"""Generates sentences, and the vocabularies of tokenizers."""

from __future__ import annotations

import random
import string
from pathlib import Path

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LEXICON = (
    "a the cat dog bird fish house tree river stone red green small large old young sees finds "
    "likes takes gives holds under over near behind and then who what where when slowly quickly"
)
WORDS = tuple(LEXICON.split())


def sentences(count: int, words: int = 6, seed: int = 0) -> list[str]:
    """Returns seeded random sentences: lowercase words separated by spaces, without punctuation."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=words)) for _ in range(count)]


def write_wordpiece(path: Path) -> int:
    """Writes a WordPiece vocabulary, one token per line, and returns the number of tokens.

    It contains special tokens, words, single letters, and letters that continue a word.
    """
    letters = string.ascii_lowercase + string.digits + "?.,"
    single = [letter for letter in letters if letter not in WORDS]
    tokens = [*SPECIAL, *WORDS, *single, *(f"##{letter}" for letter in letters)]
    path.write_text("\n".join(tokens) + "\n")
    return len(tokens)


def write_sentencepiece(path: Path, vocab_size: int = 48) -> Path:
    """Trains a SentencePiece model in which padding, end and unknown are 0, 1 and 2.

    Args:
        path: The model file. Its name must end in `.model`.
        vocab_size: The number of pieces.

    Returns:
        The path.
    """
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences(200)),
        model_prefix=str(path.with_suffix("")),
        vocab_size=vocab_size,
        bos_id=-1,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        minloglevel=2,
    )
    return path
