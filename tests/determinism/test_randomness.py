"""Random draws in a step depend only on their key, not on earlier draws or the process."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.determinism import op_patches
from orbit_runner.determinism.audit import unkeyed_draws
from orbit_runner.determinism.scopes import keyed_draws_scope, keyed_piece_scope
from tests.support.toy import make_strategy

KEY = {"seed": 7, "step": 5, "replica": 1, "purpose": "train"}


def _uniform() -> tf.Tensor:
    return tf.random.uniform([4])


def _drawn(draw: Callable[[], Any] = _uniform, **key: Any) -> Any:
    """Returns draws with a key, as numpy arrays."""
    with keyed_draws_scope(**{**KEY, **key}):
        return tf.nest.map_structure(np.asarray, draw())


def _step(draw: Callable[[], Any], seed: int = 7) -> Any:
    """Returns a function of the step that draws and is not yet traced."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.int64)])
    def step(index: tf.Tensor) -> Any:
        with keyed_draws_scope(seed, index, 0):
            return draw()

    return step


def _distinct(arrays: Any) -> bool:
    return len({np.asarray(array).tobytes() for array in arrays}) == len(arrays)


# The parts of the key


@pytest.mark.slow
def test_equal_keys_give_equal_draws_in_another_process() -> None:
    code = (
        "import tensorflow as tf, json\n"
        "from orbit_runner.determinism.scopes import keyed_draws_scope\n"
        "tf.random.uniform([9])\n"
        "with keyed_draws_scope(7, 5, 1):\n"
        "    print(json.dumps([tf.random.uniform([4]).numpy().tolist() for _ in range(2)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    here = _drawn(lambda: [_uniform(), _uniform()])
    assert json.loads(done.stdout) == [draw.tolist() for draw in here]


@pytest.mark.parametrize(
    "other",
    [{"seed": 8}, {"seed": -7}, {"step": 6}, {"step": 2**40}, {"replica": 0}, {"purpose": "eval"}],
)
def test_each_part_of_the_key_changes_the_draws(other: dict[str, Any]) -> None:
    assert np.array_equal(_drawn(), _drawn())
    assert not np.array_equal(_drawn(), _drawn(**other))


def test_step_and_replica_are_not_interchangeable() -> None:
    assert not np.array_equal(_drawn(step=1, replica=2), _drawn(step=2, replica=1))


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_tensor_and_integer_keys_draw_the_same(dtype: tf.DType) -> None:
    tensors = {"step": tf.constant(5, dtype), "replica": tf.constant(1)}
    assert np.array_equal(_drawn(**tensors), _drawn())
    variable = {"step": tf.Variable(5, dtype=dtype), "replica": 1}
    assert np.array_equal(_drawn(**variable), _drawn())


def test_calls_are_numbered_from_the_start_of_the_scope() -> None:
    first = _drawn(lambda: [_uniform() for _ in range(3)])
    assert _distinct(first)
    assert np.array_equal(first, _drawn(lambda: [_uniform() for _ in range(3)]))


def test_graph_and_eager_draws_are_equal() -> None:
    def draw() -> list[tf.Tensor]:
        with keyed_piece_scope(3):
            inner = _uniform()
        return [_uniform(), inner, _uniform()]

    step = _step(draw)
    for index in (4, 5):
        eager = _drawn(draw, step=index, replica=0)
        assert np.array_equal(np.stack(step(index)), np.stack(eager))


def test_scope_without_draws_adds_no_ops() -> None:
    without = _step(lambda: tf.constant(1.0)).get_concrete_function().graph
    assert {op.type for op in without.get_operations()} <= {"Placeholder", "Const", "Identity"}
    assert len(without.get_operations()) == 3


def test_keyed_draw_adds_two_ops() -> None:
    def operations(draws: int) -> int:
        step = _step(lambda: [tf.random.normal([2]) for _ in range(draws)])
        return len(step.get_concrete_function().graph.get_operations())

    @tf.function
    def unkeyed(draws: int) -> list[tf.Tensor]:
        return [tf.random.normal([2]) for _ in range(draws)]

    def unkeyed_operations(draws: int) -> int:
        return len(unkeyed.get_concrete_function(draws).graph.get_operations())

    more = unkeyed_operations(3) - unkeyed_operations(2)
    assert operations(3) - operations(2) == more + 2


@pytest.mark.parametrize("varied", ["step", "replica", "piece", "call"])
def test_uniform_draws_pass_statistical_checks(varied: str) -> None:
    def draw(turn: tf.Tensor) -> tf.Tensor:
        step, replica = (turn if varied == name else 0 for name in ("step", "replica"))
        with (
            keyed_draws_scope(3, step, replica),
            keyed_piece_scope(turn if varied == "piece" else 0),
        ):
            return tf.random.uniform([128], dtype=tf.float64)

    def calls() -> tf.Tensor:
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
OPS: dict[str, tuple[Callable[[Any], tf.Tensor], float, float, float]] = {
    # How it draws [n, 3], the smallest and largest possible value, and the mean.
    "uniform float16": (lambda n: tf.random.uniform([n, 3], dtype=tf.float16), 0, 1, 0.5),
    "uniform bfloat16": (lambda n: tf.random.uniform([n, 3], dtype=tf.bfloat16), 0, 1, 0.5),
    "uniform float32": (lambda n: tf.random.uniform([n, 3], -1.0, 3.0), -1, 3, 1),
    "uniform float64": (lambda n: tf.random.uniform([n, 3], 2, 4, tf.float64), 2, 4, 3),
    "uniform int32": (
        lambda n: tf.random.uniform([n, 3], tf.constant(-2), tf.constant(3), tf.int32),
        -2,
        2,
        0,
    ),
    "uniform int64": (lambda n: tf.random.uniform([n, 3], 5, 8, tf.int64), 5, 7, 6),
    "normal float16": (lambda n: tf.random.normal([n, 3], dtype=tf.float16), -9, 9, 0),
    "normal float32": (lambda n: tf.random.normal([n, 3], 1.0, 2.0), -19, 19, 1),
    "normal float64": (lambda n: tf.random.normal([n, 3], dtype=tf.float64), -9, 9, 0),
    "truncated": (lambda n: tf.random.truncated_normal([n, 3]), -2, 2, 0),
    "truncated bfloat16": (
        lambda n: tf.random.truncated_normal([n, 3], dtype=tf.bfloat16),
        -2,
        2,
        0,
    ),
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
    "gamma float64": (
        lambda n: tf.random.gamma([n, 3], tf.constant(2.0, tf.float64), dtype=tf.float64),
        0,
        99,
        2,
    ),
    "poisson": (lambda n: tf.random.poisson([n], tf.constant([1.0, 2.0, 3.0])), 0, 99, 2),
    "poisson int32": (lambda n: tf.random.poisson([n, 3], 4.0, tf.int32), 0, 99, 4),
    "shuffle": (lambda n: tf.random.shuffle(tf.range(600))[:n], 0, 599, 299.5),
    "dropout": (lambda n: tf.nn.dropout(tf.ones([n, 3]), 0.25), 0, 4 / 3, 1),
    "dropout float16": (lambda n: tf.nn.dropout(tf.ones([n, 3], tf.float16), 0.5), 0, 2, 1),
}


def _truncated(shape: Any, *parameters: Any) -> tf.Tensor:
    from tensorflow.python.ops import random_ops  # it has no public name in TensorFlow 2

    return random_ops.parameterized_truncated_normal(shape, *parameters)


def _rows(n: Any) -> tf.Tensor:
    sizes = tf.where(tf.range(n) % 2 == 0, 1.0, 3.0)
    return _truncated([n, 3], tf.zeros([n]), tf.ones([n]), -sizes, sizes)


@pytest.mark.parametrize("name", OPS)
def test_keyed_ops_keep_dtype_shape_and_distribution(name: str) -> None:
    draw, low, high, mean = OPS[name]
    found = _drawn(lambda: draw(600))
    unkeyed = draw(600)
    assert found.dtype == unkeyed.dtype.as_numpy_dtype
    assert found.shape == unkeyed.shape
    values = found.astype(np.float64)
    assert low <= values.min() < values.max() <= high + 1e-6
    assert abs(values.mean() - mean) < 6 * max(values.std(), 1e-9) / values.size**0.5
    spread = np.asarray(unkeyed, np.float64).std()
    assert values.std() == pytest.approx(spread, rel=0.25)


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", OPS)
def test_op_draws_depend_only_on_the_key(name: str) -> None:
    draw = OPS[name][0]
    found = _drawn(lambda: draw(600))
    assert found.tobytes() == _drawn(lambda: draw(600)).tobytes()
    assert found.tobytes() != _drawn(lambda: draw(600), step=6).tobytes()
    step = _step(lambda: draw(600))
    assert unkeyed_draws(step.get_concrete_function()) == []


@pytest.mark.sample(19)
@pytest.mark.parametrize("name", OPS)
def test_keyed_ops_have_the_same_static_shapes(name: str) -> None:
    draw = OPS[name][0]

    def shape(keyed: bool, n: int | None) -> tf.TensorShape:
        shapes = []

        @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
        def traced(size: tf.Tensor) -> tf.Tensor:
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


def test_truncated_normal_keeps_the_bounds_of_each_row() -> None:
    found = np.abs(_drawn(lambda: _rows(600)))
    assert found[::2].max() <= 1 < found[1::2].max() <= 3


def test_keyed_shuffle_permutes_rows() -> None:
    found = _drawn(lambda: tf.random.shuffle(tf.reshape(tf.range(40), [20, 2])))
    assert not np.array_equal(found[:, 0], np.arange(0, 40, 2))
    assert np.array_equal(np.sort(found[:, 0]), np.arange(0, 40, 2))
    assert np.array_equal(found[:, 1], found[:, 0] + 1)


def test_keyed_gamma_has_a_gradient() -> None:
    def draw() -> tf.Tensor:
        alpha = tf.constant(ALPHA)
        with tf.GradientTape() as tape:
            tape.watch(alpha)
            mean = tf.reduce_mean(tf.random.gamma([4000], alpha), axis=0)
        return tape.gradient(mean, alpha)

    assert _drawn(draw) == pytest.approx([1, 1, 1], abs=0.15)  # the mean of a gamma is its alpha


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
def test_generators_draw_by_key_without_changing_state(draw: Any) -> None:
    generator = tf.random.Generator.from_seed(3)
    before = generator.state.numpy()
    pair = [_drawn(lambda: [draw(generator), draw(generator)]) for _ in range(2)]
    assert np.array_equal(pair[0], pair[1])
    assert _distinct(pair[0])
    assert not np.array_equal(pair[0][0], _drawn(lambda: draw(generator), step=6))
    assert np.array_equal(generator.state.numpy(), before)
    step = _step(lambda: draw(generator))
    assert unkeyed_draws(step.get_concrete_function()) == []


def test_threefry_generators_are_keyed_under_xla() -> None:
    generator = tf.random.Generator.from_seed(3, alg="threefry")  # which runs only under XLA
    draws = tf.function(lambda: [generator.uniform([4]) for _ in range(2)], jit_compile=True)
    whole = _step(lambda: [*draws(), *draws()])
    found = [row for index in (3, 4) for row in whole(index)]
    assert _distinct(found)
    assert np.array_equal(whole(3), found[:4])


# Layers


def _stochastic_depth() -> Any:
    from official.vision.modeling.layers import nn_layers

    return nn_layers.StochasticDepth(0.5)


class _Attention(tf_keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.attention = tf_keras.layers.MultiHeadAttention(2, 4, dropout=0.5)

    def call(self, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        return self.attention(x, x, training=training)


LAYERS = {
    "Dropout": lambda: tf_keras.layers.Dropout(0.5),
    "seeded Dropout": lambda: tf_keras.layers.Dropout(0.5, seed=3),
    "AlphaDropout": lambda: tf_keras.layers.AlphaDropout(0.5),
    "GaussianDropout": lambda: tf_keras.layers.GaussianDropout(0.5),
    "GaussianNoise": lambda: tf_keras.layers.GaussianNoise(0.5),
    "SpatialDropout1D": lambda: tf_keras.layers.SpatialDropout1D(0.5),
    "LSTM": lambda: tf_keras.layers.LSTM(8, dropout=0.5),
    "LSTM recurrent": lambda: tf_keras.layers.LSTM(8, recurrent_dropout=0.5),
    "LSTM of Dropout": lambda: tf_keras.layers.TimeDistributed(tf_keras.layers.Dropout(0.5)),
    "GRU": lambda: tf_keras.layers.GRU(8, dropout=0.5, recurrent_dropout=0.5),
    "MultiHeadAttention": _Attention,
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
def test_layers_draw_the_same_after_a_restart(name: str) -> None:
    model = tf_keras.Sequential([tf_keras.Input([12, 8]), LAYERS[name]()])
    x = tf.reshape(tf.sin(tf.range(16.0 * 12 * 8)), [16, 12, 8])

    def draw() -> list[tf.Tensor]:
        return [model(x, training=True), model(x, training=True)]

    whole, resumed = _step(draw), _step(draw)
    outputs = [whole(index) for index in range(4)]
    assert _distinct([call for step in outputs for call in step])
    assert np.array_equal(outputs[3], resumed(3))
    assert unkeyed_draws(whole.get_concrete_function()) == []


def test_dropout_layers_of_one_model_have_different_masks() -> None:
    inputs = tf_keras.Input([256])
    outputs = [tf_keras.layers.Dropout(0.5)(inputs) for _ in range(2)]
    model = tf_keras.Model(inputs, outputs)
    one, other = _step(lambda: model(tf.ones([4, 256]), training=True))(1)
    assert abs(np.mean((one - 1) * (other - 1))) < 5 / 32


# Functions inside functions


@pytest.mark.parametrize("jit_compile", [False, True])
def test_function_traced_once_uses_the_key_of_its_caller(jit_compile: bool) -> None:
    traces = []

    @tf.function(jit_compile=jit_compile)
    def inner() -> tuple[tf.Tensor, tf.Tensor]:
        traces.append(1)
        return tf.nn.dropout(tf.ones([64]), 0.5), tf.random.uniform([64])

    whole = _step(lambda: [*inner(), *inner()])
    resumed = _step(lambda: [*inner(), *inner()])
    steps = [whole(index) for index in range(4)]
    assert len(traces) == 1
    assert _distinct([draw for step in steps for draw in step])
    assert np.array_equal(steps[3], resumed(3))
    assert set(np.unique(steps[0][0])) == {0.0, 2.0}
    assert unkeyed_draws(whole.get_concrete_function()) == []
    eager = [_drawn(lambda: inner()[1], step=index) for index in (3, 4, 3)]
    assert np.array_equal(eager[0], eager[2])
    assert not np.array_equal(eager[0], eager[1])


@pytest.mark.parametrize("inside", ["plain", "function", "xla"])
def test_gradient_uses_the_dropout_mask_of_the_forward_pass(inside: str) -> None:
    def inner(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.dropout(x, 0.5)

    if inside != "plain":
        inner = tf.function(inner, jit_compile=inside == "xla")

    def draw() -> tuple[tf.Tensor, tf.Tensor]:
        x = tf.ones([64])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = inner(x)
        return y, tape.gradient(y, x)

    y, gradient = _step(draw)(3)
    assert np.array_equal(y, gradient)
    assert not np.array_equal(y, _step(draw)(4)[0])


def test_function_called_without_a_key_draws_new_values() -> None:
    inner = tf.function(_uniform)
    _drawn(inner)
    outer = tf.function(inner)
    assert _distinct([inner(), inner(), outer(), outer()])
    assert len(unkeyed_draws(outer.get_concrete_function())) == 1


# Loops and pieces


def _while() -> tf.Tensor:
    array = tf.TensorArray(tf.float32, 4)
    return tf.while_loop(
        lambda turn, _: turn < 4,
        lambda turn, rows: (turn + 1, rows.write(turn, _uniform())),
        (0, array),
    )[1].stack()


def _autograph() -> tf.Tensor:
    rows = tf.TensorArray(tf.float32, 4)
    for turn in tf.range(4):
        rows = rows.write(turn, _uniform())
    return rows.stack()


def _nested() -> tf.Tensor:
    rows = tf.map_fn(lambda _: tf.map_fn(lambda _: _uniform(), tf.zeros([3])), tf.zeros([2]))
    return tf.reshape(rows, [6, 4])


def _branch() -> tf.Tensor:
    turns = tf.range(4)
    return tf.map_fn(
        lambda turn: tf.cond(turn < 2, _uniform, lambda: 1 - _uniform()),
        turns,
        fn_output_signature=tf.float32,
    )


def _function() -> tf.Tensor:
    inner = tf.function(_uniform)
    return tf.map_fn(lambda _: inner(), tf.zeros([4]))


LOOPS = {
    "while_loop": _while,
    "autograph": _autograph,
    "map_fn": lambda: tf.map_fn(lambda _: _uniform(), tf.zeros([4])),
    "scan": lambda: tf.scan(lambda _, x: _uniform(), tf.zeros([4]), tf.zeros([4])),
    "vectorized_map": lambda: tf.vectorized_map(lambda _: _uniform(), tf.zeros([4])),
    "nested": _nested,
    "branch": _branch,
    "function": _function,
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", LOOPS)
def test_loop_iterations_draw_different_values(name: str) -> None:
    def draw() -> list[tf.Tensor]:
        return [_uniform()[tf.newaxis], LOOPS[name](), LOOPS[name]()]

    whole, resumed = _step(draw), _step(draw)
    steps = [whole(index) for index in range(3)]
    assert _distinct([row for step in steps for rows in step for row in rows.numpy()])
    assert all(map(np.array_equal, steps[2], resumed(2)))
    assert unkeyed_draws(whole.get_concrete_function()) == []


def test_gradient_of_a_loop_uses_the_masks_of_its_iterations() -> None:
    def draw() -> tuple[tf.Tensor, tf.Tensor]:
        x = tf.ones([4, 32])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.map_fn(lambda row: tf.nn.dropout(row, 0.5), x)
        return y, tape.gradient(y, x)

    y, gradient = _step(draw)(3)
    assert np.array_equal(y, gradient)
    assert _distinct(list(y.numpy()))


@pytest.mark.parametrize("compiled", [None, False, True])
def test_piece_draws_depend_on_the_piece_index(compiled: bool | None) -> None:
    draw = _uniform if compiled is None else tf.function(_uniform, jit_compile=compiled)

    def piece(index: Any) -> tf.Tensor:
        with keyed_piece_scope(index):
            return draw()

    def loop() -> list[tf.Tensor]:
        rows = tf.TensorArray(tf.float32, 4).write(0, piece(0))
        _, rows = tf.while_loop(
            lambda index, _: index < 4,
            lambda index, rows: (index + 1, rows.write(index, piece(index))),
            (1, rows),
            parallel_iterations=1,
        )
        return [*tf.unstack(rows.stack()), _uniform()]

    def unrolled() -> list[tf.Tensor]:
        return [*(piece(index) for index in range(4)), _uniform()]

    found = _step(loop)(3)
    assert _distinct(found)
    assert np.array_equal(found, _step(unrolled)(3))
    assert _distinct([*found, *_step(loop)(4)])


def test_calls_in_a_piece_are_numbered_from_its_start() -> None:
    def draw(before: int) -> np.ndarray:
        with keyed_draws_scope(7, 5, 1):
            for _ in range(before):
                _uniform()
            with keyed_piece_scope(2):
                return np.stack([_uniform(), _uniform()])

    assert np.array_equal(draw(0), draw(3))
    assert _distinct(list(draw(0)))


def test_piece_scope_outside_a_keyed_scope_has_no_effect() -> None:
    def draw() -> tf.Tensor:
        with keyed_piece_scope(0):
            return _uniform()

    assert not np.array_equal(draw(), draw())


# Replicas


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["mirrored2", "mirrored4"])
@pytest.mark.parametrize("inside", ["plain", "function", "xla"])
def test_mirrored_replicas_have_different_masks(name: str, inside: str) -> None:
    strategy = make_strategy(name)
    with strategy.scope():
        model = tf_keras.Sequential([tf_keras.Input([64]), tf_keras.layers.Dropout(0.5)])
        step = tf.Variable(0, dtype=tf.int64, trainable=False)
    compute = lambda: model(tf.ones([1, 64]), training=True)  # noqa: E731
    if inside != "plain":
        compute = tf.function(compute, jit_compile=inside == "xla")

    def replica_step() -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with keyed_draws_scope(7, step, replica):
            outputs = compute()
        step.assign_add(1)
        return outputs

    def train_from(start: int) -> list[np.ndarray]:
        step.assign(start)
        run = tf.function(lambda: strategy.experimental_local_results(strategy.run(replica_step)))
        return [np.stack(run()) for _ in range(start, 4)]

    whole, resumed = train_from(0), train_from(2)
    assert _distinct([replica for outputs in whole for replica in outputs])
    assert np.array_equal(whole[2:], resumed)


# Outside the scope


def test_draws_outside_the_scope_are_unchanged() -> None:
    def unkeyed() -> list[tf.Tensor]:
        tf.random.set_seed(3)
        initial = tf_keras.initializers.GlorotUniform(seed=2)([2, 2])
        return [_uniform(), tf.function(_uniform)(), initial]

    before = unkeyed()
    _drawn()
    assert all(map(np.array_equal, before, unkeyed()))
    with pytest.raises(KeyError), keyed_draws_scope(7, 5, 1), keyed_piece_scope(1):
        raise KeyError
    assert all(map(np.array_equal, before, unkeyed()))


def test_outer_scope_continues_after_a_nested_one() -> None:
    def draw() -> list[tf.Tensor]:
        first = _uniform()
        with pytest.raises(KeyError), keyed_draws_scope(8, 5, 1):
            raise KeyError
        return [first, _uniform()]

    assert np.array_equal(_drawn(draw), _drawn(lambda: [_uniform(), _uniform()]))


def test_scope_does_not_affect_other_threads() -> None:
    found: list[Any] = []
    with keyed_draws_scope(7, 5, 1):
        thread = threading.Thread(target=lambda: found.extend([_uniform(), _uniform()]))
        thread.start()
        thread.join()
        here = [_uniform(), _uniform()]
    assert np.array_equal(here, _drawn(lambda: [_uniform(), _uniform()]))
    assert not np.array_equal(found, here)


def test_draws_in_init_scope_are_not_keyed() -> None:
    def draw() -> tf.Tensor:
        with tf.init_scope():
            tf.random.set_seed(3)
            made.append(_uniform().numpy())
        return _uniform()

    made: list[np.ndarray] = []
    _step(draw)(3)
    tf.random.set_seed(3)
    assert np.array_equal(made[0], _uniform())


def test_tensorflow_without_a_patched_function_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = (tf.random.Generator, "gone", None)
    monkeypatch.setattr(op_patches, "_installed", False)
    monkeypatch.setattr(op_patches, "STAND_INS", (missing,))
    with pytest.raises(RuntimeError, match=r"has no `.*\.gone`"), keyed_draws_scope(7, 5, 1):
        pass


# Draws without a key


def _raw() -> tf.Tensor:
    return tf.raw_ops.RandomUniform(shape=[2], dtype=tf.float32)


@pytest.mark.parametrize(
    "draw",
    [
        _raw,
        lambda: tf.function(lambda: tf.function(_raw)())(),
        lambda: tf.function(_raw, jit_compile=True)(),
        lambda: tf.map_fn(lambda _: _raw(), tf.zeros([2])),
        lambda: tf.cond(tf.random.uniform([]) < 0.5, _raw, lambda: tf.zeros([2])),
        lambda: tf.switch_case(tf.constant(1), [lambda: tf.zeros([2]), _raw]),
    ],
)
def test_unkeyed_draws_are_found_in_nested_graphs(draw: Callable[[], tf.Tensor]) -> None:
    step = _step(draw).get_concrete_function()
    for function in (step, step.graph):
        (found,) = unkeyed_draws(function)
        assert found.endswith("RandomUniform (RandomUniform)")


def test_unkeyed_candidate_sampling_is_found() -> None:
    step = _step(
        lambda: tf.random.uniform_candidate_sampler(tf.constant([[1]], tf.int64), 1, 2, True, 9)[0]
    )
    assert "(UniformCandidateSampler)" in unkeyed_draws(step.get_concrete_function())[0]


@pytest.mark.parametrize("seed", [0, 3])
def test_fractional_pooling_is_found_only_if_random(seed: int) -> None:
    step = _step(lambda: tf.nn.fractional_max_pool(tf.ones([1, 9, 9, 1]), 1.5, seed=seed)[0])
    assert bool(unkeyed_draws(step.get_concrete_function())) == (seed == 0)
