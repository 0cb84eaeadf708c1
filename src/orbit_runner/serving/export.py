"""Exports a model in one or several formats, and checks the files that have the network alone."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.trainer import SAVED_MODEL
from orbit_runner.config.serialize import to_yaml
from orbit_runner.errors import RunnerError, SettingError, first_line
from orbit_runner.serving.examples import training_features, validation_batches
from orbit_runner.serving.export_check import Examples, ExportCheck, require_close, tolerance_of
from orbit_runner.serving.export_directory import CONFIG, LABELS, RECORD, export_name
from orbit_runner.serving.formats import saved_model
from orbit_runner.serving.formats.base import NetworkFormat, network_formats
from orbit_runner.serving.loader import LoadedModel
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.tasks.assets import copy_assets
from orbit_runner.utils.files import (
    create_directory,
    temporary_path,
    to_jsonable,
    write_atomically,
)
from orbit_runner.utils.log import phase
from orbit_runner.utils.variables import variable_bytes

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

# Training examples that calibrate int8, and validation examples to compare with the model.
_CALIBRATION_EXAMPLES = 256
_CHECK_EXAMPLES = 512
_PACKAGES = ("orbit-runner", "tensorflow", "tf_keras", "tf-models-official")


def export_all(
    formats: Sequence[str],
    loaded: LoadedModel,
    adapter: TaskAdapter,
    config: ExperimentConfig,
    run: Path,
    directory: Path,
    *,
    tolerance: float | None = None,
    replaces: bool = False,
) -> list[JsonObject]:
    """Writes a model in each format below `directory`; returns the records.

    A SavedModel is written to `<directory>/<step>`, as TensorFlow Serving expects it. Each export
    appears only when it is complete. One of the same step is replaced only if `replaces` is set.
    `tolerance` is the largest difference of a file from the model; None for that of its format.
    Raises `RunnerError` if there is one already, if writing fails, if a format does not support the
    network, or if a file differs from the model by more than the tolerance; it is then deleted.
    """
    records = []
    examples = None
    for name in formats:
        phase(f"exporting {name} to {directory}")
        kind = network_formats().get(name)
        if kind is not None:
            _require_network(kind, loaded, adapter)
            if examples is None:
                batches = validation_batches(adapter, config, _CHECK_EXAMPLES)
                examples = Examples(adapter.task, loaded.model, batches)
        place = directory / export_name(loaded.choice.step, name)
        record = _describe_export(loaded, config, run)
        with new_directory_scope(place, replaces=replaces) as aside:
            if kind is None or examples is None:
                record |= saved_model.describe(loaded.serving)
                saved_model.write(loaded.model, loaded.serving, aside)
                extra = aside / saved_model.EXTRA
            else:
                advice = _other_format(loaded)
                record |= _write(kind, aside, examples, adapter, config, tolerance, advice)
                record |= write_labels(aside, loaded.serving.labels)
                copy_assets(run, aside)
                extra = aside
            record["versions"] = dict(_versions())
            write_atomically(extra / CONFIG, to_yaml(config))
            write_atomically(extra / RECORD, json.dumps(to_jsonable(record), indent=2) + "\n")
        records.append({"path": str(place), **record})
    return records


def _require_network(kind: NetworkFormat, loaded: LoadedModel, adapter: TaskAdapter) -> None:
    reason = "several tasks are trained together" if adapter.subtasks else ""
    if reason := reason or loaded.serving.only_saved_model:
        raise RunnerError(f"{kind.name}: {reason}{_other_format(loaded)}", code="export-failed")


def _other_format(loaded: LoadedModel) -> str:
    # A model without signatures, such as Model Garden's, cannot be saved in that format.
    return f"\nuse --format={SAVED_MODEL}" if loaded.serving.signatures else ""


def _write(
    kind: NetworkFormat,
    directory: Path,
    examples: Examples,
    adapter: TaskAdapter,
    config: ExperimentConfig,
    tolerance: float | None,
    advice: str,
) -> JsonObject:
    """Writes and checks the file of a format; returns its part of the record."""
    network = examples.network
    path = directory / kind.file
    try:
        features = training_features(adapter, config, _CALIBRATION_EXAMPLES)
        kind.write(network, path, features)
        run = kind.load(path, [*network.inputs], network.outputs)
    except SettingError:
        raise
    except RunnerError as error:
        raise RunnerError(f"{kind.name}: {error}{advice}", code=error.code) from error
    if kind.loads_keras_model:
        run = dataclasses.replace(network, model=run).numpy_function()
    check = examples.check(run)
    metric = examples.metric_of(config.trainer)
    limit = tolerance_of(kind, metric) if tolerance is None else tolerance
    require_close(kind, check, metric, limit)
    content = path.read_bytes()
    return {
        "format": kind.name,
        "file": path.name,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "model_bytes": variable_bytes(
            variable for variable in network.model.variables if isinstance(variable, tf.Variable)
        ),
        **network.describe(kind.batch),
        **({"calibration_examples": _CALIBRATION_EXAMPLES} if kind.is_calibrated else {}),
        "check": _as_dict(check, metric.name if metric else "", limit),
    }


def write_labels(directory: Path, labels: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Writes the class names of an export, one on each line; returns their part of the record.

    The file is `labels.txt`, or `labels_NAME.txt` for each of several classifications.
    """
    files = {
        name: LABELS if len(labels) == 1 else f"{Path(LABELS).stem}_{name}.txt" for name in labels
    }
    for name, names in labels.items():
        # A line feed in a name would shift all names after it.
        lines = "".join(f"{' '.join(str(class_name).splitlines())}\n" for class_name in names)
        write_atomically(directory / files[name], lines)
    return {"labels": files} if files else {}


def _as_dict(check: ExportCheck, metric: str, tolerance: float) -> dict[str, object]:
    return {**dataclasses.asdict(check), "metric": metric, "tolerance": tolerance}


@contextlib.contextmanager
def new_directory_scope(place: Path, *, replaces: bool) -> Iterator[Path]:
    """Yields the path of a directory to write, which is renamed to `place` after a `with` block.

    If the block raises, nothing changes. An existing directory is replaced only if it is an export
    and `replaces` is set. Raises `RunnerError` if there is one already, or if writing fails.
    """
    aside = temporary_path(place)
    try:
        create_directory(place.parent)
        shutil.rmtree(aside, ignore_errors=True)  # A killed process of the same number left it.
        aside.mkdir()
        yield aside
        records = (place / RECORD, place / saved_model.EXTRA / RECORD)
        if replaces and any(record.is_file() for record in records):
            shutil.rmtree(place)
        aside.rename(place)
    except (OSError, tf.errors.OpError) as error:
        problem = f"{place} already exists" if place.exists() else first_line(error)
        raise RunnerError(f"cannot write the export: {problem}", code="not-writable") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _describe_export(loaded: LoadedModel, config: ExperimentConfig, run: Path) -> JsonObject:
    """Returns how the record of an export in any format begins."""
    return {
        "step": loaded.choice.step,
        "experiment": config.name,
        "task": config.task.name,
        "run": str(run.resolve()),
        "checkpoint": loaded.choice.name,
        "weights": loaded.weights,
        "fingerprint": weights_fingerprint(loaded.model),
        "precision": config.runtime.mixed_precision_dtype or "float32",
    }


def _versions() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
