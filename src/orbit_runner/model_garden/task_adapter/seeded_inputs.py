"""Makes input pipelines with stateful random ops, such as Model Garden's, repeatable."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.determinism.numerics import set_tensorflow_seed
from orbit_runner.tf_internals import FuncGraph


@contextlib.contextmanager
def repeatable_draws_scope(seed: int, seed_after: int) -> Iterator[None]:
    """Makes a pipeline that is built in a `with` block a function of (seed, position).

    `seed` is used for the random draws of the pipeline and for those while it is built; earlier
    draws have no effect. Requires deterministic ops, because tf.data then keeps the order of
    elements. After the block, TensorFlow's global seed is `seed_after`, and the generators of
    Python and NumPy have their earlier states.
    """
    python, arrays = random.getstate(), np.random.get_state()
    set_tensorflow_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        with _seeded_crops_scope(), _splittable_functions_scope():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
        set_tensorflow_seed(seed_after)


@contextlib.contextmanager
def _seeded_crops_scope() -> Iterator[None]:
    """Gives random crops without a seed the seed that other ops derive from the global one.

    With deterministic ops, TensorFlow raises an error for them even if the global seed is set.
    """
    original: Any = tf.image.sample_distorted_bounding_box

    def crop(image_size: Any, bounding_boxes: Any, seed: int = 0, **settings: Any) -> Any:
        own = seed or tf.compat.v1.random.get_seed(None)[1] or 1
        return original(image_size, bounding_boxes, seed=own, **settings)

    tf.image.sample_distorted_bounding_box = crop
    try:
        yield
    finally:
        tf.image.sample_distorted_bounding_box = original


@contextlib.contextmanager
def _splittable_functions_scope() -> Iterator[None]:
    """Removes control dependencies on a function's arguments, such as those in RetinaNet's parser.

    They have no effect, because arguments are computed before the function runs. With deterministic
    ops, TensorFlow splits a function with random ops in two, and the half without the argument
    would fail to load.
    """
    original: Any = FuncGraph.control_dependencies

    def drop_argument_dependencies(graph: FuncGraph, control_inputs: Any) -> Any:
        if control_inputs is None:
            return original(graph, None)
        return original(graph, [one for one in control_inputs if not _is_argument(one)])

    FuncGraph.control_dependencies = drop_argument_dependencies
    try:
        yield
    finally:
        FuncGraph.control_dependencies = original


def _is_argument(item: Any) -> bool:
    return getattr(getattr(item, "op", item), "type", None) == "Placeholder"
