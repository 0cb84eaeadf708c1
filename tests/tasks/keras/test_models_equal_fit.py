"""Kinds of models of Keras 3 and Keras 2, with one and several outputs, beside `fit`."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support import fit as fits
from tests.support.fit import BATCH, PACKAGES, ROWS, Arrays, Case
from tests.support.fit_table import (
    TIMES,
    VALIDATION,
    Cell,
    arrays,
    case_of,
    check,
    loss_of,
)

# Kinds of models.


def _penalty(package):
    """Returns a layer that adds a loss."""
    mean = keras.ops.mean if package is keras else tf.reduce_mean

    class Penalty(package.layers.Layer):
        def call(self, inputs):
            self.add_loss(0.1 * mean(inputs * inputs))
            return inputs

    return Penalty()


def _blocks(package):
    """Returns a model that is a subclass."""
    layers = package.layers

    class Blocks(package.Model):
        def __init__(self):
            super().__init__()
            self.hidden = [layers.Dense(4, activation="tanh") for _ in range(2)]
            self.out = layers.Dense(3, activation="softmax")

        def call(self, inputs):
            for layer in self.hidden:
                inputs = layer(inputs)
            return self.out(inputs)

        def get_config(self):
            return {}

    model = Blocks()
    model(np.zeros([1, 4], np.float32))
    return model


def _sequential(*hidden):
    """Returns a function that builds a classifier with some hidden layers."""

    def model(package):
        layers = [make(package) for make in hidden]
        out = package.layers.Dense(3, activation="softmax")
        return package.Sequential([package.Input([4]), *layers, out])

    return model


def _dense(**arguments):
    return lambda package: package.layers.Dense(4, activation="tanh", **arguments)


def _layer(name, **arguments):
    return lambda package: getattr(package.layers, name)(**arguments)


def _constrained(package):
    constraints = package.constraints
    return package.layers.Dense(
        4,
        kernel_constraint=constraints.MaxNorm(0.5),
        bias_constraint=constraints.MinMaxNorm(0.1, 0.2, rate=0.5, axis=0),
    )


def _unit(package):
    return package.layers.Dense(
        4, kernel_constraint=package.constraints.UnitNorm(), bias_constraint="non_neg"
    )


def _orthogonal(package):
    regularizer = package.regularizers.OrthogonalRegularizer(0.1)
    return package.layers.Dense(4, kernel_regularizer=regularizer, bias_regularizer="l1")


def _both(package):
    regularizer = package.regularizers.L1L2(0.01, 0.02)
    return package.layers.Dense(4, activation="tanh", kernel_regularizer=regularizer)


def _spectral(package):
    return package.layers.SpectralNormalization(package.layers.Dense(4), power_iterations=2)


def _frozen(package):
    layer = package.layers.Dense(4, activation="tanh", kernel_regularizer="l2")
    layer.trainable = False
    return layer


def _nested(package):
    layers = package.layers
    inner = package.Sequential(
        [package.Input([4]), layers.Dense(5, activation="relu"), layers.BatchNormalization()]
    )
    return package.Sequential([package.Input([4]), inner, layers.Dense(4, activation="tanh")])


def _frozen_nested(package):
    model = _nested(package)
    model.trainable = False
    return model


def _adapted(package):
    layer = package.layers.Normalization()
    layer.adapt(np.random.default_rng(7).normal(2.0, 3.0, (40, 4)).astype(np.float32))
    return layer


def _shared(package):
    layers = package.layers
    inputs = package.Input([4])
    shared = layers.Dense(4, activation="tanh", kernel_regularizer="l2")
    return package.Model(inputs, layers.Dense(3, activation="softmax")(shared(shared(inputs))))


_MODELS = {
    "constraints and regularizers": _sequential(_constrained, _unit, _both, _orthogonal),
    "added losses": _sequential(
        _dense(activity_regularizer="l2"), _layer("ActivityRegularization", l1=0.01), _penalty,
    ),
    "normalizations": _sequential(
        _dense(), _layer("BatchNormalization", momentum=0.5), _layer("LayerNormalization"),
        _layer("GroupNormalization", groups=1), _layer("PReLU"),
    ),
    "SpectralNormalization": _sequential(_spectral),
    "frozen": _sequential(_frozen, _frozen_nested, _dense()),
    "nested": _sequential(_nested),
    "adapted": _sequential(
        _adapted, _layer("Discretization", bin_boundaries=[-1.0, 0.0, 1.0]),
        _layer("CategoryEncoding", num_tokens=4, output_mode="multi_hot"),
    ),
    "shared layer": _shared,
    "subclass": _blocks,
}  # fmt: skip


def _classifier_case(version, model, cell):
    def compiled(package):
        return {
            "loss": loss_of(package, cell),
            "metrics": ["accuracy"],
            "optimizer": package.optimizers.Adam(0.02),
        }

    return dataclasses.replace(case_of(version, cell, compiled), model=model)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", _MODELS)
@pytest.mark.parametrize("version", PACKAGES)
def test_model_is_trained_as_by_fit(tmp_path, version, name):
    # Keras 2 cannot build this layer from its config, which a copy of a model needs.
    form = "function" if (version, name) == ("2", "SpectralNormalization") else "arguments"
    check(_classifier_case(version, _MODELS[name], Cell("classes")), tmp_path, form=form)


def _stateful(package):
    layers = package.layers
    inputs = package.Input(batch_shape=[BATCH, TIMES, 4])
    x = layers.LSTM(4, stateful=True)(inputs)
    return package.Model(inputs, layers.Dense(3, activation="softmax")(x))


@pytest.mark.slow
@pytest.mark.parametrize("version", PACKAGES)
def test_stateful_model_is_trained_as_by_fit(tmp_path, version):
    case = _classifier_case(version, _stateful, Cell("classes"))
    sequences = arrays(Cell("classes of steps", True), ROWS, ROWS)
    data = sequences._replace(y=sequences.y[:, 0])
    # Keras 2 refuses strategies for stateful layers.
    settings = {"runtime.distribution_strategy": "off"} if version == "2" else {}
    case = dataclasses.replace(case, data=data, validation=data, settings=settings)
    check(case, tmp_path)


def _words(package):
    layers = package.layers
    inputs = package.Input([TIMES], dtype="int32")
    x = layers.Embedding(9, 4, mask_zero=True)(inputs)
    x = layers.LSTM(4, return_sequences=True)(x)
    return package.Model(inputs, layers.Dense(3, activation="softmax")(x))


def _word_arrays(count, seed, weights):
    rng = np.random.default_rng(seed)
    words = rng.integers(1, 9, (count, TIMES)).astype(np.int32)
    words[np.arange(TIMES) >= rng.integers(1, TIMES + 1, count)[:, None]] = 0
    shape = {"examples": (count,), "steps": (count, TIMES)}.get(weights)
    w = None if shape is None else rng.integers(0, 3, shape).astype(np.float32)
    return Arrays(words, words % 3, w)


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("weights", ["", "examples", "steps"])
@pytest.mark.parametrize("version", PACKAGES)
def test_outputs_of_masked_steps_are_trained_as_by_fit(tmp_path, version, weights):
    case = _classifier_case(version, _words, Cell("classes of steps", True, weights))
    data, validation = _word_arrays(ROWS, 1, weights), _word_arrays(VALIDATION, 2, weights)
    check(dataclasses.replace(case, data=data, validation=validation), tmp_path)


def _texts(count, seed, dtype=str):
    rng = np.random.default_rng(seed)
    is_good = rng.integers(0, 2, (count, 4))
    words = np.where(is_good, "good", "bad")
    texts = np.array([" ".join(row) for row in words], dtype=dtype)
    return Arrays(texts, is_good.sum(axis=1) % 3)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "dtype"), [("2", str), ("3", object)])
def test_adapted_layer_of_texts_is_trained_as_by_fit(tmp_path, version, dtype):
    def model(package):
        layers = package.layers
        vectorize = layers.TextVectorization(max_tokens=9, output_sequence_length=4)
        vectorize.adapt(_texts(20, 3).x)
        inputs = package.Input([], dtype="string")
        x = layers.Embedding(9, 4, mask_zero=True)(vectorize(inputs))
        return package.Model(inputs, layers.Dense(3, activation="softmax")(layers.LSTM(4)(x)))

    case = _classifier_case(version, model, Cell("classes"))
    data, validation = _texts(ROWS, 1, dtype), _texts(VALIDATION, 2, dtype)
    check(dataclasses.replace(case, data=data, validation=validation), tmp_path)


def _two_inputs(form, package):
    layers = package.layers
    inputs = [package.Input([4], name="left"), package.Input([4], name="right")]
    shared = package.Sequential([package.Input([4]), layers.Dense(4, activation="tanh")])
    x = layers.concatenate([shared(tensor) for tensor in inputs])
    output = layers.Dense(3, activation="softmax")(x)
    named = dict(zip(("left", "right"), inputs, strict=True))
    return package.Model(inputs if form == "list" else named, output)


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("form", ["dict", "list", "dict for list"])
@pytest.mark.parametrize("version", PACKAGES)
def test_several_inputs_are_trained_as_by_fit(tmp_path, version, form):
    def of_two(part):
        both = [part.x, part.x[::-1].copy()]
        named = {"left": both[0], "right": both[1]}
        return part._replace(x=both if form == "list" else named)

    model = functools.partial(_two_inputs, "dict" if form == "dict" else "list")
    case = _classifier_case(version, model, Cell("classes"))
    data, validation = of_two(case.data), of_two(case.validation)
    check(dataclasses.replace(case, data=data, validation=validation), tmp_path)


# Several outputs.


def _two_outputs(form, package):
    layers = package.layers
    inputs = package.Input([4])
    hidden = layers.Dense(4, activation="tanh", kernel_regularizer="l2")(inputs)
    kind = layers.Dense(3, activation="softmax", name="kind")(hidden)
    price = layers.Dense(1, activation="softplus", name="price")(hidden)
    return package.Model(
        inputs, {"kind": kind, "price": price} if form == "dict" else [kind, price]
    )


def _two_labels(count, seed, form, weights):
    kinds, prices = (arrays(Cell(name), count, seed) for name in ("classes", "numbers"))
    rng = np.random.default_rng(seed)
    w = rng.integers(0, 3, count).astype(np.float32)
    if weights == "outputs":
        w = {"kind": w, "price": w[::-1].copy()}
        w = w if form == "dict" else [*w.values()]
    y = {"kind": kinds.y, "price": prices.y}
    return Arrays(kinds.x, y if form == "dict" else [*y.values()], w if weights else None)


_CROSSENTROPY = "sparse_categorical_crossentropy"
# Arguments of `compile` for two outputs.
_TWO = {
    "by name": {
        "loss": {"kind": _CROSSENTROPY, "price": "mse"},
        "metrics": {"kind": ["accuracy"], "price": ["mae", "mse"]},
    },
    "in order": {"loss": [_CROSSENTROPY, "mse"], "metrics": [["accuracy"], ["mae"]]},
    "with loss weights": {
        "loss": {"kind": _CROSSENTROPY, "price": "huber"},
        "loss_weights": {"kind": 0.5, "price": 2.0},
        "metrics": {"kind": "accuracy"},
    },
    "with a list of loss weights": {
        "loss": [_CROSSENTROPY, "mse"],
        "loss_weights": [0.5, 2.0],
        "weighted_metrics": [["accuracy"], []],
    },
    "with weighted metrics": {
        "loss": {"kind": _CROSSENTROPY, "price": "mse"},
        "metrics": {"kind": ["accuracy"]},
        "weighted_metrics": {"kind": ["accuracy"], "price": ["mae"]},
    },
    "with one loss": {"loss": {"kind": _CROSSENTROPY}, "metrics": {"kind": ["accuracy"]}},
    "the same loss": {"loss": "mse", "metrics": ["mae"]},
}


# How outputs and labels are given, and what has weights.
_GIVEN = [(form, weights) for form in ("dict", "list") for weights in ("outputs", "", "examples")]


@pytest.mark.sample(1)
@pytest.mark.alternating
@pytest.mark.parametrize("given", _GIVEN, ids="-".join)
@pytest.mark.parametrize(
    "compiled", [(version, name) for version in PACKAGES for name in _TWO], ids=" ".join
)
def test_two_outputs_are_trained_as_by_fit(tmp_path, compiled, given):
    version, name = compiled
    form, weights = given
    case = Case(
        version,
        functools.partial(_two_outputs, form),
        _two_labels(ROWS, 1, form, weights),
        lambda package: _TWO[name],
        _two_labels(7 * BATCH, 2, form, weights),
    )
    check(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("version", PACKAGES)
def test_loss_of_an_output_counts_each_example_once(tmp_path, version):
    """`fit` of Keras 3 averages over batches, also if the last one has fewer examples."""
    validation = _two_labels(VALIDATION, 2, "dict", "")
    case = Case(
        version,
        functools.partial(_two_outputs, "dict"),
        _two_labels(ROWS, 1, "dict", ""),
        lambda package: _TWO["by name"],
        validation,
    )
    numbers = fits.train(case, tmp_path)
    model = case.build()
    model.set_weights(numbers.weights)
    outputs = {name: np.asarray(value) for name, value in model(validation.x).items()}

    rows = np.arange(VALIDATION)
    losses = {
        "kind": -np.log(outputs["kind"][rows, validation.y["kind"]]).mean(),
        "price": np.square(outputs["price"][:, 0] - validation.y["price"]).mean(),
    }
    for name, expected in losses.items():
        np.testing.assert_allclose(numbers.evaluation[f"{name}_loss"], expected, rtol=1e-5)
    total = sum(losses.values()) + float(sum(model.losses))
    np.testing.assert_allclose(numbers.evaluation["loss"], total, rtol=1e-5)
