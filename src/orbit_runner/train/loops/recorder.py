"""Takes records of training inside the graph of a loop, so that a record does not end the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.train.loops.loop_pieces import Stage

if TYPE_CHECKING:
    from orbit_runner.tasks.metrics import TaskMetric
    from orbit_runner.train.loops.loop_pieces import Results


# The maximum number of records in one loop.
MAX_RECORDS = 1000


class Recorder(Stage):
    """Reads and resets the metrics inside the graph of a loop whenever a record ends.

    Reading metrics on the host between two loops takes a few milliseconds, as long as 50 steps of a
    small network.

    The records are written to a variable. They are not outputs of the loop, because TensorFlow
    folds the constants of a loop with outputs differently. That changed the last bit of a cosine
    learning rate, and therefore the weights.

        step        1  2  3  4  5 | 6  7  8  9  10 | 11  12      interval 5, a loop of 12 steps
        metrics     updated       ▼ reset          ▼ reset
        variable                 row 0            row 1          read by the host after the loop
    """

    def __init__(
        self,
        interval: int,  # in steps
        metrics: Sequence[TaskMetric],
        learning_rates: Callable[[], Mapping[str, tf.Tensor]],  # returns scalars by name
    ) -> None:
        self._interval = interval
        self._metrics = metrics
        self._learning_rates = learning_rates
        # The global step and the values of each record that ended within the last loop.
        self.records: list[tuple[int, Results]] = []
        self._names = (*(metric.name for metric in metrics), *learning_rates())
        self._table = tf.Variable(
            tf.zeros([MAX_RECORDS, len(self._names)]),
            trainable=False,
            name="records",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        self._first = tf.Variable(
            tf.zeros([], tf.int64),
            trainable=False,
            name="first_record",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def is_record_end(self, step: int) -> bool:
        """Returns whether a record ends at a step."""
        return step % self._interval == 0

    def piece_length(self, step: int, steps: int) -> int:
        """Returns the steps to the last record within `steps`, or `steps` if no record ends."""
        end = (step + steps) // self._interval * self._interval
        return end - step if end > step else steps

    def steps_left(self, step: tf.Tensor) -> tf.Tensor:
        """Returns how many steps are left of the current record; `step` is an int64 scalar."""
        return self._interval - step % self._interval

    def start(self, step: tf.Tensor) -> None:
        """Starts the records of a loop at the global step, an int64 scalar."""
        self._first.assign(step // self._interval + 1)

    def record(self, step: tf.Tensor) -> tf.Operation:
        """Takes a record and resets the metrics if a record ends at `step`, an int64 scalar.

        Must be called inside a graph.
        """

        def take() -> tf.Tensor:
            row = step // self._interval - self._first.read_value()
            table = tf.tensor_scatter_nd_update(self._table.read_value(), [[row]], [self._values()])
            self._table.assign(table)
            for metric in self._metrics:
                metric.reset_state()
            return tf.constant(True)

        return tf.cond(step % self._interval == 0, take, lambda: tf.constant(False))

    def end_piece(self, step: int) -> None:
        """Adds the records of the last piece of a loop, which ended at `step`, to `records`."""
        first = int(self._first.numpy())
        count = step // self._interval + 1 - first
        for number, row in enumerate(self._table.numpy()[:count] if count else []):
            end = (first + number) * self._interval
            self.records.append((end, dict(zip(self._names, row, strict=True))))

    def last_record(self, step: int) -> Results | None:
        """Removes the record that ended at `step` and returns its values, or None if none ended."""
        ended_here = self.records and self.records[-1][0] == step
        return self.records.pop()[1] if ended_here else None

    def _values(self) -> tf.Tensor:
        scalars = [*(metric.result() for metric in self._metrics), *self._learning_rates().values()]
        return tf.stack([tf.cast(value, tf.float32) for value in scalars])
