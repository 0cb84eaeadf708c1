"""Exports a SavedModel with named signatures, which tensorflow alone can load."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.trainer import SAVED_MODEL
from orbit_runner.config.serialize import to_yaml
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.serving.export_directory import CONFIG, EXTRA, RECORD, export_name
from orbit_runner.serving.loader import LoadedModel
from orbit_runner.serving.network import track_values
from orbit_runner.tasks.serving import DEFAULT_SIGNATURE, Serving
from orbit_runner.utils.files import write_atomically

_PACKAGES = ("orbit-runner", "tensorflow", "tf_keras", "tf-models-official")


def export(
    loaded: LoadedModel,
    config: ExperimentConfig,
    run: Path,
    folder: Path,
    *,
    replaces: bool = False,
) -> dict[str, Any]:
    """Writes a model to `<folder>/<step>`, as TensorFlow Serving expects it; returns its record.

    The directory appears only when it is complete. An export of the same step is replaced only if
    `replaces` is set. Raises `RunnerError` if there is one already, or if writing fails.
    """
    place = folder / export_name(loaded.choice.place.step, SAVED_MODEL)
    record = {
        **describe_export(loaded, config, run),
        "signatures": describe_signatures(loaded.serving.signatures),
        "default": loaded.serving.default,
    }
    # The versions are the last entry.
    record["versions"] = record.pop("versions")
    with new_directory_scope(place, replaces=replaces) as aside:
        _save(loaded.model, loaded.serving, aside)
        write_atomically(aside / EXTRA / CONFIG, to_yaml(config))
        write_atomically(aside / EXTRA / RECORD, json.dumps(record, indent=2) + "\n")
    return {"path": str(place), **record}


@contextlib.contextmanager
def new_directory_scope(place: Path, *, replaces: bool) -> Iterator[Path]:
    """Yields the path of a directory to write, which is renamed to `place` after a `with` block.

    If the block raises, nothing is left. An existing directory is replaced only if `replaces` is
    set. Raises `RunnerError` if there is one already, or if writing fails.
    """
    aside, old = (
        place.with_name(f".{what}-{place.name}-{os.getpid()}") for what in ("writing", "old")
    )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        if replaces and place.exists():
            place.rename(old)
        aside.rename(place)
    except (OSError, tf.errors.OpError) as error:
        there = f"{place} already exists" if place.exists() else first_line(error)
        raise RunnerError(f"cannot write the export: {there}") from error
    finally:
        for folder_aside in (aside, old):
            shutil.rmtree(folder_aside, ignore_errors=True)


def _save(model: Any, serving: Serving, path: Path) -> None:
    root = tf.Module()
    track_values(root, model)
    root.resources = list(serving.resources)
    signatures = dict(serving.signatures)
    signatures[DEFAULT_SIGNATURE] = signatures[serving.default]
    try:
        tf.saved_model.save(root, str(path), signatures=signatures)
    except (OSError, tf.errors.OpError):
        raise
    except Exception as error:  # The code of the model is traced, and may raise any error.
        raise RunnerError(
            f"{SAVED_MODEL}: the model cannot be saved: {first_line(error)}"
        ) from error


def describe_export(loaded: LoadedModel, config: ExperimentConfig, run: Path) -> dict[str, Any]:
    """Returns what the record of an export in any format contains."""
    return {
        "step": loaded.choice.place.step,
        "experiment": config.name,
        "task": config.task.name,
        "run": str(run.resolve()),
        "checkpoint": loaded.choice.place.name,
        "weights": loaded.weights,
        "fingerprint": weights_fingerprint(loaded.model),
        "precision": config.runtime.mixed_precision_dtype or "float32",
        "versions": dict(_versions()),
    }


def describe_signatures(signatures: Mapping[str, Any]) -> dict[str, dict[str, dict[str, str]]]:
    """Returns inputs and outputs of signatures by name, as text: `uint8 [?, 8, 8, 1]`."""
    found = {}
    for name, function in signatures.items():
        traced = function.get_concrete_function()
        inputs = traced.structured_input_signature
        named = {spec.name: spec for spec in tf.nest.flatten(inputs)}
        found[name] = {
            "inputs": {key: describe_spec(spec) for key, spec in named.items()},
            "outputs": {
                key: describe_spec(spec) for key, spec in traced.structured_outputs.items()
            },
        }
    return found


def load_signatures(path: Path) -> dict[str, Any]:
    """Returns the signatures of a SavedModel by name.

    Each takes keyword arguments and returns a dict of tensors. Raises `RunnerError` if the model
    cannot be loaded.
    """
    try:
        return dict(tf.saved_model.load(str(path)).signatures)
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise RunnerError(f"WHERE: {path} cannot be loaded: {first_line(error)}") from error


def describe_spec(spec: tf.TensorSpec) -> str:
    """Returns the type and the shape of a tensor as text: `uint8 [?, 8, 8, 1]`."""
    if spec.shape.rank is None:
        return f"{spec.dtype.name} of any shape"
    sizes = ", ".join("?" if size is None else str(size) for size in spec.shape)
    return f"{spec.dtype.name} [{sizes}]"


def parse_spec(text: str) -> tf.TensorSpec:
    """Returns the type and the shape that `describe_spec` has described."""
    name, _, shape = text.partition(" ")
    sizes = shape.strip("[]").split(", ") if shape != "[]" else []
    return tf.TensorSpec([None if size == "?" else int(size) for size in sizes], name)


def _versions() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
