"""Loads a trained model from a checkpoint, without a strategy."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.checkpoint.latest_checkpoint import AVERAGE, CheckpointLocation
from orbit_runner.checkpoint.restore import Restorer
from orbit_runner.config.schedule_length import follow_run
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.determinism.numerics import configure_numerics
from orbit_runner.distribute.devices import select_devices
from orbit_runner.errors import DataError, RunnerError
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.adapter import TaskAdapter, adapt, build_task
from orbit_runner.tasks.serving import Serving
from orbit_runner.train.build_state import build_state
from orbit_runner.utils.log import phase
from orbit_runner.utils.user_code import CodeComparison

if TYPE_CHECKING:
    import tf_keras


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
