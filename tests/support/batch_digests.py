"""Digests of the batches of every data source, under each setting that chooses its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.data import DataConfig, resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.chunks import Chunks
from orbit_runner.data.order.steps import StepOrder
from orbit_runner.errors import RunnerError
from orbit_runner.registration import Entry
from orbit_runner.registry import TABLE_SOURCES, TASKS
from orbit_runner.step.batches import named_tensors, step_batches
from orbit_runner.tasks.adapter import TaskAdapter, adapt, build_task
from orbit_runner.tasks.base import drop_padding
from orbit_runner.train.inputs.distribute import own_batches, pipeline_builder
from tests.support.problems import problems_of
from tests.support.samples import (
    WRITERS,
    Member,
    Settings,
    config_of_section,
    is_stored,
    points_and_classes,
    source_registry,
    write_sample,
)

STEPS = (0, 7, 1000)
REPLICAS = (1, 3)
BATCH = 6  # Epochs end within a batch.
_HERE = "tests.support.batch_digests"
_EXCLUDED = {"train_data.exclude": f"{[*range(0, 36, 2)]}"}
_MIXED = {"train_data.mixture": "[{weight: 3}, {weight: 1}]"}
_FRACTIONS = {"split.fractions": "{train: 0.6, validation: 0.4}"}
# `GROUP` stands for a column that a source can be split by.
CELLS: dict[str, Settings] = {
    "in order": {"train_data.shuffle_buffer_size": 1},
    "shuffled": {},
    "excluded": _EXCLUDED,
    "mixed": _MIXED,
    "split by fraction": _FRACTIONS,
    "split by group": {**_FRACTIONS, "split.hash_of": "[GROUP]"},
    "split by column": {"split.column": "part"},
    "stratified": {**_FRACTIONS, "split.stratified": True},
    "held out": {"validation_split": 0.4, "validation_data.source": "''"},
    "split, excluded, mixed": {**_FRACTIONS, **_EXCLUDED, **_MIXED},
}
# Also by `runner batch`, and arrays in memory through a pipeline.
READ_BOTH_WAYS = ("shuffled", "split, excluded, mixed")
# One case of each way to read examples.
WAYS = (
    "image_classification-image_folder",
    "image_classification-tfrecord",
    "keras-arrays-Items",
    "recommendation-movielens",
    "tabular-csv",
    "translation-parallel_text",
)
_EVALUATED = ("shuffled", "split by fraction", "split by column", "held out")
# The steps at which a pipeline starts and ends.
_RANGES = ((0, 7), (1000, 1000))
Batch = dict[str, np.ndarray]


class Items:
    """Examples that are read by index."""

    def __init__(self) -> None:
        self._points, self._classes = points_and_classes()

    def __len__(self) -> int:
        return len(self._points)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self._points[index], self._classes[index]


class Batches(tf_keras.utils.Sequence):
    """Batches that are read by index."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[np.ndarray, ...]:
        return tuple(array[5 * index : 5 * index + 5] for array in points_and_classes())


def stream() -> tf.data.Dataset:
    """Returns batches that can only be read from the first on."""
    return tf.data.Dataset.from_tensor_slices(points_and_classes()).batch(BATCH)


class Case(NamedTuple):
    """A task and a data source that it reads.

    Attributes:
        member: The task and the source.
        function: The function of this module that returns the data, for `keras-arrays`.
        has_text: Whether the only feature is a column of texts, which are split into words.
    """

    member: Member
    function: str = ""
    has_text: bool = False

    @property
    def name(self) -> str:
        """The name of a test case."""
        variant = "text" if self.has_text else self.function
        return f"{self.member.name}-{variant}" if variant else self.member.name

    @property
    def sections_are_equal(self) -> bool:
        """Whether both sections have the same examples, with the same features."""
        changes_examples = self.function or self.has_text
        if changes_examples or self.member.task.name in ("translation", "recommendation"):
            return False
        return is_stored(self.member)

    def write(self, folder: Path) -> Settings:
        """Writes the files of the source, and returns the settings of a section."""
        if self.function:
            return {"function": f"{_HERE}:{self.function}"}
        return write_sample(self.member, folder)

    def config(self, section: Settings, cell: str) -> ExperimentConfig:
        """Returns the config of a cell. Raises `RunnerError` if the task refuses it."""
        task, source = self.member
        is_table = source.target in (entry.target for entry in TABLE_SOURCES.registered())
        has_columns = is_table or source.name.startswith(("image_csv", "hugging_face"))
        settings: Settings = {"both.global_batch_size": BATCH}
        if task.name == "translation":
            settings = {"train_data.batch_rows_multiple": BATCH}
        if self.has_text:
            settings["features.text"] = ["text" if source.name == "text_files" else "note"]
        elif self.member.name == "tabular-text_files":
            settings["features.categorical"] = ["text"]  # By default, the lines are texts.
        for name, value in CELLS[cell].items():
            group = "person" if has_columns else "directory"
            settings[name] = str(value).replace("GROUP", group)
        return config_of_section(self.member, section, **settings)


def cases() -> list[Case]:
    """Returns each task of this package with each of its data sources."""
    result = []
    for task in filter(_is_own, TASKS.registered()):
        registry = source_registry(task)
        assert registry is not None
        for source in filter(_is_own, registry.entries()):
            result.append(Case(Member(task, source)))
            # The other tables have no texts.
            if task.name == "tabular" and str(source.target) in WRITERS:
                result.append(Case(Member(task, source), has_text=True))
            if (task.name, source.name) == ("keras", "arrays"):
                objects = (Items.__name__, Batches.__name__, stream.__name__)
                result += [Case(Member(task, source), name) for name in objects]
    return result


def _is_own(entry: Entry) -> bool:
    """Returns whether an entry is not that of another test."""
    return str(entry.target).startswith("orbit_runner.")


def cell_digests(case: Case, section: Settings, cell: str) -> str:
    """Returns the digests of the batches of a cell, or the code and the path of its error.

    They are those of the global batches of `STEPS`, and in some cells that of all validation data.
    """
    try:
        config = case.config(section, cell)
        problems = [*config.data.problems()]
        if not problems:
            return " ".join(_batch_digests(case, config, cell))
    except RunnerError as error:
        problems = problems_of(error)
    return f"{problems[0].code}: {problems[0].path.removeprefix('task.')}"


def _batch_digests(case: Case, config: ExperimentConfig, cell: str) -> list[str]:
    """Returns the digests of a cell.

    Asserts that batches do not depend on the number of replicas, nor on whether arrays in memory or
    a pipeline make them, and that their rows are the examples of the order that NumPy computes.
    """
    adapter = adapt(build_task(config, None))
    section = resolve_data_config(config.task.train_data, config.runtime)
    readings = []
    for replicas in REPLICAS:
        if chunks := adapter.step_batches(section, replicas):
            readings.append(_memory_batches(chunks, replicas))
    if cell in READ_BOTH_WAYS:
        readings.append(_batches_of_command(config))
    if cell in READ_BOTH_WAYS or not readings:
        readings.append(_pipeline_batches(adapter, config, section, REPLICAS[-1]))
    digests = [[_digest(reading[step]) for step in STEPS] for reading in readings]
    assert digests == digests[:1] * len(digests), digests
    evaluated: list[Any] = []
    if cell in _EVALUATED:
        evaluated = [*own_batches(adapter, config.runtime, config.task.validation_data)]
        digests[0].append(_digest(*(_join([batch]) for batch in evaluated)))
    examples = config.data.training_examples(section, None)
    if examples is not None:
        _assert_rows_are_the_examples(examples.order, readings[0])
        if cell == "shuffled" and case.sections_are_equal:
            parts = [drop_padding(adapter.task, batch)[0][:2] for batch in evaluated]
            read = [row for part in parts for row in _rows(_join([part]))]
            _assert_examples_are_counted_in_order(examples.order, readings[0], read)
    return digests[0]


def _memory_batches(chunks: Chunks, replicas: int) -> dict[int, Batch]:
    """Returns the global batches of `STEPS` as a loop makes them of arrays in memory."""
    batches = {}
    for step in STEPS:
        parts = [chunks(tf.constant(step, tf.int64), 1, replica) for replica in range(replicas)]
        batches[step] = _join([tf.nest.map_structure(lambda t: t[0], part) for part in parts])
    return batches


def _batches_of_command(config: ExperimentConfig) -> dict[int, Batch]:
    """Returns the batches from step 0 on, and from 1,000 on, as `runner batch` makes them."""
    batches = {}
    for start, stop in _RANGES:
        _, batches_of_steps = step_batches(config, None, first=start + 1, last=stop + 1)
        batches |= {step: _join([batch]) for step, batch in enumerate(batches_of_steps, start)}
    return batches


def _pipeline_batches(
    adapter: TaskAdapter, config: ExperimentConfig, section: DataConfig, replicas: int
) -> dict[int, Batch]:
    """Returns the global batches of `STEPS` from pipelines that start at step 0 and at 1,000."""
    context = tf.distribute.InputContext(1, 0, replicas)
    batches = {}
    for start, stop in _RANGES:
        first = start if adapter.starts_at_step else 0
        build = pipeline_builder(adapter, section, config.runtime, first, autotune=False)
        dataset = build(context).skip((start - first) * replicas)
        parts = [*dataset.take((stop + 1 - start) * replicas)]
        for step in (start, stop):
            place = (step - start) * replicas
            batches[step] = _join(parts[place : place + replicas])
    return batches


def _join(parts: Sequence[object]) -> Batch:
    """Returns the tensors of a global batch by name."""
    named = [{name: tensor.numpy() for name, tensor in named_tensors(part)} for part in parts]
    return {name: np.concatenate([part[name] for part in named]) for name in named[0]}


def _digest(*batches: Batch) -> str:
    """Returns the start of the SHA-256 of the names, types, shapes and values of tensors."""
    content = hashlib.sha256()
    for batch in batches:
        for name, array in batch.items():
            content.update(f"{name} {array.dtype} {array.shape}\n".encode())
            is_text = array.dtype == object
            content.update(repr(array.tolist()).encode() if is_text else array.tobytes())
    return content.hexdigest()[:16]


def _assert_rows_are_the_examples(order: StepOrder, batches: Mapping[int, Batch]) -> None:
    """Asserts that an example has the same row in all batches."""
    rows: dict[tuple[int, int], str] = {}
    for step, batch in batches.items():
        for row, (example, epoch, _) in enumerate(zip(*order.rows(step), strict=True)):
            # Items that users did not choose are drawn again in each epoch.
            key = (int(example), int(epoch) if "features.item" in batch else 0)
            # The sentences of a batch are padded to its longest one, and have the same share.
            values = {
                name: np.trim_zeros(array[row], "b") if array.ndim == 2 else array[row : row + 1]
                for name, array in batch.items()
                if name != "labels.share"
            }
            if example >= 0:
                content = _digest(values)
                assert rows.setdefault(key, content) == content, (step, row)


def _assert_examples_are_counted_in_order(
    order: StepOrder, batches: Mapping[int, Batch], read: Sequence[bytes]
) -> None:
    """Asserts that the number of an example is its place in `read`, the rows of an evaluation."""
    assert len({*read}) == len(read) == order.size
    for step, batch in batches.items():
        assert _rows(batch) == [read[example] for example in order.rows(step).examples], step


def _rows(batch: Batch) -> list[bytes]:
    """Returns the features and labels of each row of a batch, as the bytes of its tensors."""
    parts = [array for name, array in batch.items() if not name.startswith("weights")]
    return [
        b"".join(np.asarray(value).tobytes() for value in row) for row in zip(*parts, strict=True)
    ]
