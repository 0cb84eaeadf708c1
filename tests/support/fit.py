"""What `fit` of Keras and what a run computes, of the same model on the same batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import orbit_runner
from orbit_runner.tf_internals import disable_op_determinism

PACKAGES = {"2": tf_keras, "3": keras}
SEED = 3
BATCH, STEPS, ROWS = 8, 50, 64


class Arrays(NamedTuple):
    """Inputs, labels and weights of examples; inputs and labels may be dicts or lists."""

    x: Any
    y: Any
    w: Any = None

    @property
    def given(self) -> tuple[Any, ...]:
        """What `fit` and `run` get: (x, y) or (x, y, w)."""
        return (self.x, self.y) if self.w is None else tuple(self)

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(tf.nest.flatten(self.x)[0])

    def rows(self, rows: Any) -> Arrays:
        """Returns some examples."""
        return Arrays(*(map_arrays(lambda array: array[rows], part) for part in self))


def map_arrays(function: Callable[[Any], Any], part: Any) -> Any:
    """Calls a function with each array of a dict or list of arrays."""
    if isinstance(part, dict):
        return {name: map_arrays(function, value) for name, value in part.items()}
    if isinstance(part, (list, tuple)):
        return type(part)(map_arrays(function, value) for value in part)
    return None if part is None else function(part)


@dataclasses.dataclass(frozen=True)
class Case:
    """A training, which `fit` and a run do beside each other.

    Attributes:
        version: The Keras of the model: `2` or `3`.
        model: Returns a new model of a package of Keras.
        data: The training data, of 64 examples.
        compiled: Returns the arguments of `compile`, of the same package.
        validation: The validation data.
        class_weight: The weights of classes.
        settings: Settings of the run only.
        is_deterministic: Whether `fit` computes with the deterministic ops of a run, too, because
            they have another gradient: of the crossentropy of labels that do not sum up to 1.
    """

    version: str
    model: Callable[[Any], Any]
    data: Arrays
    compiled: Callable[[Any], Mapping[str, Any]]
    validation: Arrays | None = None
    class_weight: Mapping[int, float] | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_deterministic: bool = False

    @property
    def package(self) -> Any:
        """The package of Keras."""
        return PACKAGES[self.version]

    def build(self) -> Any:
        """Returns a new model, which always has the same initial weights."""
        self.package.utils.set_random_seed(SEED)
        return self.model(self.package)

    def build_compiled(self) -> Any:
        """Returns a new model that is compiled."""
        model = self.build()
        model.compile(**{"optimizer": "sgd", **self.compiled(self.package)})
        return model


@dataclasses.dataclass(frozen=True)
class Numbers:
    """What a training computes.

    Attributes:
        weights: The trained weights.
        training: The loss and the metrics of all training steps, by the names of Keras.
        evaluation: Those of the evaluation after the last step.
        fingerprint: The SHA-256 of the weights; empty for `fit`.
    """

    weights: list[np.ndarray]
    training: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    fingerprint: str = ""


def fit(case: Case) -> Numbers:
    """Trains with `fit` of Keras, for one epoch of 50 steps."""
    model = case.build_compiled()
    disable_op_determinism()
    if case.is_deterministic:
        tf.config.experimental.enable_op_determinism()
    if type(model.optimizer).__name__ == "ScheduleFreeAdamW":
        # `fit` would build it in a scope that loses what its momentum starts with: the weights.
        model.optimizer.build(model.trainable_variables)
    repeated = case.data.rows(np.arange(BATCH * STEPS) % case.data.size)
    validation = case.validation
    history = model.fit(
        repeated.x,
        repeated.y,
        sample_weight=repeated.w,
        class_weight=case.class_weight,
        validation_data=None if validation is None else validation.given,
        batch_size=BATCH,
        shuffle=False,
        verbose=0,
    ).history
    values = {name: value[-1] for name, value in history.items()}
    evaluation = {
        name.removeprefix("val_"): v for name, v in values.items() if name.startswith("val_")
    }
    if validation is not None and getattr(model.optimizer, "use_ema", False):
        # `fit` evaluates first, and then replaces the weights by their averages.
        evaluation = model.evaluate(
            *validation.given[:2],
            sample_weight=validation.w,
            batch_size=BATCH,
            verbose=0,
            return_dict=True,
        )
    return Numbers(
        weights=_numbers(model.get_weights()),
        training={name: v for name, v in values.items() if not name.startswith("val_")},
        evaluation=evaluation,
    )


def _numbers(weights: list[Any]) -> list[np.ndarray]:
    """Returns weights without the words of layers of texts, of Keras 2."""
    arrays = [np.array(weight) for weight in weights]
    return [array for array in arrays if array.dtype.kind not in "OSU"]


def accepts(case: Case, model: Any) -> bool:
    """Returns whether `fit` of a model trains and evaluates on a batch of a case, by eager steps.

    The model may be one that other cases used before.
    """
    batch = case.data.rows(slice(0, BATCH))
    try:
        model.compile(**{"optimizer": "sgd", **case.compiled(case.package)}, run_eagerly=True)
        model.train_on_batch(
            batch.x, batch.y, sample_weight=batch.w, class_weight=case.class_weight
        )
    except Exception:  # Keras raises whatever an op raises.
        return False
    return True


def train(case: Case, folder: Path, form: str = "arguments") -> Numbers:
    """Trains with a run, on the same batches.

    Args:
        case: The training.
        folder: The run directory.
        form: How the run gets the loss, the metrics and the optimizer: `arguments` are those of
            `run`, `compile` those of the model. With `function`, the run also builds the model,
            instead of copying it, and compiles it.
    """
    compiled = {"optimizer": "sgd", **case.compiled(case.package)}
    model: Any = case.build()
    if form == "compile":
        model.compile(**compiled)
        compiled = {}
    elif form == "function":
        model, compiled = case.build_compiled, {}
    overrides: dict[str, Any] = {
        "trainer.validation_epochs": BATCH * STEPS / ROWS,
        "trainer.summary_interval": STEPS,
        "trainer.loss_upper_bound": 1e30,  # Percentages of labels that are 0 are large.
        "task.train_data.shuffle_buffer_size": 0,
        **case.settings,
    }
    if case.class_weight is not None:
        overrides["task.class_weights"] = {str(key): v for key, v in case.class_weight.items()}
    result = orbit_runner.run(
        model,
        case.data.given,
        validation=None if case.validation is None else case.validation.given,
        batch_size=BATCH,
        epochs=BATCH * STEPS / ROWS,
        model_dir=folder,
        progress="none",
        overrides=overrides,
        **compiled,
    )
    training = {
        name.removeprefix("training_"): values[-1]
        for name, values in result.history.items()
        if name.startswith("training_") and not name.endswith("_learning_rate")
    }
    evaluation = dict(result.metrics)
    evaluation.pop("validation_examples", None)
    if "validation_loss" in evaluation:
        evaluation["loss"] = evaluation.pop("validation_loss")
    weights = _numbers(result.model.get_weights())
    return Numbers(weights, training, evaluation, result.weights)


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """How much values may differ: relative to the value, and absolutely."""

    rtol: float
    atol: float


# Sums in another order differ in the last bit of float32, 6e-8, and 50 steps add these up.
FLOAT32 = Tolerance(1e-5, 1e-5)
# An output that is rounded to the next number of 8 bits is one of 256.
BFLOAT16 = Tolerance(1e-2, 2e-3)


def assert_equal(actual: Numbers, expected: Numbers, tolerance: Tolerance = FLOAT32) -> None:
    """Asserts that a run computed what `fit` computed: weights, and values by name."""
    problems = []
    for part in ("training", "evaluation"):
        ours, theirs = getattr(actual, part), getattr(expected, part)
        assert {*ours} == {*theirs}, part
        for name, value in theirs.items():
            if not _is_close(ours[name], value, tolerance):
                problems.append(f"{part} {name}: the run has {ours[name]}, fit {value}")
    for index, (ours, theirs) in enumerate(zip(actual.weights, expected.weights, strict=True)):
        assert ours.shape == theirs.shape
        if not _is_close(ours, theirs, tolerance):
            off = np.max(np.abs(np.asarray(ours, float) - np.asarray(theirs, float)))
            problems.append(f"weight {index} {theirs.shape}: off by {off:.2g}")
    assert not problems, "\n".join(problems)


def _is_close(ours: Any, theirs: Any, tolerance: Tolerance) -> bool:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape:
        return False
    if theirs.dtype.kind not in "fiub" and theirs.dtype.name != "bfloat16":
        return bool((ours == theirs).all())
    return np.allclose(
        ours.astype(float), theirs.astype(float), tolerance.rtol, tolerance.atol, equal_nan=True
    )
