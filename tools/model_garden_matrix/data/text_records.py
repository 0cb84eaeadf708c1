"""TFRecords as the preprocessing of BERT leaves them: token ids, masks, labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tools.model_garden_matrix.data.text import SPECIAL

CLS, SEP, MASK = (SPECIAL.index(token) for token in ("[CLS]", "[SEP]", "[MASK]"))
Row = Mapping[str, Any]


def write_records(path: Path, rows: Iterable[Row]) -> str:
    """Writes a TFRecord file of `tf.Example`s.

    Args:
        path: The file.
        rows: The features of each record: integers, floats, bytes, or lists of one of these.

    Returns:
        The path, as settings take it.
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
    """Returns two segments of random tokens an example, padded.

    Args:
        count: How many examples.
        length: Tokens in each, padding included.
        vocab: Tokens are below this.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, [length] int64 each.
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


def classified(rows: list[dict[str, Any]], classes: int = 2) -> list[dict[str, Any]]:
    """Adds `label_ids`, the class of each example."""
    return [{**row, "label_ids": number % classes} for number, row in enumerate(rows)]


def tagged(rows: list[dict[str, Any]], classes: int) -> list[dict[str, Any]]:
    """Adds `label_ids`, a class for each token, and -1 where there is none."""
    return [
        {**row, "label_ids": np.where(row["input_mask"] > 0, row["input_ids"] % classes, -1)}
        for row in rows
    ]


def spanned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds `start_positions` and `end_positions` of an answer."""
    return [{**row, "start_positions": 3, "end_positions": 5} for row in rows]


def masked(rows: list[dict[str, Any]], predictions: int) -> list[dict[str, Any]]:
    """Puts [MASK] over the first tokens after [CLS], and adds what they were.

    Args:
        rows: As `token_rows` has them.
        predictions: How many tokens are masked in each.

    Returns:
        The rows with the features of masked language modelling and next-sentence prediction.
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
