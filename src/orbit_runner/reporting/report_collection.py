"""Collects what the report shows of the model, of a training batch and of an evaluation.

The datasets of the run and its random draws remain unchanged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from orbit_runner.determinism.numerics import unchanged_generators_scope
from orbit_runner.distribute.process_group import is_asynchronous, traits_of
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.inspection.measure import trace_model
from orbit_runner.model_garden.task_adapter import has_services
from orbit_runner.reporting.document import Picture
from orbit_runner.reporting.inspection import encode_pictures
from orbit_runner.reporting.report_data import EvaluationData, InputData, ModelData
from orbit_runner.step.batches import batch_summary, pictures, sentences
from orbit_runner.step.layers import LayerCalls, layer_rows
from orbit_runner.tasks.report_examples import ReportExamples
from orbit_runner.tf_internals import all_layers, clear_losses, is_keras_layer, own_weights
from orbit_runner.train.evaluator import metrics_of
from orbit_runner.train.inputs.distribute import own_batches
from orbit_runner.train.run import Run

if TYPE_CHECKING:
    import tf_keras

    from orbit_runner.serving.evaluation import CheckpointEvaluation
    from orbit_runner.utils.types import Tensors

_MOST_PICTURES = 32
_MOST_ROWS = 50
_MOST_TEXT = 2000
_MOST_FACTS = 200
_MOST_NAMES = 100_000  # characters of the names of all classes
# What `runner evaluate` adds to an evaluation takes at most as long, in seconds.
_DETAIL_SECONDS = 10.0
_PART_ROWS = 64  # of a part of a validation batch


def collect_inputs(run: Run, step: int) -> tuple[InputData, Tensors | None]:
    """Returns the training batch of a step for the report, and its features; None if unknown."""
    inputs, features = _collect_batch(run, step)
    return dataclasses.replace(inputs, baselines=run.config.data.known_baselines()), features


def _collect_batch(run: Run, step: int) -> tuple[InputData, Tensors | None]:
    problem = _problem(run) or (
        "several tasks are trained together" if run.adapter.subtasks else ""
    )
    if problem:
        return InputData(problem=problem), None
    with unchanged_generators_scope():
        try:
            batch = next(batches_of(run, "train_data", step))
        except StopIteration:
            return InputData(problem="the dataset has no batches"), None
        except RunnerError as error:
            return InputData(problem=first_line(error)), None
        images, labels = pictures(batch) or (None, [])
        names = getattr(run.task, "class_names", ())
        captions = [names[int(label)] if int(label) < len(names) else label for label in labels]
        input_data = InputData(
            step=step if run.adapter.starts_at_step else None,
            pictures=_encode_pictures(images, captions),
            sentences=[(name, _cut(text)) for name, text in sentences(run.task, batch)],
            tensors=batch_summary(batch)[:_MOST_ROWS],
        )
        return input_data, batch[0] if isinstance(batch, tuple) else None


def collect_model(run: Run, features: Tensors | None) -> ModelData | None:
    """Returns the layers, or None if the model is not a Keras model.

    `features` are those of a batch, for models that do not declare their inputs.
    """
    model = run.model
    if not is_keras_layer(model):
        return None
    calls = LayerCalls(model)
    if not _problem(run):
        # Without a trace, shapes and operations are unknown. Some models cannot be called so.
        with unchanged_scope(model), contextlib.suppress(Exception):
            trace_model(model, calls, features, training=False)
    flops = None if run.trainer is None else run.trainer.flops
    return ModelData(layer_rows(model, calls), flops)


def collect_evaluation(run: Run | CheckpointEvaluation, seconds: float) -> EvaluationData | None:
    """Returns the examples of an evaluation for the report, or None if the task has none.

    Takes about as many seconds as are given.
    """
    if run.adapter.subtasks or getattr(run.config.for_task, "eval_tasks", None):
        return None
    problem = _problem(run)
    if problem:
        return EvaluationData(step=run.step, problem=problem)
    ema = run.state.ema
    averaged = contextlib.nullcontext() if ema is None else ema.applied_scope()
    batches = validation_parts(run, seconds)
    with averaged, unchanged_scope(run.model), contextlib.closing(batches):
        examples = run.adapter.report_examples(run.model, batches)
    return None if examples is None else _to_evaluation_data(run.step, examples)


def collect_details(evaluation: CheckpointEvaluation) -> EvaluationData | None:
    """Returns what is known of an evaluation of a checkpoint, without pictures.

    None if the task shows nothing. Takes less than a minute.
    """
    details = collect_evaluation(evaluation, _DETAIL_SECONDS)
    if details is None or details.problem:
        return None
    return dataclasses.replace(details, pictures=())


def _to_evaluation_data(step: int, examples: ReportExamples) -> EvaluationData:
    names = [*map(str, examples.classes)]
    return EvaluationData(
        step=step,
        note=_cut(examples.note),
        confusion=[(int(a), int(b), int(n)) for (a, b), n in examples.confusion.items()],
        classes=names if sum(map(len, names)) <= _MOST_NAMES else [],
        pictures=_encode_pictures(examples.images, examples.captions),
        head=[_cut(name) for name in examples.head],
        rows=[[_cut(cell) for cell in row] for row in examples.rows[:_MOST_ROWS]],
        calibration=[*examples.calibration],
        facts=[(_cut(name), _cut(text)) for name, text in examples.facts[:_MOST_FACTS]],
    )


def _problem(run: Run | CheckpointEvaluation) -> str:
    """Returns why nothing can be collected for the report in this process, or ""."""
    if run.workers.count > 1:
        return f"{run.workers.count} processes train together"
    if is_asynchronous(run.strategy):
        return "parameter servers hold the weights"
    if traits_of(run.strategy).uses_tpu:
        return "the model is on TPUs"
    return "tf.data services make the batches" if has_services(run.config) else ""


def _encode_pictures(images: np.ndarray | None, captions: Iterable[object]) -> list[Picture]:
    return encode_pictures(images, map(_cut, captions), _MOST_PICTURES)


def _cut(text: object) -> str:
    text = str(text)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"


def batches_of(run: Run | CheckpointEvaluation, section: str, step: int = 0) -> Iterator[Tensors]:
    """Yields the batches of a section of a run; see `own_batches`."""
    return own_batches(run.adapter, run.config.runtime, run.section(section), step)


def validation_parts(
    run: Run | CheckpointEvaluation, seconds: float
) -> Generator[Tensors, None, None]:
    """Yields the batches of the validation data in parts of at most 64 rows, for some seconds.

    Time counts from the first batch, which has to wait for the pipeline.
    """
    end = math.inf
    for batch in batches_of(run, "validation_data"):
        end = min(end, time.monotonic() + seconds)
        for part in _parts(batch):
            yield part
            if time.monotonic() > end:
                return


def _parts(batch: Tensors) -> Iterator[Tensors]:
    tensors = tf.nest.flatten(batch)
    sizes = {
        tensor.shape[0] if tensor.shape.rank else None for tensor in tensors if tf.is_tensor(tensor)
    }
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None or not all(isinstance(tensor, tf.Tensor) for tensor in tensors):
        yield batch
        return
    for first in range(0, size, _PART_ROWS):
        yield tf.nest.map_structure(
            lambda tensor, start=first: tensor[start : start + _PART_ROWS], batch
        )


@contextlib.contextmanager
def unchanged_scope(model: tf_keras.Model) -> Iterator[None]:
    """Restores random generators and what a call of a model may change after a `with` block."""
    variables = [
        *(v for layer in all_layers(model) for v in own_weights(layer, trainable=False)),
        *(variable for metric in metrics_of(model) for variable in metric.variables),
    ]
    # Each replica has its own value of some variables.
    stored = {
        id(part): part
        for variable in variables
        for part in getattr(variable, "values", (variable,))
    }
    kept = [(part, part.numpy()) for part in stored.values()]
    try:
        with unchanged_generators_scope():
            yield
    finally:
        for part, value in kept:
            part.assign(value)
        # The next trace of a step must not find losses of an eager call.
        clear_losses(model)
