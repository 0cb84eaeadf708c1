"""Recipes for pre-training: masked tokens, replaced tokens, next-sentence prediction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tools.model_garden_matrix.data import text_records as records
from tools.model_garden_matrix.data.text import sentences, write_wordpiece
from tools.model_garden_matrix.recipes.nlp_parts import (
    HIDDEN,
    LENGTH,
    POLYNOMIAL,
    ROWS,
    SMALL_BERT,
    Tree,
    data,
    encoder,
    short_run_overrides,
)

PREDICTIONS = 5
NEXT_SENTENCE = {
    "inner_dim": HIDDEN,
    "num_classes": 2,
    "dropout_rate": 0.1,
    "name": "next_sentence",
}


def _write_masked(folder: Path, v2_names: bool = False) -> tuple[str, int]:
    """Writes masked examples, and returns their path and the size of the vocabulary."""
    vocab = write_wordpiece(folder / "vocab.txt")
    rows = records.mask_tokens(records.token_rows(ROWS, LENGTH, vocab), PREDICTIONS)
    if v2_names:
        new = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
        rows = [{new.get(name, name): value for name, value in row.items()} for row in rows]
    return records.write_records(folder / "masked.tfrecord", rows), vocab


def _masked_data(path: str, training: bool, **more: Any) -> Tree:
    return data(path, training=training, max_predictions_per_seq=PREDICTIONS, **more)


def pretraining(folder: Path, kind: str = "bert", **more: Any) -> Tree:
    """Predicts masked tokens, and whether the second sentence follows the first."""
    path, vocab = _write_masked(folder, v2_names=bool(more))
    return short_run_overrides(
        {
            "model": {"encoder": encoder(vocab, kind), "cls_heads": [NEXT_SENTENCE]},
            "train_data": _masked_data(path, True, **more),
            "validation_data": _masked_data(path, False, **more),
        },
        POLYNOMIAL,
    )


def pretraining_dynamic(folder: Path) -> Tree:
    """Trains as `pretraining` does, on batches of two lengths.

    The pipeline truncates the examples, so the data section of training has no length.
    """
    path, vocab = _write_masked(folder)
    buckets = {"seq_bucket_lengths": [LENGTH // 2, LENGTH], "global_batch_size": 2}
    return short_run_overrides(
        {
            "model": {"encoder": encoder(vocab), "cls_heads": [NEXT_SENTENCE]},
            "train_data": {"input_path": path, "is_training": True, **buckets},
            "validation_data": _masked_data(path, False),
        },
        POLYNOMIAL,
    )


def text_wiki_pretraining(folder: Path) -> Tree:
    """Trains as `pretraining` does, on generated texts instead of a downloaded Wikipedia."""
    vocab = write_wordpiece(folder / "vocab.txt")
    texts = ["\n".join(sentences(4, seed=number)) for number in range(ROWS)]
    path = records.write_records(folder / "wiki.tfrecord", [{"text": text} for text in texts])
    raw = {
        "tfds_name": "",
        "tfds_split": "",
        "vocab_file_path": str(folder / "vocab.txt"),
        "doc_batch_size": 2,
    }
    return short_run_overrides(
        {
            "model": {"encoder": encoder(vocab), "cls_heads": [NEXT_SENTENCE]},
            "train_data": _masked_data(path, True, **raw),
            "validation_data": _masked_data(path, False, **raw),
        },
        POLYNOMIAL,
    )


def electra(folder: Path) -> Tree:
    """Detects the tokens that a small generator put in place of masked ones."""
    path, vocab = _write_masked(folder)
    return short_run_overrides(
        {
            "model": {
                "generator_encoder": encoder(vocab),
                "discriminator_encoder": encoder(vocab),
                "num_masked_tokens": PREDICTIONS,
                "sequence_length": LENGTH,
                "cls_heads": [NEXT_SENTENCE],
            },
            "train_data": _masked_data(path, True),
            "validation_data": _masked_data(path, False),
        },
        POLYNOMIAL,
    )


def teams(folder: Path) -> Tree:
    """Trains as `electra` does, and also selects the masked token from candidates.

    Two of the three layers are shared.
    """
    path, vocab = _write_masked(folder)
    sizes = {**SMALL_BERT, "vocab_size": vocab}
    return short_run_overrides(
        {
            "model": {
                "candidate_size": 3,
                "num_shared_generator_hidden_layers": 1,
                "num_discriminator_task_agnostic_layers": 2,
                "generator": sizes,
                "discriminator": {**sizes, "num_layers": 3},
            },
            "train_data": _masked_data(path, True),
            "validation_data": _masked_data(path, False),
        },
        POLYNOMIAL,
    )


RECIPES: dict[str, Callable[[Path], Tree]] = {
    "bert/pretraining": pretraining,
    "bert/pretraining_dynamic": pretraining_dynamic,
    "bert/text_wiki_pretraining": text_wiki_pretraining,
    "electra/pretraining": electra,
    "roformer/pretraining": partial(pretraining, kind="any", use_v2_feature_names=True),
    "teams/pretraining": teams,
}
