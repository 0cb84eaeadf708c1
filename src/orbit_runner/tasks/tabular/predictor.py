"""Predictions for the rows of CSV files and of JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.data.tables.jsonl import text_of
from orbit_runner.errors import RunnerError, shorten
from orbit_runner.tasks.serving import Prediction
from orbit_runner.tasks.tabular.rows import Row, csv_rows, json_rows, peek_line
from orbit_runner.tasks.tabular.serving import COLUMNS, PREDICT, TARGETS, texts_of


class RowPredictor:
    """Predicts the targets of rows with the signature `predict`.

    `delimiter` and `missing_values` are those of the CSV files.
    """

    def __init__(
        self, signatures: Mapping[str, Any], delimiter: str, missing_values: Sequence[str]
    ) -> None:
        self._delimiter, self._missing = delimiter, missing_values
        self._signature = signatures[PREDICT]
        description = signatures[COLUMNS]()
        pairs = zip(texts_of(description["name"]), texts_of(description["argument"]), strict=True)
        numbers = description["is_number"].numpy().tolist()
        self._columns = [(*pair, bool(number)) for pair, number in zip(pairs, numbers, strict=True)]
        self._texts = {
            name: frozenset(texts_of(description[f"texts_{argument}"]))
            for name, argument, _ in self._columns
            if f"texts_{argument}" in description
        }
        description = signatures[TARGETS]()
        self._classes = {}
        for name, output in zip(
            texts_of(description["name"]), texts_of(description["output"]), strict=True
        ):
            classes = description.get(f"classes_{output}")
            self._classes[name] = (output, None if classes is None else texts_of(classes))

    def items(self, arguments: Sequence[str], lines: Iterable[str]) -> Iterator[Row]:
        """Yields rows, in order.

        Arguments are CSV files with a header, files of JSON lines (`.jsonl`), or `-` for standard
        input: JSON objects, one per line, or CSV with a header if the first line is not an object.
        Raises `RunnerError` if an argument is not a file.
        """
        for argument in arguments or ["-"]:
            if argument == "-":
                yield from self._read_rows("standard input", lines)
                continue
            try:
                with Path(argument).expanduser().open(encoding="utf-8", newline="") as file:
                    yield from self._read_rows(argument, file)
            except (OSError, UnicodeDecodeError):
                raise RunnerError(
                    f"got {argument!r}, expected a CSV file, a file of JSON lines, or - for "
                    "standard input"
                ) from None

    def predict(self, items: Sequence[Row]) -> list[Prediction]:
        """Returns the predictions for each row, or what is wrong with it."""
        parsed = [self._parse_row(row) for row in items]
        valid = [values for values in parsed if not isinstance(values, str)]
        answers = iter(self._predict_rows(valid) if valid else [])
        return [
            row.error_prediction(values)
            if isinstance(values, str)
            else self._prediction(row, values, next(answers))
            for row, values in zip(items, parsed, strict=True)
        ]

    def _parse_row(self, row: Row) -> list[Any] | str:
        """Returns the value of each column, or what is wrong."""
        if row.problem:
            return row.problem
        found: list[Any] = []
        for name, _, is_number in self._columns:
            if name not in row.values:
                return f"has no column {name!r}"
            try:
                text = (text_of(row.values[name]) or "").strip()
                found.append((float(text) if text else float("nan")) if is_number else text)
            except ValueError:
                got = shorten(repr(row.values[name]), 80)
                return f"column {name!r}: got {got}, expected a {'number' if is_number else 'text'}"
        return found

    def _predict_rows(self, rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        columns = zip(*rows, strict=True)
        inputs = {
            argument: tf.constant(values, tf.float32 if is_number else tf.string)
            for (_, argument, is_number), values in zip(self._columns, columns, strict=True)
        }
        found = {name: value.numpy() for name, value in self._signature(**inputs).items()}
        return [
            {name: found[output][row] for name, (output, _) in self._classes.items()}
            for row in range(len(rows))
        ]

    def _prediction(self, row: Row, values: Sequence[Any], answer: Mapping[str, Any]) -> Prediction:
        data: dict[str, Any] = {"row": row.where}
        texts = []
        for name, (_, classes) in self._classes.items():
            if classes is None:
                data[name] = float(f"{answer[name]:.6g}")
                texts.append(f"{name} {answer[name]:.6g}")
                continue
            best = int(answer[name].argmax())
            shares = {c: float(f"{p:.6g}") for c, p in zip(classes, answer[name], strict=True)}
            data[name] = {"class": classes[best], "probabilities": shares}
            texts.append(f"{name} {classes[best]} ({answer[name][best]:.4f})")
        new = {
            name: value
            for (name, _, _), value in zip(self._columns, values, strict=True)
            if name in self._texts and value not in self._texts[name] and value
        }
        if new:
            data["new_categories"] = new
            texts.append(f"new: {', '.join(f'{name} {text!r}' for name, text in new.items())}")
        return Prediction(f"{row.where}: {'  '.join(texts)}", data)

    def _read_rows(self, where: str, lines: Iterable[str]) -> Iterator[Row]:
        first, lines = peek_line(lines)
        if first.lstrip().startswith("{") or where.endswith(".jsonl"):
            yield from json_rows(where, lines)
        else:
            yield from csv_rows(where, lines, self._delimiter, self._missing)
