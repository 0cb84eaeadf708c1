"""Examples of a run's own data: to compare an export with its model, and to calibrate it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.errors import RunnerError, SettingError
from orbit_runner.serving.loader import single_process_runtime
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.train.inputs.distribute import leading_size, own_batches

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

_ROWS = 16  # the largest batch
# The settings of training data that change examples at random, and the values that turn them off.
_NOT_AUGMENTED = {
    "augment": "none",
    "aug_rand_hflip": False,
    "aug_crop": False,
    "aug_type": None,
    "color_jitter": 0.0,
    "random_erasing": None,
    "mixup_and_cutmix": None,
    "three_augment": False,
}


def validation_batches(
    adapter: TaskAdapter, config: ExperimentConfig, count: int
) -> Iterator[Tensors]:
    """Yields batches of validation data with about `count` examples.

    If the task can make a batch by its number, the batches are spread evenly over the dataset,
    because files may be sorted by class. Otherwise, they are the first ones. Raises `SettingError`
    if there are no validation data.
    """
    data = _section(config, "validation_data")
    with _reason_scope("an export is compared with the model on validation examples"):
        chunks = adapter.step_batches(data, 1)
        if chunks is None or chunks.steps is None:
            yield from _take_batches(
                own_batches(adapter, single_process_runtime(config.runtime), data), count
            )
            return
        batches = min(chunks.steps, -(-count // chunks.batch_size))
        for number in range(batches):
            step = number * chunks.steps // batches
            yield chunks.batch_at(tf.constant(step, tf.int64))


def training_features(
    adapter: TaskAdapter, config: ExperimentConfig, count: int
) -> Iterator[Tensors]:
    """Yields the features of the first `count` training examples, without augmentation, one by one.

    They are in the order of training, so that they are a random sample of the dataset. Raises
    `SettingError` if there are no training data.
    """
    data = _section(config, "train_data")
    data = data.replace(**{n: v for n, v in _NOT_AUGMENTED.items() if hasattr(data, n)})
    with _reason_scope("int8 needs training examples for its calibration"):
        yielded = 0
        for batch in own_batches(adapter, single_process_runtime(config.runtime), data):
            features, _, _ = tf_keras.utils.unpack_x_y_sample_weight(batch)
            for row in range(int(leading_size(features))):
                yield tf.nest.map_structure(lambda tensor, n=row: tensor[n : n + 1], features)
                yielded += 1
                if yielded == count:
                    return


def _take_batches(batches: Iterator[Tensors], count: int) -> Iterator[Tensors]:
    num_examples = 0
    for batch in batches:
        yield batch
        num_examples += int(leading_size(batch))
        if num_examples >= count:
            return


def _section(config: ExperimentConfig, name: str) -> Any:
    """Returns a section whose batches are small and are made in this process."""
    data = getattr(config.for_task.task, name, None)
    if data is None:
        raise RunnerError(
            f"task.{name} is not set, but every export in this format is checked with real "
            "examples\nset it with --task.…, or use --format=saved_model",
            code="not-set",
        )
    size = min(getattr(data, "global_batch_size", 0) or _ROWS, _ROWS)
    overrides = {
        "global_batch_size": size,
        "drop_remainder": False,
        "cache": False,
        "enable_tf_data_service": False,
        "tf_data_service_address": None,
    }
    data = data.replace(**{n: value for n, value in overrides.items() if hasattr(data, n)})
    return resolve_data_config(data, single_process_runtime(config.runtime))


@contextlib.contextmanager
def _reason_scope(reason: str) -> Iterator[None]:
    """Adds to the error of a data setting why the data are needed."""
    try:
        yield
    except SettingError as error:
        raise SettingError(error.path, f"{error.reason}\n{reason}", code=error.code) from error
