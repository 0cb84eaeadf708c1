"""Loads a trained model, without a strategy: from a checkpoint, or from an export."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.checkpoint.latest_checkpoint import AVERAGE, CheckpointLocation
from orbit_runner.checkpoint.restore import Restorer
from orbit_runner.config.schedule_length import follow_run
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.trainer import SAVED_MODEL
from orbit_runner.determinism.numerics import configure_numerics
from orbit_runner.distribute.devices import select_devices
from orbit_runner.errors import DataError, RunnerError, SettingError, first_line
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.serving.export_directory import (
    is_saved_model,
    missing_packages,
    read_export_record,
)
from orbit_runner.serving.formats import saved_model
from orbit_runner.serving.formats.base import NetworkFormat, network_formats
from orbit_runner.serving.network import ExportedNetwork
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.adapter import TaskAdapter, adapt, build_task
from orbit_runner.tasks.serving import Serving
from orbit_runner.train.build_state import build_state
from orbit_runner.utils.log import phase
from orbit_runner.utils.user_code import CodeComparison

if TYPE_CHECKING:
    import tf_keras

    from orbit_runner.utils.types import JsonObject


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A model that is ready for export or prediction."""

    model: tf_keras.Model
    serving: Serving  # without signatures if the task defines none
    choice: CheckpointLocation
    weights: str  # `average` or `plain`.


def single_process_runtime(runtime: RuntimeConfig, num_gpus: int = 0) -> RuntimeConfig:
    """Returns the runtime settings for a single process, whatever strategy the run had.

    Keeps precision and threads, and resets what determines the bits of training or where it runs.
    `num_gpus` has the same meaning as in the settings, but at most one GPU is used.
    """
    single_runtime = runtime.without("cluster", "service", "devices")
    return single_runtime.replace(
        distribution_strategy="off", num_gpus=num_gpus, deterministic=False, run_eagerly=False
    )


def make_task(config: ExperimentConfig, run: Path | None, num_gpus: int = 0) -> tf.Module:
    """Configures a process that does not train, and returns the task.

    `run` is the run directory, in which tasks may keep prepared data; None if there is only an
    export. `num_gpus` is -1 for a GPU if there is one, and 0 for the CPU.
    """
    runtime = single_process_runtime(config.runtime, num_gpus)
    # If TensorFlow has already started with other thread counts, the model can still be used.
    configure_numerics(runtime, require_threads=False)
    select_devices(runtime)
    if run is None:  # An export; or `runner inspect`, whose data are local already.
        return build_task(config, None, needs_data=False)
    # Without assets, the model may depend on the data.
    return build_task(config, str(run), needs_data=not RunDirectory(run).assets.is_dir())


def has_method(task: tf.Module, method: str) -> bool:
    """Returns whether a task defines `method`, which Model Garden's tasks do not."""
    from orbit_runner.tasks.base import Task

    implementation = getattr(type(task), method, None)
    return implementation is not None and implementation is not getattr(Task, method)


def require_method(task: tf.Module, method: str) -> None:
    """Raises `RunnerError` if a task does not define `method`."""
    if not has_method(task, method):
        what = "be exported" if method == "serving" else "make predictions"
        raise RunnerError(
            f"{type(task).__name__} cannot {what}, because it does not define `{method}`\n"
            "docs/serving.md says how to define it, and how to export tasks of Model Garden",
            code="missing-method",
        )


@contextlib.contextmanager
def load_scope(
    config: ExperimentConfig,
    task: tf.Module,
    choice: CheckpointLocation,
    weights: str,
    device: str | None = None,
    *,
    needs_signatures: bool = True,
) -> Iterator[LoadedModel]:
    """Builds a model and restores the weights of a checkpoint into it.

    The config may have been run with any strategy. `weights` is `average` or `plain`. `device` is
    the device of the variables; None for TensorFlow's choice. Yields the model with its signatures;
    after the `with` block, the model has the plain weights. Raises `RunnerError` if the checkpoint
    does not fit, or if `needs_signatures` and the task has no signatures.
    """
    if needs_signatures:
        require_method(task, "serving")
    strategy = tf.distribute.get_strategy()
    try:
        with tf.device(device):
            # The length of the schedule does not matter, because nothing is trained.
            state = restored_state(follow_run(config, 0, 0), adapt(task), strategy, choice, weights)
    except DataError as error:
        raise RunnerError(
            f"{error}\nthe network depends on the dataset; if that has moved, use --data_dir",
            code=error.code,
        ) from error
    with state.ema.applied_scope() if state.ema else contextlib.nullcontext():
        is_defined = has_method(task, "serving")
        serving = task.serving(state.model) if is_defined else Serving({}, default="")
        yield LoadedModel(state.model, serving, choice, weights)


def restored_state(
    config: ExperimentConfig,
    adapter: TaskAdapter,
    strategy: tf.distribute.Strategy,
    choice: CheckpointLocation,
    weights: str,
) -> TrainState:
    """Builds a model, and restores a checkpoint into it.

    `weights` is `average` or `plain`. The state has an average only if its model needs it to have
    these weights. Raises `RunnerError` if the checkpoint does not fit or is damaged.
    """
    phase("building the model")
    state = build_state(config, adapter, strategy)
    phase(f"restoring {choice.prefix}")
    restorer = Restorer(state, state.checkpoint(), strategy)
    record = choice.record()
    try:
        restorer.restore(str(choice.prefix), record)
    except RunnerError as error:
        # Its last line is advice on resuming.
        reason = str(error).rpartition("\n")[0] or str(error)
        raise RunnerError(
            f"{reason}\nrun `runner verify` to check the checkpoint; it must have been made with "
            "the run's config.yaml",
            code="checkpoint-mismatch",
        ) from error
    code = CodeComparison()
    code.begin(record.step, record.code)
    code.report()
    # The best checkpoint has the average as its weights, so nothing has to be swapped.
    if weights != AVERAGE or choice.is_best:
        state = dataclasses.replace(state, ema=None)
    return state


def load_export(path: Path, task: tf.Module) -> Mapping[str, Callable[..., dict[str, tf.Tensor]]]:
    """Returns the signatures of an export in any format.

    For a file with the network alone, the task makes the signatures around it, from the assets in
    the directory of the export. Raises `RunnerError` if the export cannot be loaded, or if a
    package is missing.
    """
    phase(f"loading {path}")
    if is_saved_model(path):
        return saved_model.load_signatures(path)
    require_method(task, "serving")
    record = read_export_record(path)
    name = str(record.get("format"))
    if problem := missing_packages([name]):
        raise RunnerError(f"{path}: {problem}", path="WHERE", code="export-failed")
    try:
        model = _load_network(network_formats()[name], path, record)
    except RunnerError:
        raise
    except Exception as error:  # The libraries of the formats raise any error for damaged files.
        raise RunnerError(
            f"{path} cannot be loaded: {first_line(error)}", path="WHERE", code="export-failed"
        ) from error
    try:
        signatures: Mapping[str, Callable[..., dict[str, tf.Tensor]]] = task.serving(
            model
        ).signatures
    except (DataError, SettingError) as error:
        raise RunnerError(
            f"{path} has only the network, and what the run learned from its data is "
            f"missing: {error}\npass the run directory, or an export with --format={SAVED_MODEL}",
            path="WHERE",
            code="other-assets",
        ) from error
    return signatures


def _load_network(
    kind: NetworkFormat, path: Path, record: JsonObject
) -> tf_keras.Model | ExportedNetwork:
    if kind.loads_keras_model:
        return kind.load(path / kind.file, (), ())
    run = kind.load(path / kind.file, [*record["inputs"]], [*record["outputs"]])
    return ExportedNetwork(run, record)
