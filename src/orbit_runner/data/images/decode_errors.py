"""Counts and reports the images that cannot be decoded, up to a limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.errors import DataError
from orbit_runner.utils.log import note


class BadImages:
    """The images of a section that cannot be decoded, each counted once however often it is read.

    `section` is the name in messages, such as `train_data`; `limit` is the largest allowed number.
    """

    def __init__(self, section: str, limit: int) -> None:
        self.section = section
        self.limit = limit
        self._names: set[str] = set()
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """The number of bad images found so far."""
        return len(self._names)

    def add(self, names: Iterable[bytes]) -> str:
        """Counts bad images by name, and prints the new ones to stderr.

        Returns an error message if there are more than `limit`, otherwise an empty string.
        """
        with self._lock:
            for name in (encoded.decode(errors="replace") for encoded in names):
                if name in self._names:
                    continue
                self._names.add(name)
                if self.count > self.limit:
                    return (
                        f"{name}: cannot be decoded; bad image {self.count} of {self.section}, "
                        f"more than task.{self.section}.max_bad_images={self.limit}"
                    )
                note(
                    f"warning: {name}: cannot be decoded; bad image {self.count} of at most "
                    f"{self.limit} in {self.section}; its weight is 0"
                )
        return ""

    def check(
        self, good: tf.Tensor, ids: tf.Tensor, names: Callable[[tf.Tensor], tf.Tensor]
    ) -> tf.Tensor:
        """Counts the bad images of a batch in a pipeline's graph, and returns 0 (int32 scalar).

        `good` (bool [b]) is False for bad images, and `ids` are the numbers of the examples, int64
        [b]. `names` converts numbers to names, string [k]. Add the result to a value that the
        pipeline uses: computing it raises an error if there are too many bad images.
        """
        if self.limit:

            def problem() -> tf.Tensor:
                bad = names(tf.boolean_mask(ids, ~good))
                # A Python call, because the count covers all pipelines of the run. It is made only
                # if there are bad images.
                message = tf.numpy_function(self._report, [bad], tf.string, stateful=True)
                return tf.ensure_shape(message, [])

        else:

            def problem() -> tf.Tensor:
                bad = tf.boolean_mask(ids, ~good)[:1]
                advice = f"set task.{self.section}.max_bad_images to skip it"
                return names(bad)[0] + f": cannot be decoded; {advice}"

        return zero_or_raise(tf.reduce_all(good), problem)

    def _report(self, names: np.ndarray) -> bytes:
        return self.add(names).encode()


def zero_or_raise(fine: tf.Tensor, problem: Callable[[], tf.Tensor]) -> tf.Tensor:
    """Returns 0 (int32 scalar), or raises an error when the tensor is computed.

    Add the result to a value that is used, because TensorFlow prunes an op that is only a control
    dependency. If `fine` (bool scalar) is False, the graph that `problem` builds is run; it returns
    the error message (string scalar), which is empty if there is no error.
    """
    text = tf.cond(fine, lambda: tf.constant(""), problem)
    # `to_number` raises an error that contains the text. `tf.debugging.Assert` is stateful, so
    # op determinism would make one batch at a time.
    return tf.strings.to_number(tf.where(text == "", "0", text), tf.int32)


def read_in_python(
    read: Callable[[list[int]], Sequence[Any]],
    ids: tf.Tensor,
    specs: Sequence[tuple[tf.DType, Sequence[int]]],
) -> list[tf.Tensor]:
    """Returns what a Python function reads, as tensors [b, ...] of the types and shapes in `specs`.

    `ids`, int64 [b], are the numbers of the examples, on which alone the result depends. A
    `DataError` of `read` is an error of the pipeline.
    """

    def call(ids: np.ndarray) -> tuple[Any, ...]:
        try:
            return (*read(ids.tolist()), b"")
        except DataError as error:
            empty = [
                np.full((len(ids), *shape), b"" if dtype == tf.string else 0, dtype.as_numpy_dtype)
                for dtype, shape in specs
            ]
            return (*empty, str(error).encode())

    dtypes = [dtype for dtype, _ in specs]
    *tensors, problem = tf.numpy_function(call, [ids], [*dtypes, tf.string], stateful=False)
    zero = zero_or_raise(tf.equal(problem, ""), lambda: tf.ensure_shape(problem, []))
    # Slices of whole tensors, which cost nothing but depend on the zero.
    return [
        tf.ensure_shape(tensor[zero:], [*ids.shape, *shape])
        for tensor, (_, shape) in zip(tensors, specs, strict=True)
    ]
