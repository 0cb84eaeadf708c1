"""Errors of TensorFlow that a setting causes name the setting."""

from pathlib import Path

import pytest
import tensorflow as tf

from orbit_runner.errors import SettingError
from orbit_runner.registry import TASKS
from orbit_runner.train.error_messages import error_message_scope, model_error_scope
from tests.support.digits import digits_config
from tests.support.keras_models import keras_config
from tests.support.problems import raises
from tests.support.toy import make_strategy, session_of


@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
def test_model_that_does_not_fit_into_memory_is_named(strategy: str, tmp_path: Path) -> None:
    config = keras_config(task__model__arguments__units=2_000_000_000)
    task = TASKS.get(config.task.name).load()(config.task)

    with raises("out-of-memory", "task.model"):
        session_of(config, tmp_path, make_strategy(strategy), task=task)


def test_other_invalid_argument_is_raised() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError), model_error_scope():
        tf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))


def test_op_that_xla_cannot_compile_names_its_setting() -> None:
    paddings = [[0, 0], [1, 1], [1, 1], [0, 0]]

    @tf.function(jit_compile=True)
    def pool(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.max_pool2d(x, 2, 2, paddings)

    with raises("not-supported", "runtime.enable_xla"), error_message_scope(digits_config()):
        pool(tf.zeros([1, 4, 4, 1]))


def test_op_without_a_deterministic_kernel_names_its_setting() -> None:
    message = (
        "Graph execution error:\n\nDetected at node gradient_tape/net/block/noise/Grad defined at\n"
        "A deterministic GPU implementation of Noise is not currently available.\n"
        "\t [[{{node while/body/_1/gradient_tape/net/block/noise/Grad}}]]"
    )
    with pytest.raises(SettingError) as caught, error_message_scope(digits_config()):
        raise tf.errors.UnimplementedError(None, None, message)
    assert caught.value.path == "runtime.deterministic"
    text = str(caught.value)
    assert "an op has no deterministic kernel on this device: A deterministic GPU impl" in text
    assert "set runtime.enable_xla to true" in text


def test_unimplemented_op_is_raised() -> None:
    error = tf.errors.UnimplementedError(None, None, "no kernel for [[{{node a/b}}]]")
    with pytest.raises(tf.errors.UnimplementedError), error_message_scope(digits_config()):
        raise error
