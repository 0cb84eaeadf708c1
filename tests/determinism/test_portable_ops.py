"""The replacements for ops with approximate instructions, and the sizes of Eigen's blocks."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.determinism.portable import VARIABLES
from orbit_runner.determinism.portable_ops import use_portable_ops
from tests.support.processes import printed_by

_X = np.random.default_rng(1).uniform(0.1, 2.0, (4, 3, 5, 6)).astype(np.float32)
_SCALE, _OFFSET = _X[0, 0, 0], _X[1, 0, 0]


@pytest.fixture(autouse=True)
def native_again():
    yield
    use_portable_ops(False)


def _normalized(x, **arguments):
    return tf.compat.v1.nn.fused_batch_norm(x, _SCALE, _OFFSET, **arguments)


def _channels_first(x):
    x = tf.transpose(x, [0, 3, 1, 2])
    return _normalized(x, data_format="NCHW")[0]


OPS = {
    "Rsqrt": tf.math.rsqrt,
    "Reciprocal": lambda x: tf.math.reciprocal(x),  # Looked up later, because it is replaced.
    "Softmax": lambda x: tf.nn.softmax(x * 30.0),
    "FusedBatchNormV3": lambda x: _normalized(x)[0],
    "FusedBatchNormV3, mean": lambda x: _normalized(x)[1],
    "FusedBatchNormV3, variance": lambda x: _normalized(x)[2],
    "FusedBatchNormV3, inference": lambda x: _normalized(
        x, mean=_OFFSET, variance=_SCALE, is_training=False
    )[0],
}


def _graph_ops(function):
    graph = tf.function(function).get_concrete_function(tf.TensorSpec(_X.shape, tf.float32)).graph
    return {op.type for op in graph.get_operations()}


@pytest.mark.parametrize("name", OPS)
def test_replacement_computes_what_the_op_does(name):
    outputs, gradients = [], []
    for enabled in (False, True):
        use_portable_ops(enabled)
        # An op of the graph, or none: the replacement consists of others.
        assert (name.partition(",")[0] in _graph_ops(OPS[name])) is not enabled
        with tf.GradientTape() as tape:
            x = tf.constant(_X)
            tape.watch(x)
            y = OPS[name](x)
            loss = tf.reduce_sum(
                y * tf.cast(tf.range(tf.size(y)), y.dtype).numpy().reshape(y.shape)
            )
        outputs.append(y)
        gradients.append(tape.gradient(loss, x))
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-4, atol=1e-5)
    if "," not in name:
        scale = float(tf.reduce_max(tf.abs(gradients[0])))
        np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.parametrize("function", [tf.math.log, tf.math.log1p, tf.math.atan, tf.math.asinh])
@pytest.mark.parametrize("enabled", [False, True])
def test_gradients_take_no_approximate_reciprocal(function, enabled):
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    use_portable_ops(enabled)
    # The gradient of asinh divides: it shows that no other test case is equal by accident.
    takes_one = "Reciprocal" in _graph_ops(gradient)
    assert takes_one is (not enabled and function is not tf.math.asinh)


DIVISIONS = {
    "1 / x": lambda x, module: 1.0 / x,
    "x / constant": lambda x, module: x / module.reshape(_X[::-1], _X.shape),
    "x / sqrt(y)": lambda x, module: x / module.sqrt(x + 0.1),
    "1 / sqrt(x)": lambda x, module: module.ones_like(x) / module.sqrt(x),
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_graphs_divide_exactly(name):
    """TensorFlow's optimizers of graphs would replace some divisions by reciprocals."""
    use_portable_ops(True)
    quotients = tf.function(lambda x: DIVISIONS[name](x, tf))(tf.constant(_X))
    np.testing.assert_array_equal(quotients, DIVISIONS[name](_X, np))


def test_replacement_of_batch_norm_normalizes_channels_first():
    use_portable_ops(True)
    last = _normalized(tf.constant(_X))[0]
    np.testing.assert_allclose(
        tf.transpose(_channels_first(tf.constant(_X)), [0, 2, 3, 1]), last, rtol=1e-3, atol=1e-5
    )


def test_softmax_of_half_precision_keeps_its_type():
    use_portable_ops(True)
    assert tf.nn.softmax(tf.constant(_X, tf.bfloat16)).dtype == tf.bfloat16


@pytest.mark.slow
def test_sizes_of_blocks_are_set_and_checked():
    code = (
        "import ctypes, struct\n"
        "from orbit_runner.determinism import block_sizes as found\n"
        "found.fix_block_sizes()\n"
        "sizes = found.cache_sizes()\n"
        "places = [*found._find_addresses(struct.pack('=3q', 32768, *sizes[1:]))]\n"
        "found._write_size(places, 49152)\n"
        "print(len(places) > 0, found._is_fixed())\n"
        "found.cache_sizes = lambda: (49152, *sizes[1:])\n"
        "found.fix_block_sizes.cache_clear()\n"
        "found.fix_block_sizes()\n"
        "print(found._is_fixed())\n"
        "found._write_size(places, 49152)\n"
        "found._find_addresses = lambda pattern: []\n"
        "found.fix_block_sizes.cache_clear()\n"
        "try:\n"
        "    found.fix_block_sizes()\n"
        "except found.SettingError as error:\n"
        "    print(error)\n"
    )
    first, second, error, *_ = printed_by(code, **VARIABLES)
    assert (first, second) == ("True False", "True")
    assert error.startswith("runtime.numerics: got 'portable', but this processor's L1 data cache")
    assert "48 KiB" in error
