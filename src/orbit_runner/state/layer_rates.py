"""Scales the learning rate of some variables, with any optimizer.

Each update of a variable, including weight decay, is proportional to the learning rate. The update
is therefore scaled after the optimizer has applied it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from orbit_runner.tf_internals import supports_no_merge_call


class LayerRateOptimizer:
    """Behaves like an optimizer, and scales its updates of some variables.

    `factors` maps the `id` of variables to factors; those of other variables are 1.
    """

    def __init__(self, optimizer: Any, factors: Mapping[int, float]) -> None:
        self._optimizer, self._factors = optimizer, factors

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Applies the gradients. Must be called in a replica context."""
        pairs = [*grads_and_vars]
        scaled = [
            variable
            for gradient, variable in pairs
            if gradient is not None and self._factors.get(id(variable), 1.0) != 1.0
        ]
        before = [tf.identity(variable) for variable in scaled]
        result = self._optimizer.apply_gradients(pairs, *args, **kwargs)
        if scaled:
            self._scale(scaled, before)
        return result

    def _scale(self, variables: list[Any], before: list[tf.Tensor]) -> None:
        def update(strategy: tf.distribute.Strategy, before: Any) -> None:
            for variable, value in zip(variables, before, strict=True):
                factor = self._factors[id(variable)]
                strategy.extended.update(variable, _move, args=(value, factor), group=False)

        # Keras makes the same choice for its own updates.
        if supports_no_merge_call():
            update(tf.distribute.get_strategy(), before)
        else:
            tf.distribute.get_replica_context().merge_call(update, args=(before,))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The optimizer's class; tasks use `isinstance` to decide whether to scale the loss."""
        found: type = self._optimizer.__class__  # Not `type()`: it may itself be a wrapper.
        return found


def _move(variable: tf.Variable, before: tf.Tensor, factor: float) -> tf.Operation:
    return variable.assign(before + tf.cast(factor, before.dtype) * (variable - before))
