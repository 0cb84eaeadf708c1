"""Makes Keras 3 exact: the names of its layers, its precision, its random draws, its variables.

Few programs use Keras 3, and importing it takes a second. So it is configured once a program has
imported it, not before.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import random
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner import tf_internals
from orbit_runner.determinism.patches import install
from orbit_runner.determinism.scopes import install_keras_3_patches
from orbit_runner.utils.deferred_imports import ReplacedLoader, find_spec_with

_SCOPES = "name_scope_stack"  # of Keras 3


def backend() -> str:
    """Returns the backend of Keras 3, "" if this program has not imported it."""
    config = getattr(sys.modules.get("keras"), "config", None)
    return "" if config is None else str(config.backend())


def is_imported() -> bool:
    """Returns whether this program has imported Keras 3 with TensorFlow as its backend."""
    return backend() == "tensorflow"


@contextlib.contextmanager
def configured_scope() -> Iterator[None]:
    """Configures Keras 3, or does so as soon as code in the `with` block imports it."""
    if is_imported():
        configure()
        yield
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def configure() -> None:
    """Sets the precision of new layers, and makes draws and variables follow this package."""
    import keras

    keras.config.set_dtype_policy(tf_keras.mixed_precision.global_policy().name)
    install_keras_3_patches()
    variables = {"keras_3_create_variable": _create_per_replica}
    install("keras_3", lambda: tf_internals.replace_functions(variables))


def reset() -> None:
    """Names new layers as in a new process, and forgets the generator of draws without a seed."""
    if is_imported():
        tf_internals.keras_3_reset_names()
        tf_internals.keras_3_set_global(tf_internals.keras_3_generator_key(), None)


@contextlib.contextmanager
def restored_scope() -> Iterator[None]:
    """Restores the precision and the generator of Keras 3 after a `with` block."""
    policy: object = "float32"  # What Keras 3 has if it is imported in the block.
    generator = None
    if is_imported():
        policy = sys.modules["keras"].config.dtype_policy()
        generator = tf_internals.keras_3_get_global(tf_internals.keras_3_generator_key())
    try:
        yield
    finally:
        if is_imported():
            sys.modules["keras"].config.set_dtype_policy(policy)
            tf_internals.keras_3_set_global(tf_internals.keras_3_generator_key(), generator)


def _create_per_replica(create: Callable[..., None]) -> Callable[..., None]:
    """Lets replicas have values of their own of variables that a step changes without gradients.

    As in Keras 2, where the moving averages of batch normalization are such variables. Keras 3
    creates them like weights, although each replica assigns another value.
    """

    def initialize(variable: Any, value: Any) -> None:
        is_single = tf.distribute.get_strategy().num_replicas_in_sync == 1
        creator: Callable[..., tf.Variable] | None = None
        if _is_of_optimizer():
            creator = _create_for_one_replica if is_single else None
        elif not variable.trainable and variable.aggregation == "none":
            creator = _create_averaged
        # Metrics and optimizers may create variables while a step is traced on each replica.
        with tf.init_scope() if callable(value) else contextlib.nullcontext():
            if creator is None:
                create(variable, value)
                return
            with tf.variable_creator_scope(creator):
                create(variable, value)

    return initialize


def _is_of_optimizer() -> bool:
    """Returns whether an optimizer is creating the variable. All replicas update those alike."""
    scopes = tf_internals.keras_3_get_global(_SCOPES) or ()
    cls = sys.modules["keras"].optimizers.Optimizer
    return any(isinstance(scope.caller, cls) for scope in scopes)


def _create_for_one_replica(next_creator: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
    # Otherwise, a replica could not assign it in a branch, such as that of loss scaling.
    return next_creator(**{**kwargs, "aggregation": tf.VariableAggregation.NONE})


def _create_averaged(next_creator: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
    aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA
    if tf.as_dtype(kwargs["dtype"]).is_floating:
        aggregation = tf.VariableAggregation.MEAN
        kwargs["synchronization"] = tf.VariableSynchronization.ON_READ
    return next_creator(**{**kwargs, "aggregation": aggregation})


class _ConfiguringLoader(ReplacedLoader):
    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        # The import draws numbers, but a program may have imported Keras 3 before it set the seed.
        python = random.getstate()
        arrays = np.random.get_state()
        try:
            self._loader.exec_module(module)
        finally:
            random.setstate(python)
            np.random.set_state(arrays)
        if is_imported():
            configure()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the package `keras`, and configures it when its code has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "keras":
            return None
        return find_spec_with(_ConfiguringLoader, fullname, path, target)
