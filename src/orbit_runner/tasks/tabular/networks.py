"""Networks for tables: a multilayer perceptron, and wide & deep."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.tasks.tabular.config import TabularModelConfig
from orbit_runner.tasks.tabular.layers import EncodeDates, TextColumnMeans, add_constant
from orbit_runner.tasks.tabular.preprocessing import NumberFit, Preprocessing

layers = tf_keras.layers
NUMERIC, CATEGORICAL, DATES, TOKENS = "numeric", "categorical", "dates", "tokens"
_MAX_EMBEDDING_WIDTH = 50
# Categorical columns with more different texts are embedded, others one-hot encoded.
_MAX_ONE_HOT = 10


def mlp(
    config: TabularModelConfig, fitted: Preprocessing, *, is_wide: bool = False
) -> tf_keras.Model:
    """Returns dense ReLU layers, each followed by dropout, and a linear layer.

    The model maps `numeric`, float32 [batch, columns] with NaN for missing values, `categorical`,
    int32 [batch, columns] with the codes of `Preprocessing`, `dates`, int32 [batch, 2 * columns]
    with the days since 1970 and the seconds of the day, and `tokens`, int32 [batch, tokens] with
    the tokens of all text columns, to one output with the name of the target: logits, float32
    [batch, classes], or numbers in the unit of the target, float32 [batch].

    If the model `is_wide`, a linear model is added to
    the output, and trained with it. It has a weight for each number and for each text of a
    category (Cheng et al., Wide & Deep Learning for Recommender Systems, DLRS 2016), without
    crossed columns and text columns.
    """
    inputs, parts = _encoded_inputs(fitted, config.embedding_width)
    values = [*parts.values()]
    x = layers.Concatenate(name="features")(values) if len(values) > 1 else values[0]
    x = _hidden_layers(x, config.hidden_units, config.dropout_rate)
    name = _layer_name(fitted.target_name)
    width = len(fitted.classes) or 1
    # The softmax of the loss is not accurate enough in 16 bits.
    output = layers.Dense(width, dtype="float32", name=name)(x)
    if is_wide:
        terms = [output, *_wide_terms(fitted, name, width, inputs, parts)]
        output = layers.Add(dtype="float32", name=f"{name}_sum")(terms)
    if fitted.scale is not None:
        output = Rescale(fitted.scale, name=f"{name}_unit")(output)
    outputs = {fitted.target_name: output}
    return tf_keras.Model(inputs, outputs, name="wide_deep" if is_wide else "mlp")


wide_deep = functools.partial(mlp, is_wide=True)


def _wide_terms(
    fitted: Preprocessing,
    layer_name: str,
    width: int,
    inputs: Mapping[str, tf.Tensor],
    parts: Mapping[str, tf.Tensor],
) -> Iterator[tf.Tensor]:
    """Yields what the linear model adds to the output, whose layer has the name `layer_name`."""
    for part, end in ((NUMERIC, "wide"), (DATES, "wide_dates")):
        if part in parts:
            options = {"use_bias": False, "dtype": "float32", "name": f"{layer_name}_{end}"}
            yield layers.Dense(width, **options)(parts[part])
    if fitted.categorical:
        sizes = [len(texts) for texts in fitted.categorical.values()]
        table = CategoryWeights(sizes, width, name=f"{layer_name}_wide_categories")
        yield table(inputs[CATEGORICAL])


class NormalizeColumns(tf_keras.layers.Layer):
    """Subtracts the mean and divides by the deviation of each column.

    Missing values, NaN, become 0, the mean. For columns that lack values in training, a column is
    added that is 1 where a value is missing. The layer computes in float32, whatever the policy.
    """

    def __init__(self, columns: Sequence[NumberFit], **kwargs: Any) -> None:
        super().__init__(dtype="float32", **kwargs)
        self._columns = columns
        self._lacking = [place for place, column in enumerate(columns) if column.has_missing]

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the means and factors, which are saved with the weights."""
        self.mean = add_constant(self, "mean", [column.mean for column in self._columns])
        self.factor = add_constant(self, "factor", [1 / x.deviation for x in self._columns])

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns normalized columns, float32 [batch, columns + lacking]."""
        missing = tf.math.is_nan(inputs)
        normalized = tf.where(missing, 0.0, (inputs - self.mean) * self.factor)
        if not self._lacking:
            return normalized
        lacking = tf.gather(missing, self._lacking, axis=1)
        return tf.concat([normalized, tf.cast(lacking, tf.float32)], axis=1)


class EncodeCategories(tf_keras.layers.Layer):
    """Encodes each column of codes one-hot, or as an embedding. Code 0 becomes zeros."""

    def __init__(self, sizes: Sequence[int], width: int | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._sizes = sizes
        self._width = width
        self.tables: list[tf.Variable | None] = []

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the embeddings."""
        for place, size in enumerate(self._sizes):
            width = self._width or _embedding_width(size)
            table = None
            if size > _MAX_ONE_HOT:
                table = self.add_weight(
                    name=f"embedding{place}", shape=(size + 1, width), initializer="uniform"
                )
            self.tables.append(table)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the encodings side by side, [batch, width], of int32 codes [batch, columns]."""
        return tf.concat(
            [self._encode(place, inputs[:, place]) for place in range(len(self._sizes))], 1
        )

    def _encode(self, place: int, codes: tf.Tensor) -> tf.Tensor:
        table = self.tables[place]
        if table is None:
            return tf.one_hot(codes - 1, self._sizes[place], dtype=self.compute_dtype)
        known = tf.cast(codes > 0, self.compute_dtype)
        return tf.cast(tf.gather(table, codes), self.compute_dtype) * known[:, tf.newaxis]


class CategoryWeights(tf_keras.layers.Layer):
    """A weight for each text of each column; returns their sums. Code 0 adds nothing."""

    def __init__(self, sizes: Sequence[int], width: int, **kwargs: Any) -> None:
        super().__init__(dtype="float32", **kwargs)
        self._sizes = sizes
        self._units = width

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the weights of all columns, one below the other."""
        shape = (sum(self._sizes) + len(self._sizes), self._units)
        self.table = self.add_weight(name="table", shape=shape, initializer="zeros")
        starts = [0]
        for size in self._sizes[:-1]:
            starts.append(starts[-1] + size + 1)
        self._starts = starts

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the sums, float32 [batch, width], of int32 codes [batch, columns]."""
        rows = tf.gather(self.table, inputs + tf.constant(self._starts, tf.int32))
        return tf.reduce_sum(rows * tf.cast(inputs > 0, tf.float32)[:, :, tf.newaxis], axis=1)


class Rescale(tf_keras.layers.Layer):
    """Multiplies by a deviation and adds a mean, to return numbers in the unit of a target."""

    def __init__(self, scale: NumberFit, **kwargs: Any) -> None:
        super().__init__(dtype="float32", **kwargs)
        self._scale = scale

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates mean and deviation, which are saved with the weights."""
        self.mean = add_constant(self, "mean", self._scale.mean)
        self.deviation = add_constant(self, "deviation", self._scale.deviation)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns float32 [batch] for [batch, 1]."""
        return inputs[:, 0] * self.deviation + self.mean


def _encoded_inputs(
    fitted: Preprocessing, width: int | None
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Returns the inputs by name, and what the layers see of them."""
    inputs = {}
    parts = {}
    if fitted.numeric:
        inputs[NUMERIC] = tf_keras.Input((len(fitted.numeric),), dtype="float32", name=NUMERIC)
        normalize = NormalizeColumns([*fitted.numeric.values()], name="normalize")
        parts[NUMERIC] = normalize(inputs[NUMERIC])
    if fitted.categorical:
        count = len(fitted.categorical)
        inputs[CATEGORICAL] = tf_keras.Input((count,), dtype="int32", name=CATEGORICAL)
        sizes = [len(texts) for texts in fitted.categorical.values()]
        encode = EncodeCategories(sizes, width, name="encode")
        parts[CATEGORICAL] = encode(inputs[CATEGORICAL])
    if fitted.dates:
        inputs[DATES] = tf_keras.Input((2 * len(fitted.dates),), dtype="int32", name=DATES)
        parts[DATES] = EncodeDates([*fitted.dates.values()], name="encode_dates")(inputs[DATES])
    if fitted.texts:
        lengths = [text.max_length for text in fitted.texts.values()]
        sizes = [text.size for text in fitted.texts.values()]
        inputs[TOKENS] = tf_keras.Input((sum(lengths),), dtype="int32", name=TOKENS)
        widths = [width or _embedding_width(size) for size in sizes]
        parts[TOKENS] = TextColumnMeans(sizes, widths, lengths, name="texts")(inputs[TOKENS])
    return inputs, parts


def _embedding_width(size: int) -> int:
    return min(_MAX_EMBEDDING_WIDTH, math.ceil(math.sqrt(size)))


def _hidden_layers(x: tf.Tensor, hidden_units: Sequence[int], dropout_rate: float) -> tf.Tensor:
    """Returns the output of dense ReLU layers, each followed by dropout."""
    for index, width in enumerate(hidden_units, start=1):
        x = layers.Dense(width, activation="relu", name=f"dense{index}")(x)
        if dropout_rate:
            x = layers.Dropout(dropout_rate, name=f"dropout{index}")(x)
    return x


def _layer_name(name: str) -> str:
    """Returns the name of a target as that of a layer, which allows few characters."""
    text = "".join(
        character if character.isascii() and character.isalnum() else "_" for character in name
    )
    return f"target_{text}"
