"""How a task's pipelines are run."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.tasks.adapter import adapt
from orbit_runner.train.inputs.distribute import distribute
from tests.support.toy import make_strategy

made: list[int] = []


class Slow:
    """Makes numbers, and remembers which."""

    def build_inputs(self, params: Any, input_context: Any = None) -> tf.data.Dataset:
        def number(index: np.ndarray) -> np.ndarray:
            made.append(int(index))
            return index

        numbers = tf.data.Dataset.range(5).map(
            lambda index: tf.ensure_shape(tf.numpy_function(number, [index], tf.int64), [])
        )
        return numbers.batch(1).prefetch(2)


@pytest.mark.parametrize("strategy", ["off", "one_device"])
def test_first_batches_are_made_before_the_first_request(strategy: str) -> None:
    made.clear()
    params = SimpleNamespace(is_training=True, seed=1)
    data = distribute(make_strategy(strategy), adapt(Slow()), params, RuntimeConfig())
    assert not made
    iterator = iter(data)
    deadline = time.monotonic() + 600
    while not made and time.monotonic() < deadline:
        time.sleep(0.01)
    assert made[0] == 0
    del iterator
