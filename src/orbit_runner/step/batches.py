"""Gets the batches of steps, and shows their tensors as numbers, and token ids as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.numerics import configure_numerics
from orbit_runner.distribute.devices import select_devices
from orbit_runner.errors import RunnerError
from orbit_runner.serving.loader import single_process_runtime
from orbit_runner.step.results import TensorSummary
from orbit_runner.tasks.adapter import adapt, build_task
from orbit_runner.train.error_messages import error_message_scope
from orbit_runner.train.inputs.distribute import distribute
from orbit_runner.utils.log import phase
from orbit_runner.utils.metrics import summarize_array

if TYPE_CHECKING:
    from official.core import base_task

    from orbit_runner.state.initial_weights import AnyTask
    from orbit_runner.utils.types import JsonObject, Tensors


_PARTS = ("features", "labels", "weights")
_SENTENCES = 3


def batch_summary(batch: Tensors) -> list[TensorSummary]:
    """Returns the tensors of a batch."""
    return [_summary(name, tensor) for name, tensor in named_tensors(batch)]


def named_tensors(batch: Tensors) -> Iterator[tuple[str, tf.Tensor]]:
    """Yields the name and the value of each tensor in a batch."""
    if isinstance(batch, tuple) and 2 <= len(batch) <= len(_PARTS):
        for name, part in zip(_PARTS, batch, strict=False):
            yield from _flatten_part(name, part)
    else:
        yield from _flatten_part("", batch)


def batch_bytes(batch: Tensors) -> int:
    """Returns the bytes of the tensors in a batch, without those of strings."""
    tensors = (value for _, value in named_tensors(batch) if value.dtype != tf.string)
    return sum(int(tf.size(value)) * value.dtype.size for value in tensors)


def pictures(batch: Tensors) -> tuple[np.ndarray, list[str]] | None:
    """Returns the pictures of a batch, [n, height, width, channels], and their labels.

    Returns None if the batch has no pictures with 1, 3 or 4 channels.
    """
    tensors = list(named_tensors(batch))
    for name, value in tensors:
        if value.shape.rank == 4 and value.shape[-1] in (1, 3, 4) and value.dtype != tf.string:
            labels = [v for n, v in tensors if n != name and n.startswith("labels")]
            return value.numpy(), _label_texts(labels[0], len(value)) if labels else []
    return None


def sentences(task: AnyTask, batch: Tensors) -> list[tuple[str, str]]:
    """Returns the first sentences of a batch of token ids; [] if the task has no vocabulary."""
    vocabulary = getattr(task, "vocabulary", None)
    if vocabulary is None or not hasattr(vocabulary, "decode"):
        return []
    texts = []
    for name, value in named_tensors(batch):
        if value.shape.rank == 2 and value.dtype.is_integer:
            rows = [row[row > 0] for row in value[:_SENTENCES].numpy()]  # 0 is padding.
            texts += [(name, text) for text in vocabulary.decode(rows)]
    return texts


def _flatten_part(name: str, part: Tensors) -> Iterator[tuple[str, tf.Tensor]]:
    if not isinstance(part, (dict, tuple, list)):
        yield name or "batch", part.flat_values if isinstance(part, tf.RaggedTensor) else part
        return
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        yield from _flatten_part(f"{name}.{key}" if name else str(key), value)


def _summary(name: str, tensor: tf.Tensor) -> TensorSummary:
    shape = tuple(tensor.shape.as_list())
    dtype = tensor.dtype.name
    if tensor.dtype == tf.string or not int(tf.size(tensor)):
        return TensorSummary(name, shape, dtype)
    return TensorSummary(name, shape, dtype, *summarize_array(np.asarray(tensor)))


def _label_texts(labels: tf.Tensor, count: int) -> list[str]:
    values = np.asarray(labels)
    if values.ndim == 2:  # Shares of the classes, if images are mixed.
        values = values.argmax(axis=-1)
    if values.ndim != 1 or len(values) != count or values.dtype.kind not in "iu":
        return []
    return [str(value) for value in values]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayedStep:
    """The batch of a step whose examples are known only by their position in the stream."""

    step: int  # from 1
    rows: Sequence[JsonObject]  # `row`, `position` in the stream and perhaps `label` of each
    tensors: Sequence[TensorSummary]
    text: Sequence[tuple[str, str]]  # the first sentences, with the name of their tensor
    images: np.ndarray | None  # [n, height, width, channels]; None if there are none

    def as_dict(self) -> JsonObject:
        """Returns the values for JSON, without pictures."""
        values = dataclasses.asdict(dataclasses.replace(self, images=None))
        del values["images"]
        return {"step": self.step, "order": "replayed", **values}


def replayed_step(task: AnyTask, step: int, batch: Tensors) -> ReplayedStep:
    """Returns the batch of a step; all batches before it must have as many rows."""
    images, labels = pictures(batch) or (None, [])
    size = int(next(named_tensors(batch))[1].shape[0])
    rows = [
        {"row": row, "position": (step - 1) * size + row}
        | ({"label": labels[row]} if labels else {})
        for row in range(size)
    ]
    return ReplayedStep(
        step=step,
        rows=rows,
        tensors=batch_summary(batch),
        text=sentences(task, batch),
        images=images,
    )


def step_batches(
    config: ExperimentConfig, run: Path | None, *, first: int, last: int, recoveries: int = 0
) -> tuple[base_task.Task, Iterator[Tensors]]:
    """Returns the task and its global batches of the steps from `first` to `last`, from step 1 on.

    If the pipeline can only start at its beginning, the batches before `first` are made as well.
    `config` has local paths, and tasks may keep prepared data in `run`. Raises `RunnerError` if the
    task has no single training dataset, or if that has fewer batches.
    """
    runtime = single_process_runtime(config.runtime).replace(
        deterministic=config.runtime.deterministic
    )
    config = config.replace(runtime=runtime)
    # Not `make_task`: with deterministic ops, a pipeline draws the same numbers as in the run.
    configure_numerics(runtime, require_threads=False)
    select_devices(runtime)
    task = build_task(config, str(run) if run else None)
    adapter = adapt(task)
    data = getattr(config.for_task.task, "train_data", None)
    if adapter.subtasks or data is None:
        several = "several tasks are trained together"
        reason = several if adapter.subtasks else "it has no train_data"
        message = f"the task has no single training dataset: {reason}"
        raise RunnerError(message, code="not-supported")
    phase("making the batch")
    seeded = resolve_data_config(data, config.runtime, recoveries)
    with error_message_scope(config):
        dataset = distribute(tf.distribute.get_strategy(), adapter, seeded, runtime, first - 1)
        try:
            return task, _batches(config, iter(dataset), first, last)
        except StopIteration:  # While the batches of earlier steps were made.
            raise _end_error(first) from None


def _batches(
    config: ExperimentConfig, batches: Iterator[Tensors], first: int, last: int
) -> Iterator[Tensors]:
    for step in range(first, last + 1):
        with error_message_scope(config):
            batch = next(batches, None)
        if batch is None:
            raise _end_error(step)
        yield batch


def _end_error(step: int) -> RunnerError:
    return RunnerError(
        f"the training dataset ends before step {step}", path="--step", code="unknown-step"
    )
