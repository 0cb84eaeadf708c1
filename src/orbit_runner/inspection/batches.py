"""The tensors of a batch in numbers, and token ids as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.inspection.rows import TensorSummary

_PARTS = ("features", "labels", "weights")
_SENTENCES = 3


def batch_summary(batch: Any) -> list[TensorSummary]:
    """Returns the tensors of a batch."""
    return [_summary(name, tensor) for name, tensor in named_tensors(batch)]


def named_tensors(batch: Any) -> Iterator[tuple[str, Any]]:
    """Yields the name and the value of each tensor in a batch."""
    if isinstance(batch, tuple) and 2 <= len(batch) <= len(_PARTS):
        for name, part in zip(_PARTS, batch, strict=False):
            yield from _flatten_part(name, part)
    else:
        yield from _flatten_part("", batch)


def batch_bytes(batch: Any) -> int:
    """Returns the bytes of the tensors in a batch, without those of strings."""
    tensors = (value for _, value in named_tensors(batch) if value.dtype != tf.string)
    return sum(int(tf.size(value)) * value.dtype.size for value in tensors)


def pictures(batch: Any) -> tuple[np.ndarray, list[str]] | None:
    """Returns the pictures of a batch, [n, height, width, channels], and their labels.

    Returns None if the batch has no pictures with 1, 3 or 4 channels.
    """
    tensors = list(named_tensors(batch))
    for name, value in tensors:
        if value.shape.rank == 4 and value.shape[-1] in (1, 3, 4) and value.dtype != tf.string:
            found = [v for n, v in tensors if n != name and n.startswith("labels")]
            return value.numpy(), _label_texts(found[0], len(value)) if found else []
    return None


def sentences(task: Any, batch: Any) -> list[tuple[str, str]]:
    """Returns the first sentences of a batch of token ids; [] if the task has no vocabulary."""
    vocabulary = getattr(task, "vocabulary", None)
    if vocabulary is None or not hasattr(vocabulary, "decode"):
        return []
    found = []
    for name, value in named_tensors(batch):
        if value.shape.rank == 2 and value.dtype.is_integer:
            rows = [row[row > 0] for row in value[:_SENTENCES].numpy()]  # 0 is padding.
            found += [(name, text) for text in vocabulary.decode(rows)]
    return found


def _flatten_part(name: str, part: Any) -> Iterator[tuple[str, Any]]:
    inner: Iterable[tuple[Any, Any]]
    if isinstance(part, dict):
        inner = part.items()
    elif isinstance(part, (tuple, list)):
        inner = ((str(index), one) for index, one in enumerate(part))
    else:
        yield name or "batch", part.flat_values if isinstance(part, tf.RaggedTensor) else part
        return
    for key, value in inner:
        yield from _flatten_part(f"{name}.{key}" if name else str(key), value)


def _summary(name: str, tensor: Any) -> TensorSummary:
    shape, dtype = tuple(tensor.shape.as_list()), tensor.dtype.name
    if tensor.dtype == tf.string or not int(tf.size(tensor)):
        return TensorSummary(name, shape, dtype)
    values = np.asarray(tensor).astype(np.float64)
    return TensorSummary(
        name, shape, dtype, float(values.min()), float(values.max()), float(values.mean())
    )


def _label_texts(labels: Any, count: int) -> list[str]:
    values = np.asarray(labels)
    if values.ndim == 2:  # Shares of the classes, if images are mixed.
        values = values.argmax(axis=-1)
    if values.ndim != 1 or len(values) != count or values.dtype.kind not in "iu":
        return []
    return [str(value) for value in values]
