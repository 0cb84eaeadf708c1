"""A trained model out of a checkpoint, in this process by itself, to be exported or asked."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.checkpoint.integrity import content_problem
from orbit_runner.checkpoint.restore import Restorer
from orbit_runner.checkpoint.selection import AVERAGE, Choice
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import ClusterConfig, RuntimeConfig
from orbit_runner.determinism.numerics import configure_numerics
from orbit_runner.distribute.devices import select_devices
from orbit_runner.errors import DataError, RunnerError
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.adapter import adapt
from orbit_runner.tasks.build import build_task
from orbit_runner.tasks.serving import Serving
from orbit_runner.train.build_state import build_state
from orbit_runner.utils.log import phase


@dataclasses.dataclass(frozen=True)
class Served:
    """A model that is ready to be used.

    Attributes:
        model: The network, with the weights that were asked for.
        serving: Its signatures.
        choice: The checkpoint that it came from.
        weights: `average` or `plain`.
    """

    model: Any
    serving: Serving
    choice: Choice
    weights: str


def by_itself(runtime: RuntimeConfig, num_gpus: int = 0) -> RuntimeConfig:
    """Returns the settings for a process by itself, whatever strategy a run was made with.

    Precision and threads stay; what decides bits of training, or where it takes place, does not.

    Args:
        runtime: The settings of the run.
        num_gpus: The same as in the settings; of several, one is used.
    """
    return runtime.replace(
        distribution_strategy="off",
        num_gpus=num_gpus,
        num_virtual_devices=1,
        num_cores_per_replica=1,
        train_input_partition_dims=None,
        eval_input_partition_dims=None,
        cluster_source="none",
        cluster=ClusterConfig(),
        worker_hosts=None,
        remote_cluster=None,
        tf_data_service=None,
        tpu=None,
        deterministic=False,
        run_eagerly=False,
    )


def make_task(config: ExperimentConfig, run: Path | None, num_gpus: int = 0) -> Any:
    """Makes a process that trains nothing ready, and the task.

    Args:
        config: The experiment.
        run: The folder of its run, where tasks may keep what they made of their data; None where
            there is only an export.
        num_gpus: -1 for a GPU if there is one, 0 for the CPU.
    """
    runtime = by_itself(config.runtime, num_gpus)
    # A process that has started TensorFlow can use a model, whatever threads trained it.
    configure_numerics(runtime, require_threads=False)
    select_devices(runtime)
    return build_task(config, None if run is None else str(run))


def require(task: Any, method: str) -> None:
    """Checks that a task says how it is served.

    Args:
        task: Any task; those of Model Garden do not.
        method: `serving` or `predictor`.

    Raises:
        RunnerError: It does not.
    """
    from orbit_runner.tasks.base import Task

    found = getattr(type(task), method, None)
    if found is None or found is getattr(Task, method):
        what = "is exported" if method == "serving" else "answers files"
        raise RunnerError(
            f"{type(task).__name__} does not say how it {what}: it has no `{method}`\n"
            f"a task of your own can define `{method}`; see docs/serving.md"
        )


@contextlib.contextmanager
def load_scope(
    config: ExperimentConfig,
    task: Any,
    choice: Choice,
    weights: str,
    device: str | None = None,
) -> Iterator[Served]:
    """Builds a model and puts the weights of a checkpoint into it.

    Args:
        config: The experiment, which may have been run under any strategy.
        task: Its task.
        choice: The checkpoint.
        weights: `average` or `plain`.
        device: Where the weights go; where TensorFlow puts them if None.

    Yields:
        The model with its signatures; after the block it has the plain weights.

    Raises:
        RunnerError: The checkpoint does not fit, or the task has no signatures.
    """
    require(task, "serving")
    phase("building the model")
    strategy = tf.distribute.get_strategy()
    try:
        with tf.device(device):
            state = build_state(config, adapt(task), strategy)
    except DataError as error:
        raise RunnerError(
            f"{error}\nthe network is built as the data set asks: --data_dir says where that is now"
        ) from error
    phase(f"restoring {choice.prefix}")
    _restore(state, choice, strategy)
    # The best checkpoint has the average in the place of the weights; both ways are the same then.
    averaged = weights == AVERAGE and state.ema is not None and not choice.is_best
    with state.ema.applied_scope() if averaged and state.ema else contextlib.nullcontext():
        yield Served(state.model, task.serving(state.model), choice, weights)


def _restore(state: TrainState, choice: Choice, strategy: Any) -> None:
    problem = content_problem(choice.place, known=state.non_finite)
    if problem:
        raise RunnerError(
            f"the checkpoint {choice.prefix} {problem}\n--checkpoint=STEP chooses another one"
        )
    restorer = Restorer(state, state.checkpoint(), strategy, partly=False)
    try:
        restorer.restore(choice.prefix, choice.record())
    except RunnerError as error:
        # Its last line is about resuming.
        found = str(error).rpartition("\n")[0] or str(error)
        raise RunnerError(
            f"{found}\n`runner verify` says what is wrong with a checkpoint; the run's config.yaml "
            "has to be the one that made it"
        ) from error
