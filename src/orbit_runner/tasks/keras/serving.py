"""Serving of Keras models: the signatures, and rows of arrays, of JSON and of tables."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.data.arrays import read_npz
from orbit_runner.data.images.files import SUFFIXES
from orbit_runner.data.text.lines import is_utf8
from orbit_runner.errors import RunnerError, first_line, shorten
from orbit_runner.tasks.image_classification.serving import (
    BYTES,
    ImageFile,
    decode_images,
    images_of,
)
from orbit_runner.tasks.keras.label_checks import LossKind
from orbit_runner.tasks.keras.outputs import as_passed
from orbit_runner.tasks.serving import (
    Line,
    Prediction,
    Serving,
    answer_rows,
    argument_line,
    argument_names,
    file_lines,
    is_file,
    named_function,
    stream_lines,
    texts_of,
)
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.rows import Row, item_rows

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

PREDICT, COLUMNS = "predict", "columns"
OUTPUTS, PROBABILITIES, CLASS, LABEL = "outputs", "probabilities", "class", "label"
_X = "x"
# The suffixes of files that TensorFlow decodes as images.
_IMAGE_SUFFIXES = (*SUFFIXES, ".bmp", ".gif", ".webp")
_EXPECTED = "expected an .npz file, a file of JSON lines, a JSON value, or - for standard input"
_JSON_WORDS = ("true", "false", "null")
# Ops that select values by index, and their attributes with the type of the values.
_LOOKUPS = {
    "ResourceGather": "dtype",
    "ResourceGatherNd": "dtype",
    "Gather": "Tparams",
    "GatherV2": "Tparams",
    "GatherNd": "Tparams",
}
_LIMIT = 80  # of values in messages, in characters
# What an input takes, by the kind of its type in NumPy; all others take numbers.
_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {"b": (bool,), "O": (str, bytes)}
_Value = TypeVar("_Value")
# The results of a row by name.
_Answer: TypeAlias = "Mapping[str, np.ndarray | np.generic]"


def make_serving(
    model: tf_keras.Model,
    specs: Mapping[str, tuple[tuple[int, ...], str]],
    kinds: Mapping[str, LossKind],
    classes: Mapping[str, Sequence[str]] = types.MappingProxyType({}),
    decode: Callable[[tf.Tensor], tf.Tensor] | None = None,
    columns: Mapping[str, Sequence[str]] = types.MappingProxyType({}),
) -> Serving:
    """Returns the signature `predict`, `image_bytes` of images, and `columns` of a table.

    `predict` takes `x`, or the inputs by their names, and returns `outputs`. If the loss is for
    classes, it also returns `probabilities`, `class`, the number of the most probable class, and
    `label`, its name, if it has one. Of a model with several outputs, it returns these for each
    output: `NAME_outputs`, `NAME_class`. `columns` takes nothing, and returns the columns of each
    argument of `predict`.

    `specs` are the shapes and types of the arrays. `kinds` are the kinds of the losses by the name
    of the output; the name of a single tensor is "". `classes` are the names of the classes by the
    name of the output. `decode` maps the bytes of an image, a string scalar, to the image as
    evaluation sees it; None if the model was not trained on images. `columns` are the columns of
    each input, by its path; none if the model was not trained on a table.
    """
    inputs = {path: spec for path, spec in specs.items() if path.partition(".")[0] == _X}
    names = [path.partition(".")[2] or _X for path in inputs]
    single = list(inputs) == [_X]

    def predict(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        features = values[0] if single else as_passed(dict(zip(names, values, strict=True)))
        return _answers(model(features, training=False), kinds, classes)

    arguments = [
        tf.TensorSpec([None, *shape], dtype, name=name)
        for name, (shape, dtype) in zip(argument_names(names), inputs.values(), strict=True)
    ]
    labels = {CLASS: list(classes[""])} if "" in kinds and classes.get("") else {}
    signatures = {PREDICT: named_function(predict, arguments)}
    if decode is not None:
        image_decoder = decode
        spec = tf.TensorSpec(arguments[0].shape[1:], arguments[0].dtype)

        def predict_images(images: tf.Tensor) -> dict[str, tf.Tensor]:
            return predict(decode_images(images, image_decoder, spec))

        files = tf.TensorSpec([None], tf.string, name="images")
        signatures[BYTES] = named_function(predict_images, [files])
    if columns:
        by_argument = {
            spec.name: columns[path] for spec, path in zip(arguments, inputs, strict=True)
        }
        signatures[COLUMNS] = _columns_signature(by_argument)
    return Serving(signatures, default=PREDICT, labels=labels)


def _columns_signature(
    columns: Mapping[str, Sequence[str]],
) -> tf.types.experimental.PolymorphicFunction:
    @tf.function(input_signature=[])
    def columns_of_inputs() -> dict[str, tf.Tensor]:
        return {argument: tf.constant([*names]) for argument, names in columns.items()}

    return columns_of_inputs


def _answers(
    returned: Tensors,
    kinds: Mapping[str, LossKind],
    classes: Mapping[str, Sequence[str]],
) -> dict[str, tf.Tensor]:
    # The names of `outputs_of`; that of a single tensor is "".
    by_name = zip(kinds, tf.nest.flatten(returned), strict=True)
    answers: dict[str, tf.Tensor] = {}
    for name, output in by_name:
        outputs = tf.cast(output, tf.float32)
        kind = kinds[name]
        results = {OUTPUTS: outputs, **_class_outputs(outputs, kind.kind, kind.from_logits)}
        number = _class_number(results)
        if classes.get(name) and number is not None:
            results[LABEL] = tf.gather(tf.constant([*classes[name]]), number)
        prefix = f"{name}_" if name else ""
        answers |= {f"{prefix}{key}": value for key, value in results.items()}
    return answers


def _class_outputs(outputs: tf.Tensor, kind: str, from_logits: bool) -> dict[str, tf.Tensor]:
    if kind == "binary":
        return {PROBABILITIES: tf.sigmoid(outputs) if from_logits else outputs}
    if kind not in ("sparse", "categorical"):
        return {}
    return {
        PROBABILITIES: tf.nn.softmax(outputs) if from_logits else outputs,
        CLASS: tf.argmax(outputs, axis=-1),
    }


def _class_number(results: Mapping[str, tf.Tensor]) -> tf.Tensor | None:
    """Returns the number of the class of each row, None if the results have no class."""
    probabilities = results.get(PROBABILITIES)
    if CLASS in results or probabilities is None:
        return results.get(CLASS)
    if probabilities.shape.rank != 2 or probabilities.shape[1] != 1:
        return None
    return tf.cast(probabilities[:, 0] > 0.5, tf.int32)


@dataclasses.dataclass(frozen=True)
class ArrayRow:
    """A row to predict for: an array for each input, or what is wrong with it.

    `place` is where it is in a file, for messages; "" if it is an argument, or the problem says it.
    """

    values: Mapping[str, np.ndarray]
    problem: str = ""
    place: str = ""


class ArrayPredictor:
    """Predicts for rows: of arrays in .npz files, or of JSON; or for image files."""

    def __init__(self, signatures: Mapping[str, tf.types.experimental.Callable]) -> None:
        self._signature = signatures[PREDICT]
        self._image_signature = signatures.get(BYTES)
        function = self._signature
        if not hasattr(function, "graph"):  # It is not one of a SavedModel.
            function = function.get_concrete_function()
        self._graph = function.graph
        specs = tf.nest.flatten(function.structured_input_signature)
        # Shape and type of each argument.
        self.specs: dict[str, tf.TensorSpec] = {spec.name: spec for spec in specs}
        self._count = 0

    @property
    def needs_cpu(self) -> bool:
        """Whether the model selects numbers by index, such as rows of an embedding.

        On a GPU, an index that does not exist selects zeros, without an error.
        """
        graph = self._graph.as_graph_def(add_shapes=False)
        nodes = [*graph.node]
        for definition in graph.library.function:
            nodes.extend(definition.node_def)
        types = [node.attr[_LOOKUPS[node.op]].type for node in nodes if node.op in _LOOKUPS]
        # The sizes of tensors are selected by index, too, but those are integers.
        return any(tf.as_dtype(dtype).is_floating for dtype in types)

    def items(
        self, arguments: Sequence[str], lines: Iterable[str]
    ) -> Iterator[ArrayRow | ImageFile]:
        """Yields the rows of files, of JSON arguments, and of `lines` for `-`, in order.

        For a model of images, files with the suffix of an image and directories are images. Raises
        `RunnerError` if an argument is neither JSON nor a file.
        """
        for argument in arguments or ["-"]:
            if argument == "-":
                yield from self._rows_of_lines(stream_lines(lines))
            elif argument.endswith(".npz"):
                yield from self._rows_of_arrays(Path(argument))
            elif self._names_images(argument):
                yield from images_of(Path(argument))
            elif _is_json(argument):
                yield from self._rows_of_lines([argument_line(argument)])
            elif is_file(argument) and not argument.lower().endswith(_IMAGE_SUFFIXES):
                yield from self._rows_of_lines(file_lines(Path(argument)))
            else:
                raise RunnerError(f"got {shorten(repr(argument))}, {_EXPECTED}", code="bad-item")

    def predict(self, items: Sequence[ArrayRow | ImageFile]) -> list[Prediction]:
        """Returns the outputs for each row or image, or what is wrong with it."""
        rows = [item.problem or item.values for item in items if isinstance(item, ArrayRow)]
        images = [item.read() for item in items if isinstance(item, ImageFile)]
        row_answers = iter(answer_rows(self.predict_rows, rows))
        image_answers = iter(answer_rows(self._predict_images, images, "cannot be decoded: "))
        predictions = []
        for item in items:
            index = self._count
            self._count += 1
            if isinstance(item, ImageFile):
                answer = next(image_answers)
                name = str(item.path)
                place: dict[str, object] = {"image": name}
            else:
                answer = next(row_answers)
                if item.place and isinstance(answer, str):
                    answer = f"{item.place}: {answer}"
                name = str(index)
                place = {"row": index}
            predictions.append(
                Prediction(f"{name}: error: {answer}", {**place, "error": answer})
                if isinstance(answer, str)
                else _prediction(name, place, answer)
            )
        return predictions

    def predict_rows(self, rows: Sequence[Mapping[str, np.ndarray]]) -> list[str | _Answer]:
        """Returns the results for each row of arrays, or why it has none."""
        stacked = {
            name: tf.constant(np.stack([row[name] for row in rows]), spec.dtype)
            for name, spec in self.specs.items()
        }
        return _outputs_by_row(self._signature(**stacked), len(rows))

    def _predict_images(self, images: Sequence[bytes]) -> list[str | _Answer]:
        assert self._image_signature is not None
        results = self._image_signature(images=tf.constant(list(images)))
        return _outputs_by_row(results, len(images))

    def _rows_of_lines(self, lines: Iterable[Line]) -> Iterator[ArrayRow | ImageFile]:
        for line in lines:
            if line.problem:
                yield ArrayRow({}, line.problem)
            elif self._names_images(line.text):
                yield from images_of(Path(line.text))
            elif line.text.strip():
                yield dataclasses.replace(self._row_of_json(line.text), place=line.place)

    def _names_images(self, text: str) -> bool:
        is_image = text.lower().endswith(_IMAGE_SUFFIXES)
        return self._image_signature is not None and (is_image or os.path.isdir(text))

    def _row_of_json(self, text: str) -> ArrayRow:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            return ArrayRow({}, f"not JSON: {first_line(error)}")
        if isinstance(value, dict):
            return self._row(self._rename_inputs(value))
        if len(self.specs) > 1:
            names = ", ".join(self.specs)
            return ArrayRow({}, f"got {_show(value)}, expected an object with the inputs {names}")
        return self._row(dict.fromkeys(self.specs, value))

    def _rows_of_arrays(self, path: Path) -> Iterator[ArrayRow]:
        file = self._rename_inputs(read_npz(path))
        arrays = {name: file[name] for name in self.specs if name in file}
        sizes = {array.shape[:1] for array in arrays.values()}
        if len(arrays) < len(self.specs) or len(sizes) != 1 or () in sizes:
            got = ", ".join(f"{name} {list(array.shape)}" for name, array in file.items())
            raise RunnerError(
                f"{path}: expected arrays {', '.join(self.specs)} of equally many rows, got {got}",
                code="bad-item",
            )
        for index in range(len(next(iter(arrays.values())))):
            row = self._row({name: array[index] for name, array in arrays.items()})
            yield dataclasses.replace(row, place=f"{path}, row {index + 1}")

    def _rename_inputs(self, values: Mapping[str, _Value]) -> Mapping[str, _Value]:
        """Returns values by the arguments of the signature, which are identifiers."""
        others = [name for name in values if name not in self.specs]
        named = dict(zip(argument_names(others), (values[name] for name in others), strict=True))
        return {**named, **values}

    def _row(self, values: Mapping[str, object]) -> ArrayRow:
        row = {}
        for name, spec in self.specs.items():
            if name not in values:
                return ArrayRow({}, f"has no input {name!r}; expected {', '.join(self.specs)}")
            try:
                row[name] = _array_of(values[name], spec)
            except ValueError as error:
                return ArrayRow({}, f"{name}: {error}")
        return ArrayRow(row)


class TableRowPredictor:
    """Predicts for rows of tables with a model that was trained on one.

    `data` is how training reads its table: delimiter, names of columns and missing values.
    """

    def __init__(
        self, signatures: Mapping[str, tf.types.experimental.Callable], data: TableDataConfig
    ) -> None:
        self._data = data
        self._model = ArrayPredictor(signatures)
        columns = signatures[COLUMNS]()
        self._columns = {argument: texts_of(columns[argument]) for argument in self._model.specs}
        ((name, spec), *others) = self._column_specs()
        self._only_text = name if spec.dtype == tf.string and not others else ""

    @property
    def needs_cpu(self) -> bool:
        """Whether the model selects numbers by index; see `ArrayPredictor`."""
        return self._model.needs_cpu

    def items(self, arguments: Sequence[str], lines: Iterable[str]) -> Iterator[Row]:
        """Returns the rows, in order.

        See `item_rows`. If the model sees only a text, sentences are items, too.
        """
        numbers = {name for name, spec in self._column_specs() if spec.dtype != tf.string}
        return item_rows(arguments, lines, self._data, numbers, self._only_text)

    def predict(self, items: Sequence[Row]) -> list[Prediction]:
        """Returns the outputs for each row, or what is wrong with it."""
        rows = [row.problem or self._arrays(row) for row in items]
        answers = answer_rows(self._model.predict_rows, rows)
        return [
            row.error_prediction(answer)
            if isinstance(answer, str)
            else _row_prediction(row, answer)
            for row, answer in zip(items, answers, strict=True)
        ]

    def _column_specs(self) -> Iterator[tuple[str, tf.TensorSpec]]:
        for argument, spec in self._model.specs.items():
            yield from ((name, spec) for name in self._columns[argument])

    def _arrays(self, row: Row) -> dict[str, np.ndarray] | str:
        """Returns the array of each input, or what is wrong."""
        arrays = {}
        try:
            for argument, spec in self._model.specs.items():
                read = Row.category if spec.dtype == tf.string else _number_in
                cells = [read(row, name) for name in self._columns[argument]]
                value = cells if spec.shape.rank > 1 else cells[0]
                arrays[argument] = np.array(value, spec.dtype.as_numpy_dtype)
        except ValueError as error:
            return str(error)
        return arrays


def _number_in(row: Row, name: str) -> float:
    """Returns a number as training reads it. Raises ValueError with what is wrong."""
    number = row.number(name)
    if math.isnan(number):
        raise ValueError(f"column {name!r} has no value, expected a number")
    return number


def _row_prediction(row: Row, answer: _Answer) -> Prediction:
    place = {"row": row.where} if row.where else {}
    prediction = _prediction(row.where, place, answer)
    results = {name: value for name, value in prediction.data.items() if name not in place}
    return dataclasses.replace(
        prediction, cells=row.cells, columns=dict(_flat_columns("predicted", results))
    )


def _flat_columns(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yields the values in nested lists and mappings, each with its path as a name."""
    if isinstance(value, Mapping):
        parts = [*value.items()]
    elif isinstance(value, list):
        parts = [*enumerate(value)]
    else:
        yield name, value
        return
    for key, part in parts:
        yield from _flat_columns(f"{name}_{key}", part)


def _outputs_by_row(results: Mapping[str, tf.Tensor], count: int) -> list[str | _Answer]:
    """Returns the results of each row, or a string if an output of the model is NaN."""
    outputs = {name: value.numpy() for name, value in results.items()}
    return [
        "an output of the model is NaN"
        if any(np.isnan(outputs[name][index]).any() for name in outputs if _is_output(name))
        else {name: values[index] for name, values in outputs.items()}
        for index in range(count)
    ]


def _array_of(value: object, spec: tf.TensorSpec) -> np.ndarray:
    """Returns the array of a JSON value or of a row of an array, with the type of an input.

    Its values are those that are given: what the type cannot represent raises `ValueError`.
    """
    try:
        array = np.asarray(value, object)
    except ValueError as error:
        raise ValueError(first_line(error)) from None
    expected = spec.shape[1:]
    if not expected.is_compatible_with(array.shape):
        raise ValueError(f"got shape {list(array.shape)}, expected {expected.as_list()}")
    dtype = np.dtype(spec.dtype.as_numpy_dtype)
    types = _PYTHON_TYPES.get(dtype.kind, (int, float))
    for item in array.ravel().tolist():
        if type(item) not in types or (isinstance(item, str) and not is_utf8(item)):
            raise ValueError(f"got {_show(item)}, expected {spec.dtype.name}")
    is_integer = dtype.kind in "iu"
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            converted = array.astype(dtype)
        if is_integer:
            is_exact = np.array_equal(converted, array)
        else:
            is_exact = dtype.kind in "bO" or bool(np.isfinite(converted).all())
    except (OverflowError, ValueError):  # An integer of hundreds of digits, or NaN.
        is_exact = False
    if not is_exact:
        numbers = "integers" if is_integer else "finite numbers"
        raise ValueError(f"expected {numbers} in the range of {spec.dtype.name}")
    return converted


def _show(value: object) -> str:
    """Returns a value as JSON for a message."""
    return shorten(json.dumps(value, default=repr), _LIMIT)


def _prediction(name: str, place: Mapping[str, object], answer: _Answer) -> Prediction:
    data = {name: _round_values(value) for name, value in answer.items()}
    prefixes = [name.removesuffix(OUTPUTS) for name in data if _is_output(name)]
    texts = [
        f"{prefix.removesuffix('_')} {_text(prefix, answer, data)}".strip() for prefix in prefixes
    ]
    start = f"{name}: " if name else ""
    return Prediction(f"{start}{', '.join(texts)}", {**place, **data})


def _is_output(name: str) -> bool:
    """Returns whether a result of the signature is an output of the model."""
    return name == OUTPUTS or name.endswith(f"_{OUTPUTS}")


def _text(prefix: str, answer: _Answer, data: Mapping[str, Any]) -> str:
    """Returns the text of an output whose results begin with a prefix."""
    number = data.get(f"{prefix}{CLASS}")
    label = data.get(f"{prefix}{LABEL}")
    if number is not None and np.ndim(number) == 0:
        best = float(np.max(answer[f"{prefix}{PROBABILITIES}"]))
        return f"class {number if label is None else label} ({best:.4f})"
    outputs_text = json.dumps(data.get(f"{prefix}{PROBABILITIES}", data[f"{prefix}{OUTPUTS}"]))
    return outputs_text if label is None else f"class {label} {outputs_text}"


def _round_values(value: Any) -> Any:
    """Returns an array as lists. Numbers have six digits, because the rest is noise."""
    if np.ndim(value):
        return [_round_values(item) for item in value]
    number = np.asarray(value).item()
    if isinstance(number, bytes):
        return number.decode(errors="replace")
    return float(f"{number:.6g}") if isinstance(number, float) else number


def _is_json(argument: str) -> bool:
    text = argument.strip()
    return text[:1] in ("[", "{", '"') or text in _JSON_WORDS or _is_number(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
