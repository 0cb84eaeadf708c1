"""Exports the network of a run in formats other than SavedModel, and checks the files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.trainer import SAVED_MODEL
from orbit_runner.config.serialize import to_yaml
from orbit_runner.errors import RunnerError, SettingError
from orbit_runner.serving.examples import training_features, validation_batches
from orbit_runner.serving.export import describe_export, describe_spec, export, new_directory_scope
from orbit_runner.serving.export_check import Examples, ExportCheck, require_close, tolerance_of
from orbit_runner.serving.export_directory import (
    CONFIG,
    KERAS,
    LABELS,
    LITERT_INT8,
    ONNX,
    RECORD,
    ExportOptions,
    export_name,
    model_file,
)
from orbit_runner.serving.formats import keras_file, litert, onnx
from orbit_runner.serving.loader import LoadedModel
from orbit_runner.serving.network import Network, NumpyFunction
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.tasks.assets import copy_assets
from orbit_runner.utils.files import to_jsonable, write_atomically
from orbit_runner.utils.log import phase


def export_all(
    formats: Sequence[str],
    loaded: LoadedModel,
    adapter: TaskAdapter,
    config: ExperimentConfig,
    run: Path,
    folder: Path,
    options: ExportOptions = ExportOptions(),
    *,
    replaces: bool = False,
) -> list[dict[str, Any]]:
    """Writes a model in each format below `folder`; returns the records.

    Raises `RunnerError` if a format does not support the network, or if a file differs from the
    model by more than the tolerance; that file is deleted.
    """
    records, examples = [], None
    for name in formats:
        phase(f"exporting {name} to {folder}")
        if name == SAVED_MODEL:
            records.append(export(loaded, config, run, folder, replaces=replaces))
            continue
        _require_network(name, loaded, adapter)
        if examples is None:
            batches = validation_batches(adapter, config, options.check_examples)
            examples = Examples(adapter.task, loaded.model, batches)
        place = folder / export_name(loaded.choice.place.step, name)
        with new_directory_scope(place, replaces=replaces) as aside:
            record = {
                **describe_export(loaded, config, run),
                **_write(name, aside, examples, adapter, config, options),
                **write_labels(aside, loaded.serving.labels),
            }
            copy_assets(run, aside)
            write_atomically(aside / CONFIG, to_yaml(config))
            write_atomically(aside / RECORD, json.dumps(to_jsonable(record), indent=2) + "\n")
        records.append({"path": str(place), **record})
    return records


def _require_network(name: str, loaded: LoadedModel, adapter: TaskAdapter) -> None:
    reason = "several tasks are trained together" if adapter.subtasks else ""
    if reason := reason or loaded.serving.only_saved_model:
        raise RunnerError(f"{name}: {reason}\nuse --format={SAVED_MODEL}")


def _write(
    name: str,
    folder: Path,
    examples: Examples,
    adapter: TaskAdapter,
    config: ExperimentConfig,
    options: ExportOptions,
) -> dict[str, Any]:
    """Writes and checks the file of a format; returns its part of the record."""
    network, path = examples.network, folder / model_file(name)
    folder.mkdir(parents=True)
    try:
        run = _convert(name, network, path, adapter, config, options)
    except SettingError:
        raise
    except RunnerError as error:
        precision = config.runtime.mixed_precision_dtype or "float32"
        advice = (
            f"\nthe run has mixed_precision_dtype {precision}; try "
            "--runtime.mixed_precision_dtype=float32"
            if precision != "float32"
            else f"\nuse --format={SAVED_MODEL}"
        )
        raise RunnerError(f"{name}: {error}{advice}") from error
    check, metric = examples.check(run), examples.metric_of(config.trainer)
    limit = tolerance_of(name, metric) if options.tolerance is None else options.tolerance
    require_close(name, check, metric, limit)
    content = path.read_bytes()
    return {
        "format": name,
        "file": path.name,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "model_bytes": network.nbytes,
        **_signature(network, 1 if name.startswith(litert.PREFIX) else None),
        "structure": network.structure,
        **({"calibration_examples": options.calibration_examples} if name == LITERT_INT8 else {}),
        "check": _as_dict(check, metric.name if metric else "", limit),
    }


def write_labels(folder: Path, labels: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Writes the class names of an export, one on each line; returns their part of the record.

    The file is `labels.txt`, or `labels_NAME.txt` for each of several classifications.
    """
    files = {
        name: LABELS if len(labels) == 1 else f"{Path(LABELS).stem}_{name}.txt" for name in labels
    }
    for name, names in labels.items():
        # A line feed in a name would shift all names after it.
        lines = "".join(f"{' '.join(str(one).splitlines())}\n" for one in names)
        write_atomically(folder / files[name], lines)
    return {"labels": files} if files else {}


def _convert(
    name: str,
    network: Network,
    path: Path,
    adapter: TaskAdapter,
    config: ExperimentConfig,
    options: ExportOptions,
) -> NumpyFunction:
    """Writes the file of a format, and returns its function."""
    if name == KERAS:
        keras_file.write(network, path)
        return keras_file.load(path, network)
    if name == ONNX:
        onnx.write(network, path)
        return onnx.load(path, list(network.inputs), network.outputs)
    features = training_features(adapter, config, options.calibration_examples)
    litert.write(network, path, name, features)
    return litert.load(path, list(network.inputs), network.outputs)


def _signature(network: Network, batch: int | None) -> dict[str, Any]:
    specs = network.function(batch).get_concrete_function()
    return {
        "inputs": {
            name: describe_spec(tf.TensorSpec([batch, *spec.shape[1:]], spec.dtype))
            for name, spec in network.inputs.items()
        },
        "outputs": {
            name: describe_spec(specs.structured_outputs[name]) for name in network.outputs
        },
    }


def _as_dict(check: ExportCheck, metric: str, tolerance: float) -> dict[str, Any]:
    return {**dataclasses.asdict(check), "metric": metric, "tolerance": tolerance}
