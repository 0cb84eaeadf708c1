"""TFRecords in the format of BERT's preprocessing: token ids, masks, labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tools.model_garden_matrix.data.text import SPECIAL

CLS, SEP, MASK = (SPECIAL.index(token) for token in ("[CLS]", "[SEP]", "[MASK]"))
Row = Mapping[str, Any]


def write_records(path: Path, rows: Iterable[Row]) -> str:
    """Writes a TFRecord file of `tf.Example`s, and returns its path as a string.

    The features of a row are integers, floats, bytes, or lists of one of these.
    """
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            features = {name: _feature(tf, value) for name, value in row.items()}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return str(path)


def _feature(tf: Any, value: Any) -> Any:
    values = np.ravel(value).tolist()
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if isinstance(values[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    texts = [text if isinstance(text, bytes) else text.encode() for text in values]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))


def token_rows(count: int, length: int, vocab: int) -> list[dict[str, Any]]:
    """Returns examples of two padded segments of random tokens.

    Args:
        count: The number of examples.
        length: The number of tokens per example, including padding.
        vocab: The size of the vocabulary.

    Returns:
        Rows with `input_ids`, `input_mask` and `segment_ids`: int64, [length].
    """
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(count):
        used = int(draw.integers(length // 2, length + 1))
        ids = np.zeros(length, np.int64)
        ids[:used] = draw.integers(len(SPECIAL), vocab, used)
        ids[0], ids[used // 2], ids[used - 1] = CLS, SEP, SEP
        places = np.arange(length)
        mask = (places < used).astype(np.int64)
        segments = ((places > used // 2) & (places < used)).astype(np.int64)
        rows.append({"input_ids": ids, "input_mask": mask, "segment_ids": segments})
    return rows


def add_classes(rows: list[dict[str, Any]], classes: int = 2) -> list[dict[str, Any]]:
    """Adds `label_ids`: the class of each example."""
    return [{**row, "label_ids": number % classes} for number, row in enumerate(rows)]


def add_tags(rows: list[dict[str, Any]], classes: int) -> list[dict[str, Any]]:
    """Adds `label_ids`: the class of each token, and -1 for padding."""
    return [
        {**row, "label_ids": np.where(row["input_mask"] > 0, row["input_ids"] % classes, -1)}
        for row in rows
    ]


def add_answer_spans(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds `start_positions` and `end_positions`: the place of an answer."""
    return [{**row, "start_positions": 3, "end_positions": 5} for row in rows]


def mask_tokens(rows: list[dict[str, Any]], predictions: int) -> list[dict[str, Any]]:
    """Replaces the first tokens after [CLS] with [MASK], and adds the labels.

    Args:
        rows: The rows of `token_rows`.
        predictions: The number of masked tokens per row.

    Returns:
        The rows with the features of masked language modeling and next-sentence prediction.
    """
    made = []
    for number, row in enumerate(rows):
        places = np.arange(1, predictions + 1)
        ids = row["input_ids"].copy()
        truth, ids[places] = ids[places].copy(), MASK
        made.append(
            {
                **row,
                "input_ids": ids,
                "masked_lm_positions": places,
                "masked_lm_ids": truth,
                "masked_lm_weights": np.ones(predictions, np.float32),
                "next_sentence_labels": number % 2,
            }
        )
    return made
