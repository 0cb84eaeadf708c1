"""What Model Garden's tasks do differently: data sections, optimizers, inputs that start over.

Their pipelines can only start at their beginning; they become exact by repeatable draws and by
reading the batches of earlier steps again.
"""

from __future__ import annotations

import contextlib
import inspect
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from official.modeling import optimization

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.optimizers import Ema
from orbit_runner.determinism.numerics import set_tensorflow_seed
from orbit_runner.errors import SettingError
from orbit_runner.tf_internals import FuncGraph, averaged_optimizer
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    import tf_keras
    from official.modeling.multitask import base_model

    from orbit_runner.utils.types import Tensors


def section_of(task: object, name: str, path: str = "task") -> Any:
    """Returns a data section, `train_data` or `validation_data`, of a task's config.

    `path` is the dotted path of the config. Raises `SettingError` if there is no such section.
    """
    section = getattr(task, name, None)
    if section is None:
        raise SettingError(
            f"{path}.{name}",
            "the task does not have this section; use another --mode",
            code="missing-method",
        )
    return section


def has_services(config: ExperimentConfig) -> bool:
    """Returns whether tf.data services make the training batches."""
    data = getattr(config.for_task.task, "train_data", None)
    enabled = getattr(data, "enable_tf_data_service", False)
    return bool(config.runtime.tf_data_service or enabled)


_PRIVACY_ARGUMENT = "dp_config"


def optimizer_of(
    config: ExperimentConfig, task: Any, model: tf_keras.Model | base_model.MultiTaskBaseModel
) -> tuple[
    tf_keras.optimizers.Optimizer | tf_keras.optimizers.legacy.Optimizer,
    Ema | optimization.EMAConfig | None,
]:
    """Returns the task's optimizer and the settings of its weight average (None if it has none).

    If the task creates no optimizer, it is that of the model. It is never wrapped in one that
    averages weights, because `WeightAverage` does that. Raises `SettingError` if the config
    requests noise on the gradients and the task does not support that.
    """
    settings = config.for_task.trainer.optimizer_config
    average = getattr(settings, "ema", None)
    if average is not None:
        settings = settings.replace(ema=None)
    optimizer = task.create_optimizer(
        settings, config.for_task.runtime, **_privacy_arguments(config, task)
    )
    if optimizer is None:
        optimizer = model.optimizer
    if isinstance(optimizer, optimization.ExponentialMovingAverage):
        optimizer, values = averaged_optimizer(optimizer)
        return optimizer, Ema(**{**values, "start_step": int(values["start_step"])})
    return optimizer, average


def _privacy_arguments(config: ExperimentConfig, task: Any) -> dict[str, Any]:
    requested = getattr(config.for_task.task, "differential_privacy_config", None)
    if _PRIVACY_ARGUMENT in inspect.signature(task.create_optimizer).parameters:
        return {_PRIVACY_ARGUMENT: requested}
    if requested is None:
        return {}
    raise SettingError(
        "task.differential_privacy_config",
        f"{type(task).__name__}.create_optimizer does not accept {_PRIVACY_ARGUMENT}, so no noise "
        "would be added\nremove this setting",
        code="not-supported",
    )


@contextlib.contextmanager
def repeatable_draws_scope(seed: int, seed_after: int) -> Iterator[None]:
    """Makes a pipeline that is built in a `with` block a function of (seed, position).

    `seed` is used for the random draws of the pipeline and for those while it is built; earlier
    draws have no effect. Requires deterministic ops, because tf.data then keeps the order of
    elements. After the block, TensorFlow's global seed is `seed_after`, and the generators of
    Python and NumPy have their earlier states.
    """
    python = random.getstate()
    arrays = np.random.get_state()
    set_tensorflow_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        with _seeded_crops_scope(), _splittable_functions_scope():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
        set_tensorflow_seed(seed_after)


@contextlib.contextmanager
def _seeded_crops_scope() -> Iterator[None]:
    """Gives random crops without a seed the seed that other ops derive from the global one.

    With deterministic ops, TensorFlow raises an error for them even if the global seed is set.
    """
    original = tf.image.sample_distorted_bounding_box

    def crop(
        image_size: tf.Tensor, bounding_boxes: tf.Tensor, seed: int = 0, **settings: Any
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        own = seed or tf.compat.v1.random.get_seed(None)[1] or 1
        return original(image_size, bounding_boxes, seed=own, **settings)

    tf.image.sample_distorted_bounding_box = crop
    try:
        yield
    finally:
        tf.image.sample_distorted_bounding_box = original


@contextlib.contextmanager
def _splittable_functions_scope() -> Iterator[None]:
    """Removes control dependencies on a function's arguments, such as those in RetinaNet's parser.

    They have no effect, because arguments are computed before the function runs. With deterministic
    ops, TensorFlow splits a function with random ops in two, and the half without the argument
    would fail to load.
    """
    original = FuncGraph.control_dependencies

    def drop_argument_dependencies(
        graph: FuncGraph, control_inputs: Sequence[tf.Operation | tf.Tensor] | None
    ) -> contextlib.AbstractContextManager[None]:
        if control_inputs is None:
            return original(graph, None)
        return original(
            graph,
            [
                item
                for item in control_inputs
                if getattr(getattr(item, "op", item), "type", None) != "Placeholder"
            ],
        )

    FuncGraph.control_dependencies = drop_argument_dependencies
    try:
        yield
    finally:
        FuncGraph.control_dependencies = original


class ReplayedDataset:
    """A dataset whose iterators first make the batches of the steps before the run was resumed.

    With seeds and deterministic ops, a batch is a function of (seed, position), so the batches
    after these are the same as without an interruption. `steps`, at least 1, is the number of steps
    before the run was resumed. `dataset` must skip their batches except for the last one; getting
    that one waits for the skipped ones.
    """

    def __init__(
        self, dataset: tf.data.Dataset | tf.distribute.DistributedDataset, steps: int
    ) -> None:
        self._dataset = dataset
        self._steps = steps

    @property
    def element_spec(self) -> Any:
        """The structure of a step's batch."""
        return self._dataset.element_spec

    def __iter__(self) -> Iterator[Tensors]:
        note(
            f"replaying the input of {self._steps} steps, so that the same batches follow "
            "(trainer.replay_inputs)"
        )
        iterator = iter(self._dataset)
        next(iterator)
        return iterator
