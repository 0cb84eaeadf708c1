"""Errors of TensorFlow that a setting causes, such as used-up memory, name the setting."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from orbit_runner.errors import SettingError
from orbit_runner.train.error_messages import (
    TRAIN_DATA,
    VALIDATION_DATA,
    error_message_scope,
)
from tests.support.digits import digits_config
from tests.support.problems import raises
from tests.support.toy import ToyTask, run, toy_config
from tests.support.translations import translation_config

_TRAIN, _EVAL = "task.train_data.global_batch_size", "task.validation_data.global_batch_size"


# As TensorFlow words it, after it has tried for ten seconds.
_OUT_OF_MEMORY = tf.errors.ResourceExhaustedError(
    None,
    None,
    "{{function_node __wrapped__Fill_device_/job:localhost/replica:0/task:0/device:CPU:0}} OOM "
    "when allocating tensor with shape[1000000,1000000000] and type float on "
    "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu [Op:Fill] name: ",
)


def _reported(error, config, section=TRAIN_DATA):
    with pytest.raises(SettingError) as caught, error_message_scope(config, section):
        raise error
    return caught.value


def test_training_names_its_batch_and_what_to_try():
    error = _reported(_OUT_OF_MEMORY, toy_config())
    first, second = error.reason.splitlines()
    assert error.path == _TRAIN
    assert first.startswith(
        "got 8: out of memory: OOM when allocating tensor with shape[1000000,1000000000]"
    )
    assert first.endswith(" by allocator cpu")
    assert second.startswith("try a smaller batch, or a larger trainer.gradient_accumulation_steps")


def test_evaluation_and_batches_by_tokens_name_their_own_setting(tmp_path):
    tokens = translation_config(tmp_path)
    for config in (toy_config(), tokens):
        error = _reported(_OUT_OF_MEMORY, config, VALIDATION_DATA)
        assert error.path == _EVAL
        assert error.reason.endswith("\ntry a smaller batch")
    error = _reported(_OUT_OF_MEMORY, tokens)
    assert error.path == "task.train_data.batch_tokens"
    assert error.reason.startswith("got 256: out of memory: OOM")


@pytest.mark.parametrize(
    "message",
    [
        "Failed copying input tensor from CPU:0 to GPU:0 in order to run _EagerConst: "
        "Dst tensor is not initialized.",
        "CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory",
    ],
)
def test_full_gpu_is_recognized_although_the_error_is_internal(message):
    config = toy_config(runtime__num_gpus=1)
    with raises("out-of-memory", _TRAIN), error_message_scope(config):
        raise tf.errors.InternalError(None, None, message)


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.InternalError(None, None, "cuDNN failed"),
        tf.errors.UnimplementedError(None, None, "no kernel for [[{{node a/b}}]]"),
        tf.errors.InvalidArgumentError(None, None, "Matrix size-incompatible: In[0]: [2,3]"),
    ],
)
def test_other_errors_are_raised(error):
    with pytest.raises(type(error)) as caught, error_message_scope(toy_config()):
        raise error
    assert caught.value is error


@pytest.mark.slow
def test_xla_reports_how_much_it_could_not_allocate():
    @tf.function(jit_compile=True)
    def multiply(x):
        large = tf.broadcast_to(x, [10**6, 10**6])
        return tf.reduce_sum(large @ large)

    with pytest.raises(SettingError) as caught, error_message_scope(toy_config()):
        multiply(tf.ones([1]))
    assert "out of memory: Out of memory while trying to allocate 8" in caught.value.reason


@pytest.mark.sample(1)
@pytest.mark.parametrize(("step", "path"), [("train_step", _TRAIN), ("validation_step", _EVAL)])
def test_run_names_the_batch_of_the_step_that_failed(step, path, tmp_path, monkeypatch):
    original = getattr(ToyTask, step)

    def allocate():
        raise MemoryError  # TensorFlow makes a `ResourceExhaustedError` of it.

    def greedy(self, inputs, *args, **kwargs):
        tf.py_function(allocate, [], [])
        return original(self, inputs, *args, **kwargs)

    monkeypatch.setattr(ToyTask, step, greedy)
    with raises("out-of-memory", path):
        run(toy_config(trainer__train_steps=5), tmp_path)


@pytest.mark.slow
def test_inspect_tells_whether_a_batch_fits(tmp_path):
    """The allocator has 48 MiB, which 4096 images need and 256 do not.

    Without oneDNN, because its convolutions end the process if they get no memory.
    """

    def inspect(size):
        limit = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "48"}
        return subprocess.run(
            [sys.executable, "-m", "orbit_runner", "inspect", "digits", "--measure",
             f"--{_TRAIN}={size}"],
            capture_output=True, text=True, check=False, cwd=tmp_path,
            env={**os.environ, **limit, "TF_ENABLE_ONEDNN_OPTS": "0"},
        )  # fmt: skip

    failed = inspect(4096)
    assert failed.returncode == 2
    assert "got 4096: out of memory: " in failed.stderr
    assert inspect(256).returncode == 0


def test_op_that_xla_cannot_compile_names_its_setting():
    paddings = [[0, 0], [1, 1], [1, 1], [0, 0]]

    @tf.function(jit_compile=True)
    def pool(x):
        return tf.nn.max_pool2d(x, 2, 2, paddings)

    with raises("not-supported", "runtime.enable_xla"), error_message_scope(digits_config()):
        pool(tf.zeros([1, 4, 4, 1]))


def test_op_without_a_deterministic_kernel_names_its_setting():
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
