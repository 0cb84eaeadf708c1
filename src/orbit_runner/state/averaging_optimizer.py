"""The optimizer of a run, in the shape in which Model Garden saves it with averaged weights.

Model Garden's average is kept by an optimizer around the optimizer; here it stands beside.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from orbit_runner.state.ema import WeightAverage

INNER, _SLOT = "ema_base_optimizer", "average"
# What Model Garden's runner does not keep.
OWN = ("recoveries", "early_stopping", "best")


class AveragingOptimizer(tf.__internal__.tracking.Trackable):
    """Stands in a checkpoint for Model Garden's optimizer that keeps an average.

    It trains nothing. The averages are its slots, which TensorFlow asks an optimizer for by name.
    """

    def __init__(self, optimizer: Any, average: WeightAverage | None) -> None:
        """Makes it.

        Args:
            optimizer: The optimizer itself.
            average: The average; None in a run that keeps none, to find the optimizer in the
                checkpoint of one that does.
        """
        self._track_trackable(optimizer, INNER)
        pairs = average.pairs() if average is not None else ()
        self._averages = {id(weight): kept for weight, kept in pairs}

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots."""
        return [_SLOT]

    def get_slot(self, variable: Any, name: str) -> Any:
        """Returns the average of a weight; None where none is kept.

        Args:
            variable: The weight.
            name: The name of the slot.
        """
        return self._averages.get(id(variable)) if name == _SLOT else None

    def _create_or_restore_slot_variable(
        self, slot_variable_position: Any, slot_name: str, variable: Any, **kwargs: Any
    ) -> Any:
        # TensorFlow calls this to restore a slot. Some releases restore through the position that
        # they pass, others restore the variable that is returned.
        del slot_variable_position, kwargs
        return self.get_slot(variable, slot_name)
