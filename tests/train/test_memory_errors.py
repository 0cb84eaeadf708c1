"""Used-up memory names the setting to change, with values that are valid."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner.errors import SettingError
from orbit_runner.train.error_messages import error_message_scope, model_error_scope
from orbit_runner.train.memory_errors import TRAIN_DATA, VALIDATION_DATA, memory_error_scope
from tests.support.problems import raises
from tests.support.toy import ToyTask, run, toy_config
from tests.support.translations import translation_config

_TRAIN, _EVAL = "task.train_data.global_batch_size", "task.validation_data.global_batch_size"
_GPU = "if another program uses the GPU (see nvidia-smi), stop it, or set"


def _use_up_memory() -> None:
    """Makes TensorFlow allocate four petabytes."""
    tf.zeros([10**6, 10**9])


def _reported(config: Any, section: str = TRAIN_DATA, replicas: int = 1) -> SettingError:
    with (
        pytest.raises(SettingError) as caught,
        error_message_scope(config, section, replicas=replicas),
    ):
        _use_up_memory()
    return caught.value


@pytest.mark.parametrize(
    ("changes", "replicas", "described", "choices"),
    [
        ({}, 1, "got 8: out of memory with 8 examples at a time",
         ["trainer.gradient_accumulation_steps: 2, which trains the same batch, 4 at a time",
          f"{_TRAIN}: 4"]),
        ({"trainer__gradient_accumulation_steps": 2}, 2,
         "got 8: out of memory with 2 examples at a time (2 replicas × 2 accumulation steps)",
         ["trainer.gradient_accumulation_steps: 4, which trains the same batch, 1 at a time",
          f"{_TRAIN}: 4"]),
        # 2 does not divide the part of a replica.
        ({"task__train_data__global_batch_size": 45}, 5,
         "got 45: out of memory with 9 examples at a time (5 replicas)",
         ["trainer.gradient_accumulation_steps: 3, which trains the same batch, 3 at a time",
          f"{_TRAIN}: 20"]),
        ({"runtime__logical_replicas": 4}, 1,
         "got 8: out of memory with 2 examples at a time (4 logical replicas)",
         ["trainer.gradient_accumulation_steps: 2, which trains the same batch, 1 at a time",
          f"{_TRAIN}: 4"]),
    ],
)  # fmt: skip
def test_training_names_smaller_parts_and_a_smaller_batch(
    changes: dict[str, Any], replicas: int, described: str, choices: list[str]
) -> None:
    error = _reported(toy_config(**changes), replicas=replicas)
    first, cause, *rest = error.reason.splitlines()
    assert error.path == _TRAIN
    assert first == described
    assert cause.startswith("OOM when allocating tensor with shape[1000000,1000000000]")
    assert cause.endswith((" by allocator cpu", " by allocator mklcpu"))  # mklcpu: with oneDNN
    assert rest == ["set one of these:", *(f"  {choice}" for choice in choices)]


def test_evaluation_names_its_own_batch() -> None:
    config = toy_config(trainer__gradient_accumulation_steps=2)
    error = _reported(config, VALIDATION_DATA, 2)
    assert error.path == _EVAL
    assert error.reason.startswith("got 8: out of memory with 4 examples at a time (2 replicas)\n")
    assert error.reason.endswith(f"\nset one of these:\n  {_EVAL}: 4")


def test_single_example_that_does_not_fit_leaves_no_setting() -> None:
    error = _reported(toy_config(task__train_data__global_batch_size=2), replicas=2)
    assert error.reason.endswith(
        "\nmake the model or its examples smaller, or use a device with more memory"
    )


@pytest.mark.parametrize(
    ("rows_multiple", "pieces"),
    [(8, "2, which trains the same batch, 64"), (6, "3, which"), (2, "")],
)
def test_batches_by_tokens_name_their_setting(
    rows_multiple: int, pieces: str, tmp_path: Path
) -> None:
    config = translation_config(tmp_path, task__train_data__batch_rows_multiple=rows_multiple)
    error = _reported(config, replicas=2)
    assert error.path == "task.train_data.batch_tokens"
    first = "got 256: out of memory with 128 tokens at a time (2 replicas)\n"
    assert error.reason.startswith(first)
    assert error.reason.endswith("\n  task.train_data.batch_tokens: 128")
    assert (f"gradient_accumulation_steps: {pieces}" in error.reason) is bool(pieces)
    assert _reported(config, VALIDATION_DATA).path == _EVAL


def test_gpu_can_use_a_smaller_dtype_and_may_be_shared() -> None:
    one = _reported(toy_config(runtime__num_gpus=1)).reason
    assert "\n  runtime.mixed_precision_dtype: bfloat16\n" in one
    assert one.splitlines()[-1].startswith(_GPU)
    half = toy_config(runtime__num_gpus=1, runtime__mixed_precision_dtype="bfloat16")
    assert "bfloat16" not in _reported(half).reason
    parts = toy_config(
        runtime__num_gpus=1,
        runtime__num_virtual_devices=2,
        runtime__distribution_strategy="mirrored",
    )
    assert "\neach of the 2 virtual GPUs has an equal part of" in _reported(parts).reason


@pytest.mark.parametrize(
    "message",
    [
        "Failed copying input tensor from CPU:0 to GPU:0 in order to run _EagerConst: "
        "Dst tensor is not initialized.",
        "CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory",
    ],
)
def test_full_gpu_is_recognized_although_the_error_is_internal(message: str) -> None:
    config = toy_config(runtime__num_gpus=1)
    for scope, path in ((memory_error_scope, _TRAIN), (model_error_scope, "task.model")):
        with pytest.raises(SettingError) as caught, scope(config):
            raise tf.errors.InternalError(None, None, message)
        assert caught.value.path == path
        assert _GPU in caught.value.reason


def test_other_internal_errors_are_raised() -> None:
    for scope in (memory_error_scope, model_error_scope):
        with pytest.raises(tf.errors.InternalError), scope(toy_config()):
            raise tf.errors.InternalError(None, None, "cuDNN failed")


def test_xla_reports_how_much_it_could_not_allocate() -> None:
    @tf.function(jit_compile=True)
    def multiply(x: tf.Tensor) -> tf.Tensor:
        large = tf.broadcast_to(x, [10**6, 10**6])
        return tf.reduce_sum(large @ large)

    with pytest.raises(SettingError) as caught, error_message_scope(toy_config()):
        multiply(tf.ones([1]))
    assert "\nOut of memory while trying to allocate 8" in caught.value.reason


@pytest.mark.parametrize(("step", "path"), [("train_step", _TRAIN), ("validation_step", _EVAL)])
def test_run_names_the_batch_of_the_step_that_failed(
    step: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(ToyTask, step)

    def greedy(self: ToyTask, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        logs = original(self, inputs, *args, **kwargs)
        # The size depends on the values, so that it is not computed while the graph is made.
        rows = 10**6 + tf.cast(tf.reduce_sum(inputs[0]) * 0.0, tf.int64)
        tf.debugging.assert_equal(tf.reduce_sum(tf.zeros([rows, 10**9])), 0.0)
        return logs

    monkeypatch.setattr(ToyTask, step, greedy)
    with raises("out-of-memory", path):
        run(toy_config(trainer__train_steps=5), tmp_path)


def test_steps_that_fit_into_memory_are_counted() -> None:
    steps = iter([10, 14])
    with (
        raises("out-of-memory", "task.train_data.global_batch_size"),
        error_message_scope(toy_config(), step=lambda: next(steps)),
    ):
        _use_up_memory()


@pytest.mark.slow
def test_inspect_tells_whether_a_batch_fits(tmp_path: Path) -> None:
    """The allocator has 48 MiB, which 4096 images need and 256 do not.

    Without oneDNN, because its convolutions end the process if they get no memory.
    """

    def inspect(size: int) -> subprocess.CompletedProcess[str]:
        limit = {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "48", "TF_ENABLE_ONEDNN_OPTS": "0"}
        return subprocess.run(
            [sys.executable, "-m", "orbit_runner", "inspect", "digits", "--measure",
             f"--{_TRAIN}={size}"],
            capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, **limit},
        )  # fmt: skip

    failed = inspect(4096)
    assert failed.returncode == 2
    assert "got 4096: out of memory with 4,096 examples at a time" in failed.stderr
    assert f"{_TRAIN}: 2048" in failed.stderr
    assert inspect(256).returncode == 0
