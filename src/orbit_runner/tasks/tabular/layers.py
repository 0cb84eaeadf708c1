"""Encodes dates as numbers inside the network, the same in training, prediction and exports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.data.tables.columns import DAY_SECONDS
from orbit_runner.data.text.source import PAD
from orbit_runner.tasks.tabular.preprocessing import DateFit

MISSING_DAY = np.iinfo(np.int32).min
_MOST_DAYS = 10**8  # Later dates would exceed 32 bits.
_YEAR_DAYS = 366
_WEEK_DAYS = 7
_DAY_MINUTES = DAY_SECONDS // 60


def add_constant(
    layer: tf_keras.layers.Layer, name: str, values: float | Sequence[float]
) -> tf.Variable:
    """Adds a weight that is not trained, and saved with the others."""
    initializer = tf_keras.initializers.Constant(values)
    return layer.add_weight(name, np.shape(values), initializer=initializer, trainable=False)


class EncodeDates(tf_keras.layers.Layer):
    """Encodes the days since 1970 and the seconds of the day of each column as numbers.

    These are the days, normalized with mean and deviation of the training rows; sine and cosine of
    the day in the year and of the day in the week; and of the time, if training rows have one.
    Missing dates become zeros, and set a number to 1 if training rows lack values. The layer
    computes in float32, whatever the policy; what comes before that are integers.
    """

    def __init__(self, columns: Sequence[DateFit], **kwargs: Any) -> None:
        super().__init__(dtype="float32", **kwargs)
        self._columns = columns

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the means and factors, which are saved with the weights."""
        # Differences of whole days are exact in float32.
        self._days = [math.floor(column.mean) for column in self._columns]
        means = [column.mean - math.floor(column.mean) for column in self._columns]
        self.mean = add_constant(self, "mean", means)
        self.factor = add_constant(self, "factor", [1 / x.deviation for x in self._columns])

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the encodings side by side, float32 [batch, width], of int32 [batch, 2 n]."""
        parts = [
            self._encode(place, inputs[:, 2 * place], inputs[:, 2 * place + 1])
            for place in range(len(self._columns))
        ]
        return tf.concat(parts, axis=1)

    def _encode(self, place: int, days: tf.Tensor, seconds: tf.Tensor) -> tf.Tensor:
        column = self._columns[place]
        missing = tf.equal(days, MISSING_DAY)
        days = tf.where(missing, 0, days)
        time = tf.cast(seconds, tf.float32) / DAY_SECONDS
        since = tf.cast(days - self._days[place], tf.float32) + time
        parts = [
            ((since - self.mean[place]) * self.factor[place])[:, tf.newaxis],
            tf.gather(_circle(_YEAR_DAYS), _day_in_year(days)),
            # The first of January 1970 was a Thursday.
            tf.gather(_circle(_WEEK_DAYS), tf.math.floormod(days + 3, _WEEK_DAYS)),
        ]
        if column.has_time:
            parts.append(tf.gather(_circle(_DAY_MINUTES), seconds // 60))
        known = tf.where(missing[:, tf.newaxis], 0.0, tf.concat(parts, axis=1))
        if not column.has_missing:
            return known
        return tf.concat([known, tf.cast(missing, tf.float32)[:, tf.newaxis]], axis=1)


def days_and_seconds(seconds: tf.Tensor) -> tf.Tensor:
    """Returns the inputs of `EncodeDates`, int32 [n, 2], of seconds since 1970, float64 [n]."""
    known = tf.math.is_finite(seconds)
    most = tf.constant(_MOST_DAYS * DAY_SECONDS, tf.float64)
    seconds = tf.clip_by_value(tf.where(known, seconds, tf.zeros_like(seconds)), -most, most)
    whole_seconds = tf.cast(tf.floor(seconds), tf.int64)
    days = tf.where(known, tf.cast(whole_seconds // DAY_SECONDS, tf.int32), MISSING_DAY)
    return tf.stack([days, tf.cast(tf.math.floormod(whole_seconds, DAY_SECONDS), tf.int32)], axis=1)


def _day_in_year(days: tf.Tensor) -> tf.Tensor:
    """Returns the days since the last first of March, 0 to 365, of days since 1970, int32 [n].

    A leap day is the last day of such a year. Howard Hinnant's `civil_from_days` does the same.
    """
    since = days + 719_468  # the first of March of the year 0
    day = tf.math.floormod(since, 146_097)  # in a period of 400 years
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    return day - (365 * year + year // 4 - year // 100)


def _circle(count: int) -> tf.Tensor:
    """Returns sine and cosine of equal steps around a circle, float32 [count, 2]."""
    angles = (2 * math.pi * step / count for step in range(count))
    # Libraries differ in the last digits of sines, which are dropped.
    rows = [[round(math.sin(angle), 6), round(math.cos(angle), 6)] for angle in angles]
    return tf.constant(rows, tf.float32)


class TokenMean(tf_keras.layers.Layer):
    """The mean of the embeddings of a text's tokens; zeros for a text without tokens.

    The layer computes in float32, whatever the policy, because 16 bits cannot count tokens.
    """

    def __init__(self, size: int, width: int, **kwargs: Any) -> None:
        super().__init__(dtype="float32", **kwargs)
        self._size = size
        self._width = width

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the embeddings."""
        self.table = self.add_weight("table", (self._size, self._width), initializer="uniform")

    def call(self, tokens: tf.Tensor) -> tf.Tensor:
        """Returns [batch, width] for int32 tokens [batch, length]."""
        mask = tf.cast(tf.not_equal(tokens, PAD), tf.float32)
        total = tf.reduce_sum(tf.gather(self.table, tokens) * mask[:, :, tf.newaxis], axis=1)
        return total / tf.maximum(tf.reduce_sum(mask, axis=1, keepdims=True), 1)


class TextColumnMeans(tf_keras.layers.Layer):
    """The means of several texts, side by side, each with its own embeddings.

    `sizes` has the number of token ids of each text, and `lengths` its number of tokens.
    """

    def __init__(
        self, sizes: Sequence[int], widths: Sequence[int], lengths: Sequence[int], **kwargs: Any
    ) -> None:
        super().__init__(dtype="float32", **kwargs)
        self._lengths = list(lengths)
        self.means = [
            TokenMean(size, width, name=f"text{place}")
            for place, (size, width) in enumerate(zip(sizes, widths, strict=True))
        ]

    def call(self, tokens: tf.Tensor) -> tf.Tensor:
        """Returns [batch, width] for int32 tokens [batch, sum of lengths]."""
        texts = tf.split(tokens, self._lengths, axis=1)
        return tf.concat([mean(text) for mean, text in zip(self.means, texts, strict=True)], 1)
