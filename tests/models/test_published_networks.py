"""Sizes, initial weights and settings of the networks that others have published."""

import numpy as np
import pytest
from official.vision.modeling.backbones.efficientnet import SCALING_MAP
from official.vision.modeling.backbones.resnet import RESNET_SPECS
from official.vision.modeling.backbones.vit import VIT_SPECS

from orbit_runner.models.configs import CnnConfig, MlpConfig
from orbit_runner.models.layers import ImageInput
from orbit_runner.models.simple import cnn, mlp
from orbit_runner.registry import IMAGE_MODELS
from tests.support.keras_models import total_size


def _build(name, size=32, **options):
    entry = IMAGE_MODELS.get(name)
    config = entry.load_config()(name=name, **options)
    return entry.load()(config, ImageInput((size, size, 3), 1000))


# torchvision's and timm's models, which have each convolution, scale and shift. With basic blocks,
# Model Garden's ResNets have one more projection.
_PROJECTION = 64 * 64 + 2 * 64
_COUNTS = [
    ("resnet", {"depth": 18}, 11_689_512 + _PROJECTION),
    ("resnet", {"depth": 50}, 25_557_032),
    ("efficientnet", {"model_id": "b0"}, 5_288_548),
    ("efficientnet", {"model_id": "b3"}, 12_233_232),
    ("vit", {"model_name": "vit-ti16"}, 5_717_416),
    pytest.param("vit", {"model_name": "vit-b32"}, 88_224_232, marks=pytest.mark.wide),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "count"), _COUNTS)
def test_networks_have_the_published_parameter_counts(name, options, count):
    model = _build(name, 224 if name == "vit" else 32, **options)
    assert total_size(model.trainable_variables) == count


def test_model_garden_has_all_sizes():
    for name, setting, specs in (
        ("resnet", "depth", RESNET_SPECS),
        ("vit", "model_name", VIT_SPECS),
        ("efficientnet", "model_id", SCALING_MAP),
    ):
        field = IMAGE_MODELS.get(name).load_config().__dataclass_fields__[setting]
        assert {*field.metadata["allowed"]} <= {*specs}


def test_network_for_mnist_has_the_published_parameter_count():
    model = cnn(CnnConfig(), ImageInput((28, 28, 1), 10))
    assert total_size(model.trainable_variables) == 3_274_634


def _layers(model, attribute):
    return [layer for layer in model._flatten_layers() if hasattr(layer, attribute)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        ("resnet", {"depth": 18}, 21),
        # One block does not widen its input first, and has no batch norm for that.
        ("efficientnet", {"se_ratio": 0.5}, 3 * 16 - 1 + 2),
    ],
)
def test_settings_reach_the_layers(name, options, count):
    settings = {"batch_norm_momentum": 0.8, "batch_norm_epsilon": 1e-4, "use_sync_bn": True}
    model = _build(name, dropout_rate=0.25, **settings, **options)
    norms = [norm for norm in _layers(model, "synchronized") if norm.built]
    assert len(norms) == count
    assert {(x.momentum, x.epsilon, x.synchronized) for x in norms} == {(0.8, 1e-4, True)}
    assert model.get_layer("dropout").rate == 0.25
    squeezes = [block._squeeze_excitation for block in _layers(model, "_squeeze_excitation")]
    filters = [squeeze._se_reduce.filters for squeeze in squeezes[1:2] if squeeze is not None]
    assert filters == ([8] if name == "efficientnet" else [])


@pytest.mark.slow
def test_stochastic_depth_grows_with_the_depth_of_a_block():
    """Where the shape changes there is no shortcut, and Model Garden's block drops nothing."""
    blocks = _layers(_build("efficientnet", stochastic_depth_drop_rate=0.32), "_squeeze_excitation")
    rates = [block._stochastic_depth._drop_rate for block in blocks]
    np.testing.assert_allclose(rates, 0.02 * np.arange(16))
    rates = {"dropout_rate": 0.1, "attention_dropout_rate": 0.2, "init_stochastic_depth_rate": 0.24}
    blocks = _layers(_build("vit", model_name="vit-ti16", **rates), "_attention_layer")
    assert {block._output_dropout.rate for block in blocks} == {0.1}
    assert {block._attention_layer._dropout for block in blocks} == {0.2}
    depths = [block._stochastic_depth._drop_rate for block in blocks]
    np.testing.assert_allclose(depths, np.arange(1, 13) * 0.02)


@pytest.mark.slow
def test_kernels_of_efficientnet_start_as_in_the_code_of_its_authors():
    model = _build("efficientnet")
    block = _layers(model, "_squeeze_excitation")[-1]
    assert np.std(block._conv2.kernel) == pytest.approx((2 / 320) ** 0.5, rel=0.02)
    assert np.std(block._conv1.depthwise_kernel) == pytest.approx((2 / 9) ** 0.5, rel=0.02)
    kernel = model.get_layer("logits").kernel.numpy()
    assert np.max(np.abs(kernel)) == pytest.approx(1000**-0.5, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    # Keras does not compensate: a normal distribution truncated at two deviations is narrower.
    ("original", "deviation"), [(True, (2 / (192 + 768)) ** 0.5), (False, 0.02 * 0.8796)]
)  # fmt: skip
def test_kernels_of_a_vit_start_as_in_the_paper_or_as_in_deit(original, deviation):
    model = _build("vit", model_name="vit-ti16", original_init=original, pooler="gap")
    kernel = _layers(model, "_attention_layer")[0]._intermediate_dense.kernel
    assert np.std(kernel) == pytest.approx(deviation, rel=0.02)
    assert not np.any(model(np.full((1, 32, 32, 3), 9, "uint8")))
    # Without the class token.
    assert {v.shape[1] for v in model.variables if "pos_embedding" in v.name} == {4}


def test_mlp_without_hidden_layers_is_linear():
    model = mlp(MlpConfig(hidden_units=()), ImageInput((4,), 3, dtype="float32"))
    x = np.random.default_rng(1).normal(size=(5, 4)).astype("float32")
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(model(x), x @ kernel + bias, rtol=1e-5, atol=1e-6)
