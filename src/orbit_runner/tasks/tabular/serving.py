"""Signatures of an exported model, which take the columns of a table by name."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence

import tensorflow as tf
import tf_keras

from orbit_runner.tasks.serving import Serving, named_function
from orbit_runner.tasks.tabular.date_layers import days_and_seconds
from orbit_runner.tasks.tabular.networks import CATEGORICAL, DATES, NUMERIC, TOKENS
from orbit_runner.tasks.tabular.preprocessing import Preprocessing

PREDICT, COLUMNS, TARGETS = "predict", "columns", "targets"


class Vocabularies(tf.Module):
    """A table from text to code for each categorical column, saved with the model."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        super().__init__(name="vocabularies")
        self.tables = [_table(column_texts) for column_texts in texts]

    def codes(self, columns: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns codes, int32 [n, columns], of texts [n]; 0 for unknown texts."""
        pairs = zip(self.tables, columns, strict=True)
        return tf.stack([table.lookup(tf.strings.strip(column)) for table, column in pairs], axis=1)


def _table(texts: Sequence[str]) -> tf.lookup.StaticHashTable:
    keys = tf.constant(list(texts) or [""], tf.string)
    values = tf.range(1, len(texts) + 1) if texts else tf.zeros([1], tf.int32)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0)


def table_serving(model: tf_keras.Model, fitted: Preprocessing) -> Serving:
    """Returns the signatures `predict` (the default), `columns` and `targets`.

    `predict` takes each column by its argument name: float32 [n] with NaN for missing values,
    string [n] with "" for missing values, or for dates the seconds since 1970, float64 [n] with NaN
    for missing values. For each target, it returns the probabilities of the classes, float32 [n,
    classes], or the number, float32 [n].

    `columns` takes nothing, and returns `name`, `argument`, `is_number` and `is_date` of each
    column, and the known texts of each categorical column. `targets` takes nothing, and returns
    `name` and `output` of each target, and the class names of each classification.
    """
    arguments = argument_names([*fitted.numeric, *fitted.categorical, *fitted.dates, *fitted.texts])
    outputs = argument_names([*fitted.classes, *fitted.scales])
    numbers = len(fitted.numeric)
    categories = len(fitted.categorical)
    dates = len(fitted.dates)
    vocabularies = Vocabularies(list(fitted.categorical.values()))
    tokenizers = [text.make_tokenizer() for text in fitted.texts.values()]

    def predict(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs: dict[str, tf.Tensor] = {}
        if numbers:
            inputs[NUMERIC] = tf.stack(values[:numbers], axis=1)
        if fitted.categorical:
            inputs[CATEGORICAL] = vocabularies.codes(values[numbers : numbers + categories])
        if dates:
            start = numbers + categories
            columns = [days_and_seconds(value) for value in values[start : start + dates]]
            inputs[DATES] = tf.concat(columns, axis=1)
        if fitted.texts:
            texts = zip(fitted.texts.values(), tokenizers, values[-len(tokenizers) :], strict=True)
            inputs[TOKENS] = tf.concat([fit.encode(*pair) for fit, *pair in texts], axis=1)
        predicted = model(inputs, training=False)
        answers = {outputs[name]: tf.nn.softmax(predicted[name]) for name in fitted.classes}
        return answers | {outputs[name]: predicted[name] for name in fitted.scales}

    kinds = [tf.float32] * numbers + [tf.string] * categories
    kinds += [tf.float64] * dates + [tf.string] * len(fitted.texts)
    specs = [
        tf.TensorSpec([None], kind, name=name)
        for name, kind in zip(arguments.values(), kinds, strict=True)
    ]

    @tf.function(input_signature=[])
    def columns() -> dict[str, tf.Tensor]:
        return {
            "name": tf.constant([*arguments]),
            "argument": tf.constant([*arguments.values()]),
            "is_number": tf.constant([kind == tf.float32 for kind in kinds]),
            "is_date": tf.constant([kind == tf.float64 for kind in kinds]),
            **{
                f"texts_{arguments[name]}": tf.constant([*texts], tf.string)
                for name, texts in fitted.categorical.items()
            },
        }

    @tf.function(input_signature=[])
    def targets() -> dict[str, tf.Tensor]:
        return {
            "name": tf.constant([*outputs]),
            "output": tf.constant([*outputs.values()]),
            **{f"classes_{outputs[n]}": tf.constant([*c]) for n, c in fitted.classes.items()},
        }

    return Serving(
        {PREDICT: named_function(predict, specs), COLUMNS: columns, TARGETS: targets},
        default=PREDICT,
        resources=[vocabularies, *tokenizers],
        labels={outputs[name]: classes for name, classes in fitted.classes.items()},
    )


def argument_names(names: Sequence[str]) -> Mapping[str, str]:
    """Returns an identifier of ASCII characters for each name; all are different."""
    identifiers: dict[str, str] = {}
    for name in names:
        text = "".join(
            character if character.isascii() and character.isalnum() else "_" for character in name
        )
        if not text or text[0].isdigit() or text[0] == "_" or keyword.iskeyword(text):
            text = f"c{text}" if text.startswith("_") else f"c_{text}"
        unique = text
        number = 1
        while unique in identifiers.values():
            number += 1
            unique = f"{text}_{number}"
        identifiers[name] = unique
    return identifiers


def texts_of(value: tf.Tensor) -> list[str]:
    """Returns the texts of a string tensor."""
    return [raw.decode() for raw in value.numpy()]
