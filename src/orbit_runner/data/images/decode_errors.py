"""Images that do not decode: counted, named, and no more of them than a setting allows."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf


class BadImages:
    """Those of one section, each counted once however often it is read."""

    def __init__(self, section: str, limit: int) -> None:
        """Starts at none.

        Args:
            section: Such as `train_data`, for messages.
            limit: How many there may be.
        """
        self.section, self.limit = section, limit
        self._names: set[str] = set()
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many have been found."""
        return len(self._names)

    def found(self, names: Iterable[bytes]) -> str:
        """Counts images and says on stderr which are new.

        Args:
            names: What they are called.

        Returns:
            "", or what is wrong once there are too many.
        """
        with self._lock:
            for name in (each.decode(errors="replace") for each in names):
                if name in self._names:
                    continue
                self._names.add(name)
                if self.count > self.limit:
                    return (
                        f"{name}: does not decode, bad image {self.count} of {self.section}, "
                        f"expected at most {self.limit} as max_bad_images says"
                    )
                print(
                    f"{name}: does not decode, bad image {self.count} of at most {self.limit} in "
                    f"{self.section}; it gets no weight",
                    file=sys.stderr,
                    flush=True,
                )
        return ""

    def checked(
        self, good: tf.Tensor, ids: tf.Tensor, names: Callable[[tf.Tensor], tf.Tensor]
    ) -> tf.Tensor:
        """Counts the bad images of a batch; in the graph of a pipeline.

        Args:
            good: Which images decoded, bool [b].
            ids: Numbers of the examples, int64 [b].
            names: From numbers to names, string [k].

        Returns:
            0, int32 scalar, to be added to what depends on it; to read it raises where there are
            too many.
        """
        if self.limit:

            def problem() -> tf.Tensor:
                bad = names(tf.boolean_mask(ids, ~good))
                # In a call of Python, for the count goes through all pipelines of the run. None is
                # made where all is well.
                told = tf.numpy_function(self._report, [bad], tf.string, stateful=True)
                return tf.ensure_shape(told, [])

        else:

            def problem() -> tf.Tensor:
                bad = tf.boolean_mask(ids, ~good)[:1]
                return names(bad)[0] + ": does not decode; max_bad_images would leave it out"

        return zero_or_raise(tf.reduce_all(good), problem)

    def _report(self, names: np.ndarray) -> bytes:
        return self.found(names).encode()


def zero_or_raise(fine: tf.Tensor, problem: Callable[[], tf.Tensor]) -> tf.Tensor:
    """Makes a zero that cannot be made where something is wrong.

    To be added to what depends on it: TensorFlow drops an op that others only wait for.

    Args:
        fine: Whether there is nothing to look at, bool scalar.
        problem: Makes the text, string scalar; "" where all is well after all. Called in the graph
            where it is not fine.

    Returns:
        0, int32 scalar; to read it raises the text.
    """
    text = tf.cond(fine, lambda: tf.constant(""), problem)
    # Raises with the text in its message. Not `tf.debugging.Assert`: that counts as stateful, for
    # which op determinism would make one batch at a time.
    return tf.strings.to_number(tf.where(text == "", "0", text), tf.int32)
