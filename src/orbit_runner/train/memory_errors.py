"""Turns errors about used-up memory into messages about the settings that change its use."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from orbit_runner.checkpoint.disk_errors import describe_disk_problem
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.partitioning import batch_problems, run_problems
from orbit_runner.errors import SettingError, format_count

TRAIN_DATA = "train_data"
VALIDATION_DATA = "validation_data"
# What CUDA and copies to a GPU report in place of a `ResourceExhaustedError`.
_NO_GPU_MEMORY = re.compile(
    r"CUDA_ERROR_OUT_OF_MEMORY|Status: out of memory|Dst tensor is not initialized"
)
_CAUSE = re.compile(rf"OOM|[Oo]ut of memory|{_NO_GPU_MEMORY.pattern}|allocate")
# What surrounds the cause: the node, or the number and the code of one of several errors; the op.
_AROUND = re.compile(r"^\s*(\{\{.*?\}\}|\(\d+\) \w+:)?\s*|\s*\[Op:.*$")
_LINE_LENGTH = 200
_MOST_PIECES = 1024
# How to find out which programs use a GPU, and how to share it with them.
GPU_ADVICE = (
    "if another program uses the GPU (see nvidia-smi), stop it, or set the environment variable "
    "TF_FORCE_GPU_ALLOW_GROWTH=true for both"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether TensorFlow could not allocate memory."""
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return not describe_disk_problem(error)
    return isinstance(error, tf.errors.OpError) and bool(_NO_GPU_MEMORY.search(str(error)))


@contextlib.contextmanager
def memory_error_scope(
    config: ExperimentConfig,
    section: str = TRAIN_DATA,
    *,
    replicas: int = 1,
    step: Callable[[], int] = lambda: 0,
) -> Iterator[None]:
    """Raises SettingError if a `with` block runs out of memory.

    Args:
        config: The experiment.
        section: The data section that is used: `train_data` or `validation_data`.
        replicas: The number of replicas that share a batch.
        step: Returns the current global step.
    """
    first = step()
    try:
        yield
    except tf.errors.OpError as error:
        if not is_out_of_memory(error):
            raise
        done = 0
        with contextlib.suppress(tf.errors.OpError):  # The step may be on the failed device.
            done = step() - first - 1  # The step that failed may have been counted already.
        raise _memory_error(error, _Batches(config, section, replicas), done) from error


@dataclasses.dataclass(frozen=True)
class _Batches:
    """How the batches of a section are divided."""

    config: ExperimentConfig
    section: str
    replicas: int

    @property
    def field(self) -> str:
        """The setting of the section that is the size of a batch."""
        by_tokens = self.section == TRAIN_DATA and bool(getattr(self._data, "batch_tokens", 0))
        return "batch_tokens" if by_tokens else "global_batch_size"

    @property
    def path(self) -> str:
        """The path of the setting; `task` if the size of a batch is not set in this section."""
        return f"task.{self.section}.{self.field}" if self.size else "task"

    @property
    def size(self) -> int:
        """The value of the setting; 0 if it is not set."""
        return int(getattr(self._data, self.field, 0) or 0)

    @property
    def replica_shares(self) -> int:
        """The number of replicas or logical replicas that a batch is divided by."""
        return self.config.runtime.logical_replicas or self.replicas

    @property
    def pieces(self) -> int:
        """The number of pieces that each of them computes one after another."""
        is_training = self.section == TRAIN_DATA
        return self.config.trainer.gradient_accumulation_steps if is_training else 1

    @property
    def at_a_time(self) -> int:
        """The number of examples, or of tokens, that a device computes at a time."""
        return self.size // (self.replica_shares * self.pieces)

    def describe(self) -> str:
        """Returns the size of a batch and of its parts, for a message."""
        logical = "logical " if self.config.runtime.logical_replicas else ""
        shares = [
            f"{count} {name}"
            for count, name in (
                (self.replica_shares, f"{logical}replicas"),
                (self.pieces, "accumulation steps"),
            )
            if count > 1
        ]
        kind = "token" if self.field == "batch_tokens" else "example"
        why = f" ({' × '.join(shares)})" if shares else ""
        return (
            f"{self.size}: out of memory with {format_count(self.at_a_time, kind)} at a time{why}"
        )

    def with_pieces(self) -> _Batches | None:
        """Returns the same batch in the next larger number of pieces, None if there is none."""
        trainer = self.config.trainer
        for pieces in range(self.pieces + 1, min(self.size, _MOST_PIECES) + 1):
            changed = self.config.replace(
                trainer=trainer.replace(gradient_accumulation_steps=pieces)
            )
            batches = dataclasses.replace(self, config=changed)
            if batches._is_valid():
                return batches
        return None

    def halved(self) -> _Batches | None:
        """Returns batches of at most half the size, None if they cannot be that small."""
        task = self.config.task
        unit = 1
        if self.field == "global_batch_size":
            unit = self.replica_shares * self.pieces
        size = self.size // 2 // unit * unit
        if not size:
            return None
        data = self._data.replace(**{self.field: size})
        batches = dataclasses.replace(
            self, config=self.config.replace(task=task.replace(**{self.section: data}))
        )
        return batches if batches._is_valid() else None

    def _is_valid(self) -> bool:
        mode = "train" if self.section == TRAIN_DATA else "eval"
        multiple = getattr(self._data, "batch_rows_multiple", 0)
        if self.field == "batch_tokens" and multiple % (self.replica_shares * self.pieces):
            return False
        problems = [*batch_problems(self.config, self.replicas, mode)]
        return not problems and not any(run_problems(self.config, mode))

    @property
    def _data(self) -> Any:
        return getattr(self.config.task, self.section, None)


def _memory_error(error: Exception, batches: _Batches, done: int) -> SettingError:
    if not batches.size:
        return SettingError(
            batches.path,
            f"out of memory: {find_cause(error)}\nlower global_batch_size in its data",
            code="out-of-memory",
        )
    lines = [f"got {batches.describe()}", find_cause(error)]
    if done > 0:
        lines.append(
            f"memory was enough for {format_count(done, 'earlier step')}: batches may differ in "
            "shape, or other programs may use the memory"
        )
    choices = [*_choices(batches)]
    if choices:
        lines += ["set one of these:", *(f"  {choice}" for choice in choices)]
    else:
        lines.append("make the model or its examples smaller, or use a device with more memory")
    lines += _device_advice(batches.config)
    return SettingError(batches.path, "\n".join(lines), code="out-of-memory")


def _choices(batches: _Batches) -> Iterator[str]:
    """Yields settings that need less memory, with their values."""
    runtime = batches.config.runtime
    is_training = batches.section == TRAIN_DATA
    pieces = batches.with_pieces() if is_training else None
    half = batches.halved()
    if pieces is not None:
        yield (
            f"trainer.gradient_accumulation_steps: {pieces.pieces}, which trains the same batch, "
            f"{pieces.at_a_time} at a time"
        )
    if half is not None:
        yield f"{half.path}: {half.size}"
    is_float32 = runtime.mixed_precision_dtype in (None, "float32")
    if is_training and runtime.uses_accelerators and is_float32:
        yield "runtime.mixed_precision_dtype: bfloat16"


def _device_advice(config: ExperimentConfig) -> Iterator[str]:
    runtime = config.runtime
    if runtime.divides_gpu:
        yield (
            f"each of the {runtime.num_virtual_devices} virtual GPUs has an equal part of the "
            "GPU's memory (runtime.num_virtual_devices)"
        )
    if runtime.num_gpus:
        yield GPU_ADVICE


def find_cause(error: BaseException) -> str:
    """Returns the line of an error that says which memory could not be allocated."""
    lines = [_AROUND.sub("", line)[:_LINE_LENGTH] for line in str(error).splitlines()]
    lines = [line for line in lines if line]
    return next(filter(_CAUSE.search, lines), lines[0] if lines else type(error).__name__)
