"""Layers that a model adapts to data when it is built: lookups and normalization."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras

from tests.support.keras_models import keras_config
from tests.support.toy import run_and_resume

_HERE = "tests.tasks.keras.test_adapted_layers"
_TEXTS = np.array(["soup bread", "goal team", "bread", "team soup"] * 8)


def classifier() -> tf_keras.Model:
    """Returns a model of texts, integers and numbers."""
    words = tf_keras.layers.TextVectorization(output_sequence_length=3)
    words.adapt(_TEXTS)
    codes = tf_keras.layers.IntegerLookup(output_mode="multi_hot")
    codes.adapt(np.array([3, 4, 5]))
    scale = tf_keras.layers.Normalization()
    scale.adapt(np.array([[1.0], [4.0]]))
    text = tf_keras.Input([], dtype="string", name="text")
    code = tf_keras.Input([1], dtype="int64", name="code")
    size = tf_keras.Input([1], name="size")
    embedded = tf_keras.layers.Flatten()(tf_keras.layers.Embedding(9, 4)(words(text)))
    features = tf_keras.layers.Concatenate()([embedded, codes(code), scale(size)])
    inputs = {"text": text, "code": code, "size": size}
    return tf_keras.Model(inputs, tf_keras.layers.Dense(3)(features))


def examples() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns 32 examples of two classes."""
    inputs = {
        "text": _TEXTS,
        "code": np.array([[3], [4], [5], [6]] * 8),
        "size": np.arange(32.0)[:, np.newaxis],
    }
    return inputs, np.array([0, 1, 0, 1] * 8)


def _config() -> Any:
    return keras_config(
        task__model=f"{_HERE}:classifier",
        task__train_data__function=f"{_HERE}:examples",
        task__validation_data__function=f"{_HERE}:examples",
        task__validation_data__arguments="{}",
        trainer__train_steps=8,
        trainer__validation_interval=8,
        trainer__checkpoint_interval=4,
    )


@pytest.mark.slow
def test_run_with_adapted_layers_is_resumed_exactly(tmp_path: Path) -> None:
    logs = run_and_resume(_config(), tmp_path, at=4).logs
    assert np.isfinite(logs["validation_loss"])
