"""Serving of tables: signatures that take the columns by name, and rows of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.data.text.tokenizer.words import WordTokenizer
from orbit_runner.errors import shorten
from orbit_runner.tasks.serving import (
    Prediction,
    Serving,
    answer_rows,
    argument_names,
    named_function,
    texts_of,
)
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.layers import days_and_seconds
from orbit_runner.tasks.tabular.networks import CATEGORICAL, DATES, NUMERIC, TOKENS
from orbit_runner.tasks.tabular.preprocessing import Preprocessing
from orbit_runner.tasks.tabular.rows import Row, item_rows

PREDICT, COLUMNS, TARGET = "predict", "columns", "target"
_MAX_TEXT_WIDTH = 60
_Values = Sequence[str | float]
# What `normal_text` does with booleans and with whole numbers, for programs that call a signature.
_FORMS = (("^(True|TRUE)$", "true"), ("^(False|FALSE)$", "false"), (r"^(-?[1-9]\d*|0)\.0$", r"\1"))


def _codes(tables: Sequence[tf.lookup.StaticHashTable], columns: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns codes, int32 [n, columns], of texts [n]; 0 for unknown texts."""
    pairs = zip(tables, map(_forms, columns), strict=True)
    return tf.stack([table.lookup(texts) for table, texts in pairs], axis=1)


def _forms(texts: tf.Tensor) -> tf.Tensor:
    texts = tf.strings.strip(texts)
    for pattern, form in _FORMS:
        texts = tf.strings.regex_replace(texts, pattern, form)
    return texts


def _table(texts: Sequence[str]) -> tf.lookup.StaticHashTable:
    keys = tf.constant(list(texts) or [""], tf.string)
    values = tf.range(1, len(texts) + 1) if texts else tf.zeros([1], tf.int32)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0)


def table_serving(model: tf_keras.Model, fitted: Preprocessing) -> Serving:
    """Returns the signatures `predict` (the default), `columns` and `target`.

    `predict` takes each column by its argument name: float32 [n] with NaN for missing values,
    string [n] with "" for missing values, or for dates the seconds since 1970, float64 [n] with NaN
    for missing values. It returns the probabilities of the classes, float32 [n, classes], or the
    number, float32 [n].

    `columns` takes nothing, and returns `name`, `argument`, `is_number` and `is_date` of each
    column, and the known texts of each categorical column. `target` takes nothing, and returns its
    `name` and `output`, and the class names if it has classes.
    """
    features = [*fitted.numeric, *fitted.categorical, *fitted.dates, *fitted.texts]
    arguments = dict(zip(features, argument_names(features, "c"), strict=True))
    (output_name,) = argument_names([fitted.target_name], "c")
    numbers = len(fitted.numeric)
    categories = len(fitted.categorical)
    dates = len(fitted.dates)
    tables = [_table(texts) for texts in fitted.categorical.values()]
    tokenizers = [WordTokenizer(text.words) for text in fitted.texts.values()]

    def predict(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs: dict[str, tf.Tensor] = {}
        if numbers:
            inputs[NUMERIC] = tf.stack(values[:numbers], axis=1)
        if fitted.categorical:
            inputs[CATEGORICAL] = _codes(tables, values[numbers : numbers + categories])
        if dates:
            start = numbers + categories
            columns = [days_and_seconds(value) for value in values[start : start + dates]]
            inputs[DATES] = tf.concat(columns, axis=1)
        if fitted.texts:
            texts = zip(fitted.texts.values(), tokenizers, values[-len(tokenizers) :], strict=True)
            tokens = [words.encode(column, fit.max_length) for fit, words, column in texts]
            inputs[TOKENS] = tf.concat(tokens, axis=1)
        output = model(inputs, training=False)[fitted.target_name]
        return {output_name: tf.nn.softmax(output) if fitted.classes else output}

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
    def target() -> dict[str, tf.Tensor]:
        description = {"name": [fitted.target_name], "output": [output_name]}
        if fitted.classes:
            description["classes"] = [*fitted.classes]
        return {name: tf.constant(texts) for name, texts in description.items()}

    return Serving(
        {PREDICT: named_function(predict, specs), COLUMNS: columns, TARGET: target},
        default=PREDICT,
        resources=[*tables, *tokenizers],
        labels={output_name: fitted.classes} if fitted.classes else {},
    )


class RowPredictor:
    """Predicts the target of rows with the signature `predict`.

    `data` is how training reads its table: delimiter, names of columns and missing values. `top_k`
    is the number of classes that are returned, the most probable first; None for all, in their
    order.
    """

    def __init__(
        self,
        signatures: Mapping[str, tf.types.experimental.Callable],
        data: TableDataConfig,
        top_k: int | None = None,
    ) -> None:
        self._data = data
        self._top_k = top_k
        self._signature = signatures[PREDICT]
        description = signatures[COLUMNS]()
        pairs = zip(texts_of(description["name"]), texts_of(description["argument"]), strict=True)
        kinds = [tf.float32 if number else tf.string for number in description["is_number"]]
        for place in np.flatnonzero(description["is_date"]):
            kinds[place] = tf.float64
        self._columns = [(*pair, kind) for pair, kind in zip(pairs, kinds, strict=True)]
        self._texts = {
            name: frozenset(texts_of(description[f"texts_{argument}"]))
            for name, argument, _ in self._columns
            if f"texts_{argument}" in description
        }
        # The columns, each with what reads its value in a row.
        self._readers = [
            (name, _READERS[kind if name not in self._texts else CATEGORICAL])
            for name, _, kind in self._columns
        ]
        ((name, _, kind), *others) = self._columns
        is_text = kind == tf.string and name not in self._texts
        self._only_text = name if is_text and not others else ""
        description = signatures[TARGET]()
        (self._target,) = texts_of(description["name"])
        self._classes = texts_of(description["classes"]) if "classes" in description else []

    def items(self, arguments: Sequence[str], lines: Iterable[str]) -> Iterator[Row]:
        """Returns the rows, in order.

        See `item_rows`. If the model sees only a text, sentences are items, too.
        """
        numbers = {name for name, _, kind in self._columns if kind == tf.float32}
        return item_rows(arguments, lines, self._data, numbers, self._only_text)

    def predict(self, items: Sequence[Row]) -> list[Prediction]:
        """Returns the predictions for each row, or what is wrong with it."""
        answers = answer_rows(self._predict_rows, [self._parse_row(row) for row in items])
        return [
            row.error_prediction(answer)
            if isinstance(answer, str)
            else self._prediction(row, *answer)
            for row, answer in zip(items, answers, strict=True)
        ]

    def _parse_row(self, row: Row) -> list[str | float] | str:
        """Returns the value of each column, or what is wrong."""
        try:
            return row.problem or [read(row, name) for name, read in self._readers]
        except ValueError as error:
            return str(error)

    def _predict_rows(self, rows: Sequence[_Values]) -> list[tuple[_Values, np.ndarray]]:
        """Returns the values of each row, and its answer."""
        columns = zip(*rows, strict=True)
        inputs = {
            argument: tf.constant(values, kind)
            for (_, argument, kind), values in zip(self._columns, columns, strict=True)
        }
        (output,) = self._signature(**inputs).values()
        return [*zip(rows, output.numpy(), strict=True)]

    def _prediction(self, row: Row, values: _Values, answer: np.ndarray) -> Prediction:
        name = self._target
        if not np.isfinite(answer).all():
            return row.error_prediction(f"the prediction of {name!r} is not finite")
        data: dict[str, object] = {"row": row.where} if row.where else {}
        if self._only_text:
            data[self._only_text] = values[0]
        if self._classes:
            best = np.argsort(-answer, kind="stable")[: self._top_k].tolist()
            class_numbers = range(len(self._classes)) if self._top_k is None else best
            shares = {self._classes[n]: float(f"{answer[n]:.6g}") for n in class_numbers}
            predicted = self._classes[best[0]]
            data[name] = {"class": predicted, "probabilities": shares}
            columns: dict[str, object] = {f"predicted_{name}": predicted}
            columns |= {f"probability_{name}_{text}": share for text, share in shares.items()}
            likely = [f"{self._classes[n]} ({answer[n]:.4f})" for n in best[: self._top_k or 1]]
            texts = [f"{name} {', '.join(likely)}"]
        else:
            data[name] = float(f"{answer:.6g}")
            columns = {f"predicted_{name}": data[name]}
            texts = [f"{name} {answer:.6g}"]
        new_categories = {
            name: value
            for (name, _, _), value in zip(self._columns, values, strict=True)
            if name in self._texts and value not in self._texts[name] and value
        }
        warning = ""
        if new_categories:
            data["new_categories"] = new_categories
            warning = "new: " + ", ".join(
                f"{name} {text!r}" for name, text in new_categories.items()
            )
        if self._only_text:
            texts.append(shorten(str(values[0]), _MAX_TEXT_WIDTH))
        start = f"{row.where}: " if row.where else ""
        return Prediction(f"{start}{'  '.join(texts)}", data, row.cells, columns, warning)


_READERS: Mapping[tf.DType | str, Callable[[Row, str], float | str]] = {
    tf.float32: Row.number,
    tf.float64: Row.date,
    tf.string: Row.text,
    CATEGORICAL: Row.category,
}
