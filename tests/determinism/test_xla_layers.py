"""Keras's layers under XLA with deterministic ops: each compiles, or is listed."""

import inspect

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.determinism.gradient_patches import WITH_XLA, replaced_gradients_scope
from orbit_runner.determinism.scopes import keyed_draws_scope

_L = tf_keras.layers
_VECTOR, _SEQUENCE, _IMAGE, _VOLUME = [6], [8, 4], [8, 8, 3], [4, 4, 4, 2]


def _of_two(name):
    """Returns how a layer that merges several inputs is built."""

    def build():
        layer = getattr(_L, name)()
        return lambda x: layer([x, 2.0 * x])

    return build


# Layers without arguments, and those that merge two inputs, by the shape of an example.
_PLAIN = {
    (
        "AveragePooling3D GlobalAveragePooling3D GlobalMaxPooling3D MaxPooling3D "
        "UpSampling3D ZeroPadding3D"
    ): _VOLUME,
    (
        "BatchNormalization Flatten GlobalAveragePooling2D GlobalMaxPooling2D RandomFlip "
        "UpSampling2D ZeroPadding2D"
    ): _IMAGE,
    "ELU Identity LeakyReLU PReLU ReLU Softmax ThresholdedReLU UnitNormalization": _VECTOR,
    (
        "GlobalAveragePooling1D GlobalMaxPooling1D LayerNormalization UpSampling1D ZeroPadding1D"
    ): _SEQUENCE,
}
_MERGING = {
    "Add Average Concatenate Maximum Minimum Multiply Subtract": _VECTOR,
    "AdditiveAttention Attention": _SEQUENCE,
}
# How each layer is built, and the shape of an example.
LAYERS = {
    **{
        name: (getattr(_L, name), shape)
        for names, shape in _PLAIN.items()
        for name in names.split()
    },
    **{name: (_of_two(name), shape) for names, shape in _MERGING.items() for name in names.split()},
    "Activation": (lambda: _L.Activation("gelu"), _VECTOR),
    "ActivityRegularization": (lambda: _L.ActivityRegularization(0.1, 0.1), _VECTOR),
    "AlphaDropout": (lambda: _L.AlphaDropout(0.5), _VECTOR),
    "AveragePooling1D": (lambda: _L.AveragePooling1D(3, 2, "same"), _SEQUENCE),
    "AveragePooling2D": (lambda: _L.AveragePooling2D(3, 2, "same"), _IMAGE),
    "Bidirectional": (lambda: _L.Bidirectional(_L.GRU(3)), _SEQUENCE),
    "CenterCrop": (lambda: _L.CenterCrop(4, 4), _IMAGE),
    "Conv1D": (lambda: _L.Conv1D(3, 3), _SEQUENCE),
    "Conv1DTranspose": (lambda: _L.Conv1DTranspose(3, 3), _SEQUENCE),
    "Conv2D": (lambda: _L.Conv2D(3, 3), _IMAGE),
    "Conv2DTranspose": (lambda: _L.Conv2DTranspose(3, 3, 2), _IMAGE),
    "Conv3D": (lambda: _L.Conv3D(3, 2), _VOLUME),
    "Conv3DTranspose": (lambda: _L.Conv3DTranspose(3, 2), _VOLUME),
    "ConvLSTM1D": (lambda: _L.ConvLSTM1D(2, 2), [3, 8, 2]),
    "ConvLSTM2D": (lambda: _L.ConvLSTM2D(2, 2), [3, 6, 6, 2]),
    "ConvLSTM3D": (lambda: _L.ConvLSTM3D(2, 2), [2, 4, 4, 4, 1]),
    "Cropping1D": (lambda: _L.Cropping1D(1), _SEQUENCE),
    "Cropping2D": (lambda: _L.Cropping2D(1), _IMAGE),
    "Cropping3D": (lambda: _L.Cropping3D(1), _VOLUME),
    "Dense": (lambda: _L.Dense(3), _VECTOR),
    "DepthwiseConv1D": (lambda: _L.DepthwiseConv1D(3), _SEQUENCE),
    "DepthwiseConv2D": (lambda: _L.DepthwiseConv2D(3), _IMAGE),
    "Dot": (lambda: lambda x: _L.Dot(1)([x, 2.0 * x]), _VECTOR),
    "Dropout": (lambda: _L.Dropout(0.5), _VECTOR),
    "EinsumDense": (lambda: _L.EinsumDense("bi,io->bo", 3), _VECTOR),
    "Embedding": (lambda: _ints(_L.Embedding(9, 3)), _VECTOR),
    "GRU": (lambda: _L.GRU(3), _SEQUENCE),
    "GaussianDropout": (lambda: _L.GaussianDropout(0.5), _VECTOR),
    "GaussianNoise": (lambda: _L.GaussianNoise(0.5), _VECTOR),
    "GroupNormalization": (lambda: _L.GroupNormalization(3), _IMAGE),
    "LSTM": (lambda: _L.LSTM(3), _SEQUENCE),
    "Lambda": (lambda: _L.Lambda(tf.math.cumsum), _VECTOR),
    "LocallyConnected1D": (lambda: _L.LocallyConnected1D(2, 3), _SEQUENCE),
    "LocallyConnected2D": (lambda: _L.LocallyConnected2D(2, 3), _IMAGE),
    "Masking": (lambda: tf_keras.Sequential([_L.Masking(), _L.LSTM(3)]), _SEQUENCE),
    "MaxPooling1D": (lambda: _L.MaxPooling1D(3, 2, "same"), _SEQUENCE),
    "MaxPooling2D": (lambda: _L.MaxPooling2D(3, 2, "same"), _IMAGE),
    "MultiHeadAttention": (lambda: _self_attention(_L.MultiHeadAttention(2, 3)), _SEQUENCE),
    "Normalization": (lambda: _L.Normalization(mean=1.0, variance=2.0), _VECTOR),
    "Permute": (lambda: _L.Permute([2, 1]), _SEQUENCE),
    "RNN": (lambda: _L.RNN(_L.LSTMCell(3)), _SEQUENCE),
    "RandomBrightness": (lambda: _L.RandomBrightness(0.5, [-9, 9]), _IMAGE),
    "RandomContrast": (lambda: _L.RandomContrast(0.5), _IMAGE),
    "RandomCrop": (lambda: _L.RandomCrop(4, 4), _IMAGE),
    "RandomHeight": (lambda: _L.RandomHeight(0.5), _IMAGE),
    "RandomRotation": (lambda: _L.RandomRotation(0.5), _IMAGE),
    "RandomTranslation": (lambda: _L.RandomTranslation(0.5, 0.5), _IMAGE),
    "RandomWidth": (lambda: _L.RandomWidth(0.5), _IMAGE),
    "RandomZoom": (lambda: _L.RandomZoom(0.5), _IMAGE),
    "RepeatVector": (lambda: _L.RepeatVector(2), _VECTOR),
    "Rescaling": (lambda: _L.Rescaling(0.5), _VECTOR),
    "Reshape": (lambda: _L.Reshape([3, 2]), _VECTOR),
    "Resizing": (lambda: _L.Resizing(5, 5), _IMAGE),
    "SeparableConv1D": (lambda: _L.SeparableConv1D(3, 3), _SEQUENCE),
    "SeparableConv2D": (lambda: _L.SeparableConv2D(3, 3), _IMAGE),
    "SimpleRNN": (lambda: _L.SimpleRNN(3), _SEQUENCE),
    "SpatialDropout1D": (lambda: _L.SpatialDropout1D(0.5), _SEQUENCE),
    "SpatialDropout2D": (lambda: _L.SpatialDropout2D(0.5), _IMAGE),
    "SpatialDropout3D": (lambda: _L.SpatialDropout3D(0.5), _VOLUME),
    "StackedRNNCells": (lambda: _L.RNN(_L.StackedRNNCells([_L.GRUCell(3)] * 1)), _SEQUENCE),
    "TimeDistributed": (lambda: _L.TimeDistributed(_L.Dense(3)), _SEQUENCE),
}
# Variants with other ops.
VARIANTS = {
    "UpSampling2D bilinear": (lambda: _L.UpSampling2D(interpolation="bilinear"), _IMAGE),
    "UpSampling2D bicubic": (lambda: _L.UpSampling2D(interpolation="bicubic"), _IMAGE),
    "Resizing nearest": (lambda: _L.Resizing(5, 5, "nearest"), _IMAGE),
    "BatchNormalization frozen": (lambda: _L.BatchNormalization(trainable=False), _IMAGE),
    "LSTM unrolled": (lambda: _L.LSTM(3, unroll=True), _SEQUENCE),
    "Conv2D dilated": (lambda: _L.Conv2D(3, 3, dilation_rate=2), _IMAGE),
    "Conv2D grouped": (lambda: _L.Conv2D(3, 3, groups=3), _IMAGE),
}
# Layers for texts and integers, which have no gradients; base classes; and a layer that this
# version of tf_keras cannot build.
NOT_TRIED = {
    "AbstractRNNCell", "CategoryEncoding", "DenseFeatures", "Discretization", "GRUCell",
    "HashedCrossing", "Hashing", "InputLayer", "IntegerLookup", "LSTMCell", "Layer",
    "SimpleRNNCell", "SpectralNormalization", "StringLookup", "TextVectorization", "Wrapper",
}  # fmt: skip
# What XLA does not compile, and the op that it names.
REFUSED = {
    "RandomRotation": "ImageProjectiveTransformV3",
    "RandomTranslation": "ImageProjectiveTransformV3",
    "RandomZoom": "ImageProjectiveTransformV3",
    "UpSampling2D bicubic": "ResizeBicubic",
}


def _ints(embedding):
    return lambda x: embedding(tf.cast(tf.abs(x) * 3, tf.int32)) * tf.reduce_sum(x)


def _self_attention(attention):
    return lambda x, **arguments: attention(x, x, **arguments)


@pytest.fixture(autouse=True)
def deterministic_ops():
    tf.config.experimental.enable_op_determinism()


def test_every_layer_of_keras_is_in_the_table():
    classes = {
        value.__name__
        for value in vars(_L).values()
        if inspect.isclass(value) and issubclass(value, _L.Layer)
    }
    assert classes - NOT_TRIED == LAYERS.keys()


def _check(name):
    """Compiles a layer with the gradients of its weights and inputs; asserts equal bits twice."""
    build, shape = {**LAYERS, **VARIANTS}[name]
    tf_keras.utils.set_random_seed(1)
    layer = build()
    x = tf.constant(np.random.default_rng(1).normal(size=[4, *shape]), tf.float32)
    takes_training = isinstance(layer, _L.Layer) and layer._expects_training_arg
    arguments = {"training": True} if takes_training else {}
    layer(x, **arguments)
    weights = getattr(layer, "trainable_variables", [])
    # Some augmentations have no gradient. They need none, because they come first in a model.
    watched = [] if name.startswith("Random") else [x]

    def compute(x):
        with replaced_gradients_scope(WITH_XLA), keyed_draws_scope(1, 2, 0):
            with tf.GradientTape() as tape:
                tape.watch([x] if watched else [])
                outputs = layer(x, **arguments)
                loss = tf.reduce_sum(outputs**3)
            gradients = tape.gradient(loss, [*weights, *([x] if watched else [])])
            return outputs, [tf.convert_to_tensor(g) for g in gradients if g is not None]

    compiled = tf.function(compute, jit_compile=True)
    for one, other in zip(*(tf.nest.flatten(compiled(x)) for _ in range(2)), strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()


# Layers that only calculate with single numbers, or move them.
_SIMPLE = {
    "Activation", "ActivityRegularization", "Add", "Average", "CenterCrop", "Concatenate",
    "Cropping1D", "Cropping2D", "Cropping3D", "ELU", "Flatten", "Identity", "LeakyReLU", "Maximum",
    "Minimum", "Multiply", "Normalization", "PReLU", "Permute", "ReLU", "RepeatVector", "Rescaling",
    "Reshape", "Subtract", "ThresholdedReLU", "ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D",
}  # fmt: skip
_NAMES = [
    pytest.param(name, marks=pytest.mark.wide if name in _SIMPLE else ())
    for name in (*LAYERS, *VARIANTS)
]


@pytest.mark.slow
@pytest.mark.parametrize("name", _NAMES)
def test_layer_compiles_with_its_gradient_or_is_listed(name):
    if name in REFUSED:
        with pytest.raises(tf.errors.InvalidArgumentError, match=REFUSED[name]):
            _check(name)
    else:
        _check(name)
