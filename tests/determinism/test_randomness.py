"""Random draws in a step depend only on their key, not on earlier draws or the process."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.determinism.scopes import keyed_draws_scope, keyed_piece_scope, unkeyed_draws
from tests.support.draws import all_distinct, drawn, traced_step, uniform_draw

# The parts of the key


@pytest.mark.parametrize(
    "other",
    [{"seed": 8}, {"seed": -7}, {"step": 6}, {"step": 2**40}, {"replica": 0}, {"purpose": "eval"}],
)
def test_each_part_of_the_key_changes_the_draws(other):
    assert np.array_equal(drawn(), drawn())
    assert not np.array_equal(drawn(), drawn(**other))


def test_step_and_replica_are_not_interchangeable():
    assert not np.array_equal(drawn(step=1, replica=2), drawn(step=2, replica=1))


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_tensor_and_integer_keys_draw_the_same(dtype):
    tensors = {"step": tf.constant(5, dtype), "replica": tf.constant(1)}
    assert np.array_equal(drawn(**tensors), drawn())
    variable = {"step": tf.Variable(5, dtype=dtype), "replica": 1}
    assert np.array_equal(drawn(**variable), drawn())


def test_calls_are_numbered_from_the_start_of_the_scope():
    first = drawn(lambda: [uniform_draw() for _ in range(3)])
    assert all_distinct(first)
    assert np.array_equal(first, drawn(lambda: [uniform_draw() for _ in range(3)]))


def test_graph_and_eager_draws_are_equal():
    def draw():
        with keyed_piece_scope(3):
            inner = uniform_draw()
        return [uniform_draw(), inner, uniform_draw()]

    step = traced_step(draw)
    for index in (4, 5):
        eager = drawn(draw, step=index, replica=0)
        assert np.array_equal(np.stack(step(index)), np.stack(eager))


@pytest.mark.parametrize("varied", ["step", "replica", "piece", "call"])
def test_uniform_draws_pass_statistical_checks(varied):
    def draw(turn):
        step, replica = (turn if varied == name else 0 for name in ("step", "replica"))
        with (
            keyed_draws_scope(3, step, replica),
            keyed_piece_scope(turn if varied == "piece" else 0),
        ):
            return tf.random.uniform([128], dtype=tf.float64)

    def calls():
        with keyed_draws_scope(3, 0, 0):
            return tf.stack([tf.random.uniform([128], dtype=tf.float64) for _ in range(1024)])

    turns = tf.range(1024)
    draws = (
        calls()
        if varied == "call"
        else tf.function(lambda: tf.map_fn(draw, turns, fn_output_signature=tf.float64))()
    )
    x = (np.asarray(draws) - 0.5) * 12**0.5
    assert np.unique(x).size == x.size  # or two draws share a part of the generator's sequence
    assert abs(x.mean()) < 5 / x.size**0.5
    assert abs(x.var() - 1) < 5 * 0.9 / x.size**0.5
    for lag in (1, 2, 64):
        assert abs((x[lag:] * x[:-lag]).mean()) < 5 / (x.size - lag * 128) ** 0.5
    assert np.abs(x.mean(axis=0)).max() < 5.5 / len(x) ** 0.5


# The ops

ALPHA = [0.5, 1.0, 4.0]
OPS = {
    # How it draws [n, 3], the smallest and largest possible value, and the mean.
    "uniform float16": (lambda n: tf.random.uniform([n, 3], dtype=tf.float16), 0, 1, 0.5),
    "uniform float32": (lambda n: tf.random.uniform([n, 3], -1.0, 3.0), -1, 3, 1),
    "uniform int32": (
        lambda n: tf.random.uniform([n, 3], tf.constant(-2), tf.constant(3), tf.int32),
        -2,
        2,
        0,
    ),
    "normal float32": (lambda n: tf.random.normal([n, 3], 1.0, 2.0), -19, 19, 1),
    "normal float64": (lambda n: tf.random.normal([n, 3], dtype=tf.float64), -9, 9, 0),
    "truncated": (lambda n: tf.random.truncated_normal([n, 3]), -2, 2, 0),
    "truncated by row": (lambda n: _rows(n), -3, 3, 0),
    "truncated by scalars": (lambda n: _truncated([n, 3], 0.0, 1.0, -1.0, 1.0), -1, 1, 0),
    "categorical": (
        lambda n: tf.random.categorical(tf.math.log([[0.5, 0.5, 0.0]] * 3), 600)[:, :n],
        0,
        1,
        0.5,
    ),
    "categorical int32": (
        lambda n: tf.random.categorical(tf.zeros([n, 3], tf.float64), 3, tf.int32),
        0,
        2,
        1,
    ),
    "gamma": (lambda n: tf.random.gamma([n], tf.constant(ALPHA), 2.0), 0, 99, 5.5 / 6),
    "poisson": (lambda n: tf.random.poisson([n], tf.constant([1.0, 2.0, 3.0])), 0, 99, 2),
    "poisson int32": (lambda n: tf.random.poisson([n, 3], 4.0, tf.int32), 0, 99, 4),
    "shuffle": (lambda n: tf.random.shuffle(tf.range(600))[:n], 0, 599, 299.5),
    "dropout": (lambda n: tf.nn.dropout(tf.ones([n, 3]), 0.25), 0, 4 / 3, 1),
}


def _truncated(shape, *parameters):
    from tensorflow.python.ops import random_ops  # it has no public name in TensorFlow 2

    return random_ops.parameterized_truncated_normal(shape, *parameters)


def _rows(n):
    sizes = tf.where(tf.range(n) % 2 == 0, 1.0, 3.0)
    return _truncated([n, 3], tf.zeros([n]), tf.ones([n]), -sizes, sizes)


@pytest.mark.parametrize("name", OPS)
def test_keyed_ops_keep_dtype_shape_and_distribution(name):
    draw, low, high, mean = OPS[name]
    draws = drawn(lambda: draw(600))
    unkeyed = draw(600)
    assert draws.dtype == unkeyed.dtype.as_numpy_dtype
    assert draws.shape == unkeyed.shape
    values = draws.astype(np.float64)
    assert low <= values.min() < values.max() <= high + 1e-6
    assert abs(values.mean() - mean) < 6 * max(values.std(), 1e-9) / values.size**0.5
    spread = np.asarray(unkeyed, np.float64).std()
    assert values.std() == pytest.approx(spread, rel=0.25)
    # They depend on nothing but the key.
    assert draws.tobytes() == drawn(lambda: draw(600)).tobytes()
    assert draws.tobytes() != drawn(lambda: draw(600), step=6).tobytes()
    step = traced_step(lambda: draw(600))
    assert unkeyed_draws(step.get_concrete_function()) == []


@pytest.mark.parametrize("name", OPS)
def test_keyed_ops_have_the_same_static_shapes(name):
    draw = OPS[name][0]

    def shape(keyed, n):
        shapes = []

        @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
        def traced(size):
            drawn = draw(size if n is None else n)
            shapes.append(drawn.shape)
            return drawn

        if keyed:
            with keyed_draws_scope(7, 1, 0):
                traced.get_concrete_function()
        else:
            traced.get_concrete_function()
        return shapes[0].as_list()

    for n in (None, 5):
        assert shape(True, n) == shape(False, n)


def test_truncated_normal_keeps_the_bounds_of_each_row():
    draws = np.abs(drawn(lambda: _rows(600)))
    assert draws[::2].max() <= 1 < draws[1::2].max() <= 3


def test_keyed_shuffle_permutes_rows():
    rows = drawn(lambda: tf.random.shuffle(tf.reshape(tf.range(40), [20, 2])))
    assert not np.array_equal(rows[:, 0], np.arange(0, 40, 2))
    assert np.array_equal(np.sort(rows[:, 0]), np.arange(0, 40, 2))
    assert np.array_equal(rows[:, 1], rows[:, 0] + 1)


def test_keyed_gamma_has_a_gradient():
    def draw():
        alpha = tf.constant(ALPHA)
        with tf.GradientTape() as tape:
            tape.watch(alpha)
            mean = tf.reduce_mean(tf.random.gamma([4000], alpha), axis=0)
        return tape.gradient(mean, alpha)

    assert drawn(draw) == pytest.approx([1, 1, 1], abs=0.15)  # the mean of a gamma is its alpha


@pytest.mark.parametrize(
    "draw",
    [
        lambda generator: generator.uniform([4]),
        lambda generator: generator.uniform([4], 0, 9, tf.int64),
        lambda generator: generator.uniform_full_int([4]),
        lambda generator: generator.normal([4]),
        lambda generator: generator.truncated_normal([4]),
        lambda generator: generator.make_seeds(4),
        lambda generator: generator.binomial([4], counts=1000.0, probs=0.5),
    ],
)
def test_generators_draw_by_key_without_changing_state(draw):
    generator = tf.random.Generator.from_seed(3)
    before = generator.state.numpy()
    pair = [drawn(lambda: [draw(generator), draw(generator)]) for _ in range(2)]
    assert np.array_equal(pair[0], pair[1])
    assert all_distinct(pair[0])
    assert not np.array_equal(pair[0][0], drawn(lambda: draw(generator), step=6))
    assert np.array_equal(generator.state.numpy(), before)
    step = traced_step(lambda: draw(generator))
    assert unkeyed_draws(step.get_concrete_function()) == []


def test_threefry_generators_are_keyed_under_xla():
    generator = tf.random.Generator.from_seed(3, alg="threefry")  # which runs only under XLA
    draws = tf.function(lambda: [generator.uniform([4]) for _ in range(2)], jit_compile=True)
    traced = traced_step(lambda: [*draws(), *draws()])
    rows = [row for index in (3, 4) for row in traced(index)]
    assert all_distinct(rows)
    assert np.array_equal(traced(3), rows[:4])


# Layers


def _stochastic_depth():
    from official.vision.modeling.layers import nn_layers

    return nn_layers.StochasticDepth(0.5)


LAYERS = {
    "seeded Dropout": lambda: tf_keras.layers.Dropout(0.5, seed=3),
    "GaussianNoise": lambda: tf_keras.layers.GaussianNoise(0.5),
    "LSTM recurrent": lambda: tf_keras.layers.LSTM(8, recurrent_dropout=0.5),
    "LSTM of Dropout": lambda: tf_keras.layers.TimeDistributed(tf_keras.layers.Dropout(0.5)),
    "StochasticDepth": _stochastic_depth,
    "RandomFlip": lambda: tf_keras.Sequential(
        [tf_keras.layers.Reshape([12, 8, 1]), tf_keras.layers.RandomFlip()]
    ),
    "RandomBrightness": lambda: tf_keras.Sequential(
        [
            tf_keras.layers.Reshape([12, 8, 1]),
            tf_keras.layers.RandomBrightness(0.5, value_range=[-9, 9]),
        ]
    ),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_draw_the_same_after_a_restart(name):
    model = tf_keras.Sequential([tf_keras.Input([12, 8]), LAYERS[name]()])
    x = tf.reshape(tf.sin(tf.range(16.0 * 12 * 8)), [16, 12, 8])

    def draw():
        return [model(x, training=True), model(x, training=True)]

    uninterrupted, resumed = traced_step(draw), traced_step(draw)
    outputs = [uninterrupted(index) for index in range(4)]
    assert all_distinct([call for step in outputs for call in step])
    assert np.array_equal(outputs[3], resumed(3))
    assert unkeyed_draws(uninterrupted.get_concrete_function()) == []
