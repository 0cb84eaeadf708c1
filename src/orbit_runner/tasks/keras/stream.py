"""Datasets of tf.data that a function of the user returns, which start only at their beginning."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from orbit_runner.data.arrays import leaves, tree_of
from orbit_runner.errors import DataError
from orbit_runner.tasks.keras.table_source import W, X, Y
from orbit_runner.utils.log import Progress

if TYPE_CHECKING:
    import tensorflow as tf

    from orbit_runner.config.schema.data import DataConfig
    from orbit_runner.utils.types import Tensors

_EXPECTED = "expected batches (x, y) or (x, y, w) of tensors, as `fit` of Keras takes them"


@dataclasses.dataclass(frozen=True, eq=False)
class StreamSource:
    """A tf.data dataset of batches.

    Attributes:
        name: The name of the function, for messages.
        make: Returns the dataset. Each pipeline makes its own.
    """

    name: str
    make: Callable[[], tf.data.Dataset]

    @functools.cached_property
    def specs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """The shape of an example and the type of each tensor, by dotted path."""
        specs = {}
        for path, spec in leaves(self._element(self._make_to_look_at().element_spec)):
            rank = getattr(getattr(spec, "shape", None), "rank", None)
            if not rank or type(spec).__name__ != "TensorSpec":
                raise DataError(
                    f"{self.name}: got {path} {spec}, {_EXPECTED}",
                    field="function",
                    code="bad-data",
                )
            shape = tuple(spec.shape[1:])
            if None in shape:
                raise DataError(
                    f"{self.name}: got {path} {spec.shape}, expected one shape for all examples",
                    field="function",
                    code="bad-data",
                )
            specs[path] = (shape, spec.dtype.name)
        return specs

    def count_examples(self) -> int | None:
        """Returns the number of examples, reading all if it is not known; None if it never ends."""
        dataset = self._make_to_look_at()
        batches = int(dataset.cardinality())
        if batches == -1:
            return None
        first = next(iter(dict(leaves(self._element(dataset.element_spec))).values()))
        if batches >= 0 and first.shape[0] is not None:
            return batches * int(first.shape[0])
        progress = Progress(f"counting the examples of {self.name}")
        total = 0
        for element in dataset:
            total += int(next(iter(dict(leaves(self._element(element))).values())).shape[0])
            progress(f"{total:,} examples")
        return total

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

    def train(
        self, params: DataConfig, context: tf.distribute.InputContext | None
    ) -> tf.data.Dataset:
        """Returns one worker's endless training batches, each for one replica."""
        import tensorflow as tf

        batches = self.make().repeat()
        endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        return self._cut(batches, params, context, drop_remainder=True).apply(endless)

    def evaluate(
        self, params: DataConfig, context: tf.distribute.InputContext | None
    ) -> tf.data.Dataset:
        """Returns one worker's evaluation batches, each example once, with its count."""
        return self._cut(self.make(), params, context, drop_remainder=params.drop_remainder)

    def _cut(
        self,
        batches: tf.data.Dataset,
        params: DataConfig,
        context: tf.distribute.InputContext | None,
        *,
        drop_remainder: bool,
    ) -> tf.data.Dataset:
        """Returns the parts of global batches for the replicas of a worker."""
        import tensorflow as tf

        from orbit_runner.data.order.sharding import replica_slices

        slices = replica_slices(params.global_batch_size, context)
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
            return dict(zip((X, Y, W), element, strict=False))
        raise DataError(
            f"{self.name}: got elements {element}, {_EXPECTED}", field="function", code="bad-data"
        )


def is_tf_dataset(value: object) -> bool:
    """Returns whether a value is a dataset of tf.data, without importing TensorFlow."""
    return any(
        cls.__name__ == "DatasetV2" and cls.__module__.startswith("tensorflow")
        for cls in type(value).__mro__
    )
