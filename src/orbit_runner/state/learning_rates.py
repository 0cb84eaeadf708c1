"""Optimizers of any kind: their learning rates, rates that differ by layer, and their gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import tensorflow as tf

from orbit_runner.tf_internals import supports_no_merge_call

if TYPE_CHECKING:
    import numpy as np
    import tf_keras

    # An optimizer of Keras, of either kind.
    Optimizer: TypeAlias = tf_keras.optimizers.Optimizer | tf_keras.optimizers.legacy.Optimizer
    # Pairs of a gradient, which may be sparse or None, and its variable.
    GradsAndVars: TypeAlias = Iterable[tuple[tf.Tensor | tf.IndexedSlices | None, tf.Variable]]

    class AppliesGradients(Protocol):
        """An optimizer, or an object that passes gradients on to one."""

        def apply_gradients(self, grads_and_vars: GradsAndVars) -> object:
            """Applies the gradients."""


Owner = TypeVar("Owner")
Gradients = Sequence[tuple[Any, "tf.Variable"]]  # tensors or slices, with their variables

RATE = "learning_rate"


def learning_rates(optimizer: Optimizer) -> dict[str, np.floating]:
    """Returns the learning rates of the next step by name.

    The name is `learning_rate`. An optimizer that consists of several has a rate for each of them,
    named `<class>_<number>_learning_rate` as in Model Garden, or by the attribute of the model.
    """
    return {name: rate.numpy() for name, rate in learning_rate_tensors(optimizer).items()}


def learning_rate_tensors(optimizer: Optimizer) -> dict[str, tf.Tensor]:
    """Returns the learning rates of the next step as scalar tensors, for use inside a graph."""
    parts = getattr(optimizer, "optimizers", None)
    if parts is None:
        return {RATE: _rate(optimizer)}
    names = getattr(optimizer, "names", None) or [
        f"{type(part).__name__}_{number}" for number, part in enumerate(parts)
    ]
    return {f"{name}_{RATE}": _rate(part) for name, part in zip(names, parts, strict=True)}


def _rate(optimizer: Optimizer) -> tf.Tensor:
    rate = optimizer.learning_rate
    return tf.convert_to_tensor(rate(optimizer.iterations) if callable(rate) else rate)


class OptimizerProxy:
    """Behaves like an optimizer. Subclasses change how it applies gradients."""

    def __init__(self, optimizer: AppliesGradients) -> None:
        self._optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The optimizer's class; tasks use `isinstance` to decide whether to scale the loss."""
        cls: type = self._optimizer.__class__  # Not `type()`: it may itself be a proxy.
        return cls


class LayerRateOptimizer(OptimizerProxy):
    """Behaves like an optimizer, and scales its updates of some variables.

    Each update of a variable, including weight decay, is proportional to the learning rate. The
    update is therefore scaled after the optimizer has applied it.

    `factors` maps the `id` of variables to factors; those of other variables are 1.
    """

    def __init__(self, optimizer: AppliesGradients, factors: Mapping[int, float]) -> None:
        super().__init__(optimizer)
        self._factors = factors

    def apply_gradients(
        self, grads_and_vars: GradsAndVars, *args: object, **kwargs: object
    ) -> object:
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

    def _scale(self, variables: list[tf.Variable], before: list[tf.Tensor]) -> None:
        def update(
            strategy: tf.distribute.Strategy,
            before: Sequence[tf.Tensor | tf.distribute.DistributedValues],
        ) -> None:
            for variable, value in zip(variables, before, strict=True):
                factor = self._factors[id(variable)]
                strategy.extended.update(variable, _move, args=(value, factor), group=False)

        # Keras makes the same choice for its own updates.
        if supports_no_merge_call():
            update(tf.distribute.get_strategy(), before)
        else:
            tf.distribute.get_replica_context().merge_call(update, args=(before,))


def _move(variable: tf.Variable, before: tf.Tensor, factor: float) -> tf.Operation:
    return variable.assign(before + tf.cast(factor, before.dtype) * (variable - before))


@contextlib.contextmanager
def replaced_methods_scope(
    owners: Sequence[Owner], name: str, replacement: Callable[[Owner], Callable[..., object]]
) -> Iterator[None]:
    """Replaces a method of objects in a `with` block by what `replacement` returns for each."""
    # Layers of single ops have a `call` of their own, others that of their class.
    own = {id(owner): vars(owner)[name] for owner in owners if name in vars(owner)}
    for owner in owners:
        # Not by assignment, because Keras tracks what is assigned to a layer.
        vars(owner)[name] = replacement(owner)
    try:
        yield
    finally:
        for owner in owners:
            del vars(owner)[name]
            if id(owner) in own:
                vars(owner)[name] = own[id(owner)]


@contextlib.contextmanager
def seen_gradients_scope(
    optimizer: Optimizer, see: Callable[[Gradients], object]
) -> Iterator[None]:
    """Passes the gradients that an optimizer gets in a `with` block to a function, too."""
    apply = optimizer.apply_gradients

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(grads_and_vars: GradsAndVars, *args: object, **kwargs: object) -> Any:
        pairs = list(grads_and_vars)
        see([pair for pair in pairs if pair[0] is not None])
        return apply(pairs, *args, **kwargs)

    with replaced_methods_scope([optimizer], "apply_gradients", lambda _: apply_gradients):
        yield
