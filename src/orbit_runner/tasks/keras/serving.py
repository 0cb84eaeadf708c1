"""The signature of an exported Keras model, and predictions for rows of arrays."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.data.npz_file import read_npz
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.tasks.serving import Prediction, Serving, named_function

PREDICT = "predict"
_OUTPUTS, _PROBABILITIES, _CLASS = "outputs", "probabilities", "class"
_X = "x"
_EXPECTED = "expected an .npz file, a file of JSON lines, a JSON value, or - for standard input"


def make_serving(
    model: tf_keras.Model,
    specs: Mapping[str, tuple[tuple[int, ...], str]],
    kind: str,
    *,
    from_logits: bool,
) -> Serving:
    """Returns the signature `predict` of a model.

    It takes `x`, or the inputs by their names, and returns `outputs`. If the loss is for classes,
    it also returns `probabilities`, and `class`, the number of the most probable class. `specs` are
    the shapes and types of the arrays, and `kind` is that of the loss.
    """
    inputs = {path: spec for path, spec in specs.items() if path.partition(".")[0] == _X}
    names = [path.partition(".")[2] or _X for path in inputs]
    single = list(inputs) == [_X]

    def predict(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        features = values[0] if single else dict(zip(names, values, strict=True))
        outputs = tf.cast(model(features, training=False), tf.float32)
        return {_OUTPUTS: outputs, **_class_outputs(outputs, kind, from_logits)}

    # Inputs of a signature have names that are identifiers.
    arguments = [
        tf.TensorSpec([None, *shape], dtype, name=_identifier(name, index))
        for index, (name, (shape, dtype)) in enumerate(zip(names, inputs.values(), strict=True))
    ]
    return Serving({PREDICT: named_function(predict, arguments)}, default=PREDICT)


def _class_outputs(outputs: tf.Tensor, kind: str, from_logits: bool) -> dict[str, tf.Tensor]:
    if kind == "binary":
        return {_PROBABILITIES: tf.sigmoid(outputs) if from_logits else outputs}
    if kind not in ("sparse", "categorical"):
        return {}
    return {
        _PROBABILITIES: tf.nn.softmax(outputs) if from_logits else outputs,
        _CLASS: tf.argmax(outputs, axis=-1),
    }


def _identifier(name: str, index: int) -> str:
    return name if name.isidentifier() else f"input_{index}"


class ArrayPredictor:
    """Predicts for rows: of arrays in .npz files, or of JSON.

    A row is an array by input, or the reason why it cannot be used.
    """

    def __init__(self, signatures: Mapping[str, Any]) -> None:
        self._signature = signatures[PREDICT]
        specs = (
            self._signature.structured_input_signature
            if hasattr(self._signature, "structured_input_signature")
            else self._signature.get_concrete_function().structured_input_signature
        )
        self._specs: dict[str, tf.TensorSpec] = {spec.name: spec for spec in tf.nest.flatten(specs)}
        self._count = 0

    def items(
        self, arguments: Sequence[str], lines: Iterable[str]
    ) -> Iterator[dict[str, np.ndarray] | str]:
        """Yields the rows of files, of JSON arguments, and of `lines` for `-`, in order.

        Raises `RunnerError` if an argument is neither JSON nor a file.
        """
        for argument in arguments or ["-"]:
            if argument == "-":
                yield from self._rows_of_lines(lines)
            elif argument.endswith(".npz"):
                yield from self._rows_of_arrays(Path(argument))
            elif argument.lstrip()[:1] in ("[", "{") or _is_number(argument):
                yield self._row_of_json(argument)
            else:
                try:
                    text = Path(argument).read_text(encoding="utf-8")
                except (OSError, ValueError):
                    raise RunnerError(f"got {argument!r}, {_EXPECTED}") from None
                yield from self._rows_of_lines(text.splitlines())

    def predict(self, items: Sequence[dict[str, np.ndarray] | str]) -> list[Prediction]:
        """Returns the outputs for each row, or what is wrong with it."""
        rows = [item for item in items if not isinstance(item, str)]
        answers = iter(self._predict_rows(rows) if rows else [])
        found = []
        for item in items:
            index, self._count = self._count, self._count + 1
            if isinstance(item, str):
                found.append(Prediction(f"{index}: error: {item}", {"row": index, "error": item}))
            else:
                found.append(_prediction(index, next(answers)))
        return found

    def _predict_rows(self, rows: Sequence[dict[str, np.ndarray]]) -> list[dict[str, Any]]:
        stacked = {
            name: tf.constant(np.stack([row[name] for row in rows]), spec.dtype)
            for name, spec in self._specs.items()
        }
        outputs = {name: value.numpy() for name, value in self._signature(**stacked).items()}
        return [
            {name: values[index] for name, values in outputs.items()} for index in range(len(rows))
        ]

    def _rows_of_lines(self, lines: Iterable[str]) -> Iterator[dict[str, np.ndarray] | str]:
        return (self._row_of_json(line) for line in lines if line.strip())

    def _row_of_json(self, text: str) -> dict[str, np.ndarray] | str:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            return f"not JSON: {first_line(error)}"
        if not isinstance(found, dict):
            found = {next(iter(self._specs)): found} if len(self._specs) == 1 else {}
        return self._row(found)

    def _rows_of_arrays(self, path: Path) -> Iterator[dict[str, np.ndarray] | str]:
        found = read_npz(path)
        if missing := [name for name in self._specs if name not in found]:
            raise RunnerError(f"{path}: has no array {', '.join(missing)}")
        arrays = {name: found[name] for name in self._specs}
        sizes = {name: array.shape[:1] for name, array in arrays.items()}
        if len({*sizes.values()}) != 1 or () in sizes.values():
            rows = ", ".join(
                f"{name} {size[0] if size else 'none'}" for name, size in sizes.items()
            )
            raise RunnerError(f"{path}: expected arrays of equally many rows, got {rows}")
        for index in range(len(next(iter(arrays.values())))):
            yield self._row({name: array[index] for name, array in arrays.items()})

    def _row(self, values: Mapping[str, Any]) -> dict[str, np.ndarray] | str:
        row = {}
        for name, spec in self._specs.items():
            if name not in values:
                return f"has no input {name!r}; expected {', '.join(self._specs)}"
            dtype = object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype
            try:
                row[name] = np.asarray(values[name], dtype)
            except (TypeError, ValueError) as error:
                return f"{name}: {first_line(error)}"
            if not spec.shape[1:].is_compatible_with(row[name].shape):
                expected = spec.shape[1:].as_list()
                return f"{name}: got shape {list(row[name].shape)}, expected {expected}"
        return row


def _prediction(index: int, answer: Mapping[str, Any]) -> Prediction:
    data = {name: _round_values(value) for name, value in answer.items()}
    if _CLASS in data and np.ndim(data[_CLASS]) == 0:
        best = float(np.max(answer[_PROBABILITIES]))
        text = f"{index}: class {data[_CLASS]} ({best:.4f})"
    else:
        shown = data.get(_PROBABILITIES, data[_OUTPUTS])
        text = f"{index}: {json.dumps(shown)}"
    return Prediction(text, {"row": index, **data})


def _round_values(value: Any) -> Any:
    """Returns an array as lists. Numbers have six digits, because the rest is noise."""
    if np.ndim(value):
        return [_round_values(item) for item in value]
    number = np.asarray(value).item()
    return float(f"{number:.6g}") if isinstance(number, float) else number


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
