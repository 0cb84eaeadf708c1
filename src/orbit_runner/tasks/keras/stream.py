"""Datasets of tf.data: passed, or returned by a function. They start only at their beginning."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from orbit_runner.data.arrays import leaves, tree_of
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.errors import DataError
from orbit_runner.tasks.keras.examples import Examples, ExampleUse, W, X, Y
from orbit_runner.utils.log import Progress

if TYPE_CHECKING:
    import tensorflow as tf

    from orbit_runner.config.schema.data import DataConfig
    from orbit_runner.tasks.keras.examples import Context, Step
    from orbit_runner.utils.types import Tensors

_EXPECTED = (
    "expected batches (x, y) or (x, y, w) of tensors, as `fit` of Keras takes them; "
    "dataset.batch(32) makes batches"
)
_READ_BATCHES = 3  # to notice that a dataset has changed, or differs each time


@dataclasses.dataclass(frozen=True, eq=False)
class StreamSource(Examples):
    """A tf.data dataset of batches.

    Attributes:
        name: The name of the function or argument, for messages.
        make: Returns the dataset. Each pipeline makes its own.
        batch_size: The number of examples in its first batch, if a program passed it; else 0.
        digest: The digest of its first batches, if a program passed it.
        repeats: Whether they are the same each time that it is read.
    """

    name: str
    make: Callable[[], tf.data.Dataset]
    batch_size: int = 0
    digest: str = ""
    repeats: bool = True

    def data_files(self) -> list[DataFile]:
        """Returns an entry with the digest of its first batches, if a program passed it."""
        return [DataFile("dataset", 0, digest=f"batches:{self.digest}")] if self.digest else []

    @functools.cached_property
    def specs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """The shape of an example and the type of each tensor, by dotted path."""
        specs = {}
        for path, spec in leaves(self._element(self._make_to_look_at().element_spec)):
            rank = getattr(getattr(spec, "shape", None), "rank", None)
            if not rank or type(spec).__name__ != "TensorSpec":
                raise self._error(f"got {path} {spec}, {_EXPECTED}", "bad-data")
            shape = tuple(spec.shape[1:])
            if None in shape:
                raise self._error(
                    f"got {path} {spec.shape}, expected one shape for all examples", "bad-data"
                )
            specs[path] = (shape, spec.dtype.name)
        return specs

    def count_examples(self) -> int | None:
        """Returns the number of examples, reading all if it is not known; None if it never ends."""
        dataset = self._make_to_look_at()
        batches = int(dataset.cardinality())
        if batches == -1:
            return None
        first = next(leaves(self._element(dataset.element_spec)))[1]
        if batches >= 0 and first.shape[0] is not None:
            return batches * int(first.shape[0])
        progress = Progress(f"counting the examples of {self.name}")
        total = 0
        for element in dataset:
            total += self._rows_of(element)
            progress(f"{total:,} examples")
        if not total:
            raise self._error("has no examples", "empty-data")
        return total

    def read_first(self) -> tuple[int, str]:
        """Returns the number of examples of the first batch, and the digest of the first batches.

        Raises `DataError` if the dataset has no batches, or cannot be read again after a restart.
        """
        import tensorflow as tf

        dataset = self._make_to_look_at()
        digest = hashlib.sha256(f"{dataset.element_spec} {int(dataset.cardinality())}".encode())
        sizes = []
        try:
            for element in dataset.take(_READ_BATCHES):
                sizes.append(self._rows_of(element))
                for _, tensor in leaves(self._element(element)):
                    value = tensor.numpy()
                    is_text = value.dtype == object
                    digest.update(repr(value.tolist()).encode() if is_text else value.tobytes())
        except tf.errors.InvalidArgumentError as error:
            if "must have a seed" not in str(error):
                raise
            raise self._error(
                "a random op of the dataset has no seed\npass a seed to it, or pass the function "
                "that returns the dataset, whose random ops the run seeds",
                "not-repeatable",
            ) from None
        if not sizes:
            raise self._error("has no examples", "empty-data")
        return sizes[0], digest.hexdigest()

    def _rows_of(self, element: Any) -> int:
        return int(next(leaves(self._element(element)))[1].shape[0])

    def _error(self, problem: str, code: str) -> DataError:
        return DataError(f"{self.name}: {problem}", field="function", code=code)

    def _make_to_look_at(self) -> tf.data.Dataset:
        """Returns a dataset of any seed; with deterministic ops, TensorFlow requires one."""
        from orbit_runner.model_garden.task_adapter import repeatable_draws_scope
        from orbit_runner.tf_internals import eager_generator, set_eager_generator

        # The draws of the model that is built afterwards must not depend on this dataset.
        state = eager_generator()
        try:
            with repeatable_draws_scope(0, 0):
                return self.make()
        finally:
            set_eager_generator(*state)

    def dataset(self, use: ExampleUse, context: Context, start_step: Step) -> tf.data.Dataset:
        """Returns one worker's pipeline of a section, which starts at the beginning.

        Training is endless. An evaluation has each example once, with its count.
        """
        import tensorflow as tf

        batches = self.make().repeat() if use.params.is_training else self.make()
        parts = self._cut(batches, use.params, context)
        infinite = tf.data.INFINITE_CARDINALITY
        if not use.params.is_training and int(batches.cardinality()) != infinite:
            return parts
        return parts.apply(tf.data.experimental.assert_cardinality(infinite))

    def _cut(
        self, batches: tf.data.Dataset, params: DataConfig, context: Context
    ) -> tf.data.Dataset:
        """Returns the parts of global batches for the replicas of a worker."""
        import tensorflow as tf

        from orbit_runner.data.order.sharding import replica_slices

        slices = replica_slices(params.global_batch_size, context)
        drop_remainder = bool(params.is_training or params.drop_remainder)
        batches = batches.rebatch(params.global_batch_size, drop_remainder=drop_remainder)
        if slices.step_stride > 1:  # Workers that do not wait for each other take turns.
            batches = batches.shard(slices.step_stride, slices.first_step)
            slices = dataclasses.replace(slices, first_step=0, step_stride=1)

        def cut(*element: Tensors) -> Tensors:
            parts = self._element(element)
            rows = slices.positions(tf.range(slices.replicas, dtype=tf.int64))
            size = tf.shape(next(value for _, value in leaves(parts)), tf.int64)[0]
            counts = tf.cast(rows < size, tf.float32)
            # Rows that fill up the last batch repeat its first example.
            rows = tf.where(rows < size, rows, 0)
            parts = tree_of({path: tf.gather(value, rows) for path, value in leaves(parts)})
            if params.is_training:
                return tuple(parts[name] for name in (X, Y, W) if name in parts)
            return parts[X], parts[Y], (counts, parts[W]) if W in parts else counts

        plain = tf.autograph.experimental.do_not_convert(cut)
        return batches.map(plain, num_parallel_calls=tf.data.AUTOTUNE).unbatch()

    def _element(self, element: Any) -> dict[str, Any]:
        """Returns an element as a mapping of `x`, `y` and optionally `w`."""
        if isinstance(element, (tuple, list)) and len(element) in (2, 3):
            return dict(zip((X, Y, W), map(_numbered, element), strict=False))
        raise self._error(f"got elements {element}, {_EXPECTED}", "bad-data")


def _numbered(tree: Any) -> Any:
    """Returns nested tensors with the number of each tensor of a tuple as its name."""
    if isinstance(tree, (tuple, list)):
        tree = {str(number): value for number, value in enumerate(tree)}
    if not isinstance(tree, Mapping):
        return tree
    return {name: _numbered(value) for name, value in tree.items()}


def passed_stream(dataset: tf.data.Dataset, name: str, *, is_training: bool) -> StreamSource:
    """Returns the source of a dataset that a program passed as the argument `name`.

    Raises `DataError` if it cannot be used.
    """
    import tensorflow as tf

    from orbit_runner.tf_internals import disable_op_determinism, is_op_determinism_enabled

    source = StreamSource(name, lambda: dataset)
    _ = source.specs
    was_deterministic = is_op_determinism_enabled()
    tf.config.experimental.enable_op_determinism()  # As in the run.
    try:
        size, digest = source.read_first()
        second_digest = source.read_first()[1]
    finally:
        if not was_deterministic:
            disable_op_determinism()
    repeats = digest == second_digest
    # The digest must be the same at the next start, and that of training data another than that of
    # validation data, which may begin with the same batches.
    known = f"{is_training} {digest if repeats else dataset.element_spec}"
    digest = hashlib.sha256(known.encode()).hexdigest()
    return StreamSource(name, lambda: dataset, size, digest, repeats)


def is_tf_dataset(value: object) -> bool:
    """Returns whether a value is a dataset of tf.data, without importing TensorFlow."""
    return any(
        cls.__name__ == "DatasetV2" and cls.__module__.startswith("tensorflow")
        for cls in type(value).__mro__
    )
