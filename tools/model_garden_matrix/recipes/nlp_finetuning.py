"""Recipes for fine-tuning: sentence classification, tagging, question answering."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools.model_garden_matrix.data import text_records as records
from tools.model_garden_matrix.data.text import sentences, write_wordpiece
from tools.model_garden_matrix.data.text_squad import write_squad
from tools.model_garden_matrix.recipes.nlp_parts import (
    BATCH,
    LENGTH,
    POLYNOMIAL,
    ROWS,
    Tree,
    data,
    encoder,
    short_run_overrides,
)

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
# BigBird attends to three adjacent blocks and two random ones; 16 blocks have room for both.
BIGBIRD: Tree = {"block_size": 4, "num_rand_blocks": 2, "max_position_embeddings": 64}


def sentence_prediction(
    folder: Path, kind: str = "bert", length: int = LENGTH, **more: int
) -> Tree:
    """Classifies pairs of tokenized sentences."""
    vocab = write_wordpiece(folder / "vocab.txt")
    rows = records.add_classes(records.token_rows(ROWS, length, vocab))
    path = records.write_records(folder / "pairs.tfrecord", rows)
    return short_run_overrides(
        {
            "model": {"num_classes": 2, "encoder": encoder(vocab, kind, **more)},
            "train_data": data(path, training=True, length=length),
            "validation_data": data(path, training=False, length=length),
        },
        POLYNOMIAL,
    )


def sentence_prediction_text(folder: Path) -> Tree:
    """Classifies pairs of raw sentences."""
    vocab = write_wordpiece(folder / "vocab.txt")
    pairs = zip(sentences(ROWS), sentences(ROWS, seed=1), strict=True)
    rows = [
        {"sentence1": first, "sentence2": second, "label": number % 2}
        for number, (first, second) in enumerate(pairs)
    ]
    path = records.write_records(folder / "pairs.tfrecord", rows)
    raw: Tree = {
        "text_fields": ["sentence1", "sentence2"],
        "vocab_file": str(folder / "vocab.txt"),
    }
    return short_run_overrides(
        {
            "model": {"num_classes": 2, "encoder": encoder(vocab)},
            "train_data": data(path, training=True, **raw),
            "validation_data": data(path, training=False, **raw),
        },
        POLYNOMIAL,
    )


def tagging(folder: Path) -> Tree:
    """Tags tokens."""
    vocab = write_wordpiece(folder / "vocab.txt")
    rows = records.add_tags(records.token_rows(ROWS, LENGTH, vocab), len(TAGS))
    path = records.write_records(folder / "tags.tfrecord", rows)
    return short_run_overrides(
        {
            "class_names": TAGS,
            "model": {"encoder": encoder(vocab)},
            "train_data": data(path, training=True),
            "validation_data": data(path, training=False),
        },
        POLYNOMIAL,
    )


def squad(folder: Path, kind: str = "bert", length: int = LENGTH, **more: int) -> Tree:
    """Answers questions: trains on token ids, and evaluates on SQuAD's JSON."""
    vocab = write_wordpiece(folder / "vocab.txt")
    rows = records.add_answer_spans(records.token_rows(ROWS, length, vocab))
    path = records.write_records(folder / "train.tfrecord", rows)
    raw: Tree = {"vocab_file": str(folder / "vocab.txt"), "query_length": 8, "doc_stride": 8}
    questions = write_squad(folder / "dev.json", BATCH)
    return short_run_overrides(
        {
            "model": {"encoder": encoder(vocab, kind, **more)},
            "train_data": data(path, training=True, length=length),
            "validation_data": data(questions, training=False, length=length, **raw),
        },
        POLYNOMIAL,
    )


_bigbird_glue = partial(sentence_prediction, kind="bigbird", length=64, **BIGBIRD)
_bigbird_squad = partial(squad, kind="bigbird", length=64, **BIGBIRD)

RECIPES: dict[str, Callable[[Path], Tree]] = {
    "bert/sentence_prediction": sentence_prediction,
    "bert/sentence_prediction_text": sentence_prediction_text,
    "bert/squad": squad,
    "bert/squad_qat": squad,
    "bert/tagging": tagging,
    "bigbird/glue": _bigbird_glue,
    "bigbird/squad": _bigbird_squad,
    "roformer/glue": partial(sentence_prediction, kind="any"),
    "teams/sentence_prediction": partial(sentence_prediction, kind="any"),
    "teams/squad": partial(squad, kind="any"),
}
