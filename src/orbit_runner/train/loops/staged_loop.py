"""Loops for models of which other layers are trained from certain steps on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.state.trained_layers import TrainedLayers

Loop = Callable[[Any, tf.Tensor], None]


def staged_loop(
    layers: TrainedLayers, make_loop: Callable[[], Loop], step: Callable[[], int]
) -> Loop:
    """Returns a loop that is made and traced again whenever other layers are trained.

    `step` returns the global step. A loop must not continue beyond the steps that
    `TrainedLayers.steps_left` returns.
    """
    made: dict[int, Loop] = {}  # Only the loop of the current stage.

    def run(iterator: Any, steps: tf.Tensor) -> None:
        stage = layers.stage(step())
        if stage not in made:
            made.clear()
            layers.set_trainable_layers(step())
            made[stage] = make_loop()
        made[stage](iterator, steps)

    return run
