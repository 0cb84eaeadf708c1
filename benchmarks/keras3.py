"""Trains networks in Keras 3 on TensorFlow, if they take only a few lines there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.baselines import Run, batches, silent_scope
from benchmarks.networks import Network, task_of


def fit(network: Network, steps_per_execution: int) -> Run | None:
    """Returns a function that trains with Keras 3's `fit`, or None for other networks."""
    model = compile_model(network, steps_per_execution)
    if model is None:
        return None
    config = network.config()
    data = batches(config, task_of(config), training=True)

    def run() -> int:
        with silent_scope():
            model.fit(data, steps_per_epoch=network.steps, epochs=1, verbose=0)
        return network.steps

    return run


def compile_model(network: Network, steps_per_execution: int) -> Any:
    """Returns a compiled Keras 3 model, or None for networks that are not implemented here."""
    import keras

    options: Any = getattr(network.config().task, "model", None)
    write = _LAYER_BUILDERS.get(getattr(options, "name", ""))
    if write is None:
        return None
    layers = [keras.Input([8, 8, 1]), keras.layers.Rescaling(1 / 16), *write(options)]
    model = keras.Sequential(layers)
    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
    )
    return model


def _mlp(options: Any) -> list[Any]:
    from keras import layers

    hidden: list[Any] = []
    for units in options.hidden_units:
        hidden += [layers.Dense(units, activation="relu"), layers.Dropout(options.dropout_rate)]
    return [layers.Flatten(), *hidden, layers.Dense(10)]


def _cnn(options: Any) -> list[Any]:
    from keras import layers

    blocks: list[Any] = []
    for filters in options.filters:
        blocks += [
            layers.Conv2D(filters, options.kernel_size, padding="same", activation="relu"),
            layers.MaxPooling2D(),
        ]
    dense = [layers.Dense(options.dense_units, activation="relu")]
    return [
        *blocks,
        layers.Flatten(),
        *dense,
        layers.Dropout(options.dropout_rate),
        layers.Dense(10),
    ]


_LAYER_BUILDERS: dict[str, Callable[[Any], list[Any]]] = {"mlp": _mlp, "cnn": _cnn}
