"""Loads an export in any format, for predictions with the signatures of its task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.trainer import SAVED_MODEL
from orbit_runner.errors import DataError, RunnerError, SettingError, first_line
from orbit_runner.serving.export import load_signatures, parse_spec
from orbit_runner.serving.export_directory import (
    KERAS,
    ONNX,
    is_saved_model,
    missing_packages,
    model_file,
    read_export_record,
)
from orbit_runner.serving.formats import litert, onnx
from orbit_runner.serving.loader import require_method
from orbit_runner.serving.network import NumpyFunction


def load_export(path: Path, task: Any) -> Mapping[str, Any]:
    """Returns the signatures of an export in any format.

    For a file with the network alone, the task makes the signatures around it, from the assets in
    the directory of the export. Raises `RunnerError` if the export cannot be loaded, or if a
    package is missing.
    """
    if is_saved_model(path):
        return load_signatures(path)
    require_method(task, "serving")
    record = read_export_record(path)
    name = str(record.get("format"))
    if problem := missing_packages([name]):
        raise RunnerError(f"WHERE: {path}: {problem}")
    try:
        model = _load_network(path / model_file(name), name, record)
    except RunnerError:
        raise
    except Exception as error:  # The libraries of the formats raise any error for damaged files.
        raise RunnerError(f"WHERE: {path} cannot be loaded: {first_line(error)}") from error
    try:
        signatures: Mapping[str, Any] = task.serving(model).signatures
    except (DataError, SettingError) as error:
        raise RunnerError(
            f"WHERE: {path} has only the network, and what the run learned from its data is "
            f"missing: {error}\npass the run directory, or an export with --format={SAVED_MODEL}"
        ) from error
    return signatures


def _load_network(path: Path, name: str, record: Mapping[str, Any]) -> Any:
    if name == KERAS:
        return tf_keras.models.load_model(path, compile=False)
    if "structure" not in record:
        raise RunnerError(
            f"WHERE: {path.parent} was written by an earlier version, whose record has no "
            "structure of the outputs\nexport the run again"
        )
    inputs, outputs = ([*record[side]] for side in ("inputs", "outputs"))
    load = onnx.load if name == ONNX else litert.load
    return ExportedNetwork(load(path, inputs, outputs), record)


class ExportedNetwork:
    """The network of a file, which is called like the model that it was made from.

    `record` is that of the export. Computes on the CPU.

    Attributes:
        inputs: The shapes and types of the inputs, in the order of `tf.nest.flatten`.
        input_shape: The shape of the only input, with None for the size of the batch.
    """

    def __init__(self, run: NumpyFunction, record: Mapping[str, Any]) -> None:
        self._run = run
        self._structure = record["structure"]
        self._outputs = [_any_batch(text) for text in record["outputs"].values()]
        self.inputs = [_any_batch(text) for text in record["inputs"].values()]
        self.input_shape = tuple(self.inputs[0].shape) if len(self.inputs) == 1 else None

    def __call__(self, features: Any, training: bool = False) -> Any:
        """Returns the outputs for the features of a batch."""
        del training
        values = [
            tf.cast(value, spec.dtype) if value.dtype != spec.dtype else value
            for value, spec in zip(tf.nest.flatten(features), self.inputs, strict=True)
        ]
        types = [spec.dtype for spec in self._outputs]
        found = tf.numpy_function(self._call, values, types)
        outputs = [
            tf.ensure_shape(value, spec.shape)
            for value, spec in zip(found, self._outputs, strict=True)
        ]
        return tf.nest.pack_sequence_as(self._structure, outputs)

    def _call(self, *values: Any) -> list[Any]:
        return [
            answer.astype(spec.dtype.as_numpy_dtype)
            for answer, spec in zip(self._run(values), self._outputs, strict=True)
        ]


def _any_batch(text: str) -> tf.TensorSpec:
    spec = parse_spec(text)
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
