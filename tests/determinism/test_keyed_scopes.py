"""Random draws in functions, loops, pieces and replicas, and draws without a key."""

import threading

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.determinism import patches
from orbit_runner.determinism.scopes import keyed_draws_scope, keyed_piece_scope, unkeyed_draws
from orbit_runner.tf_internals import MissingInternal
from tests.support.draws import all_distinct, drawn, traced_step, uniform_draw
from tests.support.toy import make_strategy

# Functions inside functions


@pytest.mark.parametrize("jit_compile", [False, True])
def test_function_traced_once_uses_the_key_of_its_caller(jit_compile):
    traces = []

    @tf.function(jit_compile=jit_compile)
    def inner():
        traces.append(1)
        return tf.nn.dropout(tf.ones([64]), 0.5), tf.random.uniform([64])

    traced = traced_step(lambda: [*inner(), *inner()])
    resumed = traced_step(lambda: [*inner(), *inner()])
    steps = [traced(index) for index in range(4)]
    assert len(traces) == 1
    assert all_distinct([draw for step in steps for draw in step])
    assert np.array_equal(steps[3], resumed(3))
    assert set(np.unique(steps[0][0])) == {0.0, 2.0}
    assert unkeyed_draws(traced.get_concrete_function()) == []
    eager = [drawn(lambda: inner()[1], step=index) for index in (3, 4, 3)]
    assert np.array_equal(eager[0], eager[2])
    assert not np.array_equal(eager[0], eager[1])


@pytest.mark.parametrize("inside", ["plain", "function", "xla"])
def test_gradient_uses_the_dropout_mask_of_the_forward_pass(inside):
    def inner(x):
        return tf.nn.dropout(x, 0.5)

    if inside != "plain":
        inner = tf.function(inner, jit_compile=inside == "xla")

    def draw():
        x = tf.ones([64])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = inner(x)
        return y, tape.gradient(y, x)

    y, gradient = traced_step(draw)(3)
    assert np.array_equal(y, gradient)
    assert not np.array_equal(y, traced_step(draw)(4)[0])


def test_function_called_without_a_key_draws_new_values():
    inner = tf.function(uniform_draw)
    drawn(inner)
    outer = tf.function(inner)
    assert all_distinct([inner(), inner(), outer(), outer()])
    assert len(unkeyed_draws(outer.get_concrete_function())) == 1


# Loops and pieces


def _while():
    array = tf.TensorArray(tf.float32, 4)
    return tf.while_loop(
        lambda turn, _: turn < 4,
        lambda turn, rows: (turn + 1, rows.write(turn, uniform_draw())),
        (0, array),
    )[1].stack()


def _nested():
    rows = tf.map_fn(lambda _: tf.map_fn(lambda _: uniform_draw(), tf.zeros([3])), tf.zeros([2]))
    return tf.reshape(rows, [6, 4])


def _branch():
    turns = tf.range(4)
    return tf.map_fn(
        lambda turn: tf.cond(turn < 2, uniform_draw, lambda: 1 - uniform_draw()),
        turns,
        fn_output_signature=tf.float32,
    )


def _function():
    inner = tf.function(uniform_draw)
    return tf.map_fn(lambda _: inner(), tf.zeros([4]))


LOOPS = {
    "while_loop": _while,
    "vectorized_map": lambda: tf.vectorized_map(lambda _: uniform_draw(), tf.zeros([4])),
    "nested": _nested,
    "branch": _branch,
    "function": _function,
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", LOOPS)
def test_loop_iterations_draw_different_values(name):
    def draw():
        return [uniform_draw()[tf.newaxis], LOOPS[name](), LOOPS[name]()]

    uninterrupted, resumed = traced_step(draw), traced_step(draw)
    steps = [uninterrupted(index) for index in range(3)]
    assert all_distinct([row for step in steps for rows in step for row in rows.numpy()])
    assert all(map(np.array_equal, steps[2], resumed(2)))
    assert unkeyed_draws(uninterrupted.get_concrete_function()) == []


@pytest.mark.parametrize("compiled", [None, False, True])
def test_piece_draws_depend_on_the_piece_index(compiled):
    draw = uniform_draw if compiled is None else tf.function(uniform_draw, jit_compile=compiled)

    def piece(index):
        with keyed_piece_scope(index):
            return draw()

    def loop():
        rows = tf.TensorArray(tf.float32, 4).write(0, piece(0))
        _, rows = tf.while_loop(
            lambda index, _: index < 4,
            lambda index, rows: (index + 1, rows.write(index, piece(index))),
            (1, rows),
            parallel_iterations=1,
        )
        return [*tf.unstack(rows.stack()), uniform_draw()]

    def unrolled():
        return [*(piece(index) for index in range(4)), uniform_draw()]

    draws = traced_step(loop)(3)
    assert all_distinct(draws)
    assert np.array_equal(draws, traced_step(unrolled)(3))
    assert all_distinct([*draws, *traced_step(loop)(4)])


def test_calls_in_a_piece_are_numbered_from_its_start():
    def draw(before):
        with keyed_draws_scope(7, 5, 1):
            for _ in range(before):
                uniform_draw()
            with keyed_piece_scope(2):
                return np.stack([uniform_draw(), uniform_draw()])

    assert np.array_equal(draw(0), draw(3))
    assert all_distinct(list(draw(0)))


# Replicas


@pytest.mark.sample(2)
@pytest.mark.parametrize("inside", ["plain", "function", "xla"])
def test_mirrored_replicas_have_different_masks(inside):
    strategy = make_strategy("mirrored2")
    with strategy.scope():
        model = tf_keras.Sequential([tf_keras.Input([64]), tf_keras.layers.Dropout(0.5)])
        step = tf.Variable(0, dtype=tf.int64, trainable=False)

    def compute():
        return model(tf.ones([1, 64]), training=True)

    if inside != "plain":
        compute = tf.function(compute, jit_compile=inside == "xla")

    def replica_step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with keyed_draws_scope(7, step, replica):
            outputs = compute()
        step.assign_add(1)
        return outputs

    def train_from(start):
        step.assign(start)
        run = tf.function(lambda: strategy.experimental_local_results(strategy.run(replica_step)))
        return [np.stack(run()) for _ in range(start, 4)]

    uninterrupted, resumed = train_from(0), train_from(2)
    assert all_distinct([replica for outputs in uninterrupted for replica in outputs])
    assert np.array_equal(uninterrupted[2:], resumed)


# Outside the scope


def test_draws_outside_the_scope_are_unchanged():
    def unkeyed():
        tf.random.set_seed(3)
        initial = tf_keras.initializers.GlorotUniform(seed=2)([2, 2])
        return [uniform_draw(), tf.function(uniform_draw)(), initial]

    before = unkeyed()
    drawn()
    assert all(map(np.array_equal, before, unkeyed()))
    with pytest.raises(KeyError), keyed_draws_scope(7, 5, 1), keyed_piece_scope(1):
        raise KeyError
    assert all(map(np.array_equal, before, unkeyed()))


def test_scope_does_not_affect_other_threads():
    draws = []
    with keyed_draws_scope(7, 5, 1):
        thread = threading.Thread(target=lambda: draws.extend([uniform_draw(), uniform_draw()]))
        thread.start()
        thread.join()
        here = [uniform_draw(), uniform_draw()]
    assert np.array_equal(here, drawn(lambda: [uniform_draw(), uniform_draw()]))
    assert not np.array_equal(draws, here)


def test_draws_in_init_scope_are_not_keyed():
    def draw():
        with tf.init_scope():
            tf.random.set_seed(3)
            initial.append(uniform_draw().numpy())
        return uniform_draw()

    initial = []
    traced_step(draw)(3)
    tf.random.set_seed(3)
    assert np.array_equal(initial[0], uniform_draw())


def test_tensorflow_without_a_patched_function_is_rejected(monkeypatch):
    monkeypatch.setattr(patches, "_installed", set())
    monkeypatch.delattr("tensorflow.random.Generator.skip")
    with pytest.raises(MissingInternal, match=r"Generator\.skip"), keyed_draws_scope(7, 5, 1):
        pass


# Draws without a key


def _raw():
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
def test_unkeyed_draws_are_found_in_nested_graphs(draw):
    step = traced_step(draw).get_concrete_function()
    for function in (step, step.graph):
        (op,) = unkeyed_draws(function)
        assert op.endswith("RandomUniform (RandomUniform)")


def test_unkeyed_candidate_sampling_is_found():
    step = traced_step(
        lambda: tf.random.uniform_candidate_sampler(tf.constant([[1]], tf.int64), 1, 2, True, 9)[0]
    )
    assert "(UniformCandidateSampler)" in unkeyed_draws(step.get_concrete_function())[0]


@pytest.mark.parametrize("seed", [0, 3])
def test_fractional_pooling_is_found_only_if_random(seed):
    step = traced_step(lambda: tf.nn.fractional_max_pool(tf.ones([1, 9, 9, 1]), 1.5, seed=seed)[0])
    assert bool(unkeyed_draws(step.get_concrete_function())) == (seed == 0)
