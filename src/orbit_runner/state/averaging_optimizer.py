"""The optimizer of a run, in the form in which Model Garden saves it with averaged weights.

In Model Garden, an optimizer that wraps the optimizer keeps the average. Here, the average is a
separate object.
"""

from __future__ import annotations

from typing import Any

from orbit_runner.state.ema import WeightAverage
from orbit_runner.tf_internals import Trackable, require_slot_hook, track

INNER_OPTIMIZER, _SLOT = "ema_base_optimizer", "average"
# Items that Model Garden's runner does not save.
OWN_ITEMS = ("recoveries", "early_stopping", "best")


class AveragingOptimizer(Trackable):
    """Replaces Model Garden's averaging optimizer in a checkpoint; it does not train.

    The averages are its slots, which TensorFlow requests by name. In a run without an average,
    `average` is None; the optimizer can then be restored from the checkpoint of a run with one.
    """

    def __init__(self, optimizer: Any, average: WeightAverage | None) -> None:
        require_slot_hook()
        track(self, optimizer, INNER_OPTIMIZER)
        pairs = average.pairs() if average is not None else ()
        self._averages = {id(weight): averaged for weight, averaged in pairs}

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots."""
        return [_SLOT]

    def get_slot(self, variable: Any, name: str) -> Any:
        """Returns the average of a weight, or None if it has no average."""
        return self._averages.get(id(variable)) if name == _SLOT else None

    def _create_or_restore_slot_variable(
        self, slot_variable_position: Any, slot_name: str, variable: Any, **kwargs: Any
    ) -> Any:
        # TensorFlow calls this to restore a slot. Some releases restore the slot through the given
        # position, others restore the returned variable.
        del slot_variable_position, kwargs
        return self.get_slot(variable, slot_name)
