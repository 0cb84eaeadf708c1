"""Pipelines that keep a state of their own, as Model Garden's do, made the same each time."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from orbit_runner.determinism.numerics import set_tensorflow_seed


@contextlib.contextmanager
def repeatable_draws(seed: int, seed_after: int) -> Iterator[None]:
    """Makes a pipeline that is built in a with block a function of (seed, position).

    Whatever was drawn before does not count. It takes deterministic ops, under which tf.data keeps
    to one order.

    Args:
        seed: Of what the pipeline draws, and of what building it draws.
        seed_after: TensorFlow's seed for what is built after the block.

    Yields:
        Nothing.
    """
    python, arrays = random.getstate(), np.random.get_state()
    set_tensorflow_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        with _seeded_crops_scope(), _splittable_functions():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
        set_tensorflow_seed(seed_after)


@contextlib.contextmanager
def _seeded_crops_scope() -> Iterator[None]:
    """Gives random crops that name no seed the one that other ops would have.

    TensorFlow refuses them where ops are to be deterministic, though the global seed is set.
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
def _splittable_functions() -> Iterator[None]:
    """Leaves out control dependencies on a function's arguments, as RetinaNet's parser has them.

    They order nothing, as arguments are there before. Where ops are to be deterministic, TensorFlow
    splits a function that draws in two, and the half without the argument would not load.
    """
    original: Any = FuncGraph.control_dependencies

    def without_arguments(graph: FuncGraph, control_inputs: Any) -> Any:
        if control_inputs is None:
            return original(graph, None)
        return original(graph, [one for one in control_inputs if not _is_argument(one)])

    FuncGraph.control_dependencies = without_arguments
    try:
        yield
    finally:
        FuncGraph.control_dependencies = original


def _is_argument(of: Any) -> bool:
    return getattr(getattr(of, "op", of), "type", None) == "Placeholder"
