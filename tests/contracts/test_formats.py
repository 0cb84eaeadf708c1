"""What every export format promises: its declaration, its files, and the answers of a network."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.trainer import FORMAT_NAMES
from orbit_runner.registry import EXPORT_FORMATS
from orbit_runner.serving.export_directory import find_export
from orbit_runner.serving.formats.base import NetworkFormat
from orbit_runner.serving.network import describe_network

_ROOT = Path(__file__).parents[2]
_FORMATS = {entry.name: entry.load() for entry in EXPORT_FORMATS.registered()}
_OF_NETWORKS = [name for name, kind in _FORMATS.items() if isinstance(kind, NetworkFormat)]


@pytest.fixture(params=_FORMATS)
def kind(request):
    return _FORMATS[request.param]


def test_format_is_declared_under_its_name(kind):
    name = kind.name
    project = (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extra = re.search(rf"^{name} = \[(.*?)\]", project, re.MULTILINE | re.DOTALL)

    assert _FORMATS[name] is kind
    assert name in FORMAT_NAMES
    assert f"`{name}`" in (_ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    assert bool(extra) == bool(kind.packages)
    for package in kind.packages:
        assert extra
        assert package in extra[1]


def test_only_a_saved_model_is_found_in_a_run_directory(kind, tmp_path):
    place = tmp_path / "export" / ("5" if kind.name == "saved_model" else f"5-{kind.name}")
    place.mkdir(parents=True)
    for name in (kind.file, "export.json"):
        (place / name).touch()

    assert find_export(tmp_path / "export") == (place if kind.name == "saved_model" else None)


@pytest.fixture(scope="module")
def network():
    """A small network with two inputs and two outputs of different sizes."""
    tf_keras.utils.set_random_seed(3)
    left = tf_keras.Input([4], name="left")
    right = tf_keras.Input([6], name="right")
    hidden = tf_keras.layers.Dense(8, activation="relu")(tf_keras.layers.concatenate([left, right]))
    outputs = [tf_keras.layers.Dense(3, name="a")(hidden), tf_keras.layers.Dense(2, name="b")(left)]
    model = tf_keras.Model([left, right], outputs)
    features = [tf.ones([2, 4]), tf.ones([2, 6])]
    return describe_network(model, features, model(features))


def examples(count):
    """Yields the features of single examples."""
    for number in range(count):
        rng = np.random.default_rng(number)
        yield [tf.constant(rng.normal(size=[1, width]), tf.float32) for width in (4, 6)]


@pytest.mark.parametrize("name", _OF_NETWORKS)
def test_file_answers_like_the_network_and_is_the_same_twice(name, network, tmp_path):
    kind = _FORMATS[name]
    for package in kind.packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    paths = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        paths.append(tmp_path / str(number) / kind.file)
        kind.write(network, paths[-1], examples(20))
    assert paths[0].read_bytes() == paths[1].read_bytes()

    loaded = kind.load(paths[0], [*network.inputs], network.outputs)
    expected = network.numpy_function()
    for features in examples(5):
        values = [value.numpy() for value in features]
        outputs = expected(values)
        if kind.loads_keras_model:
            answers = [output.numpy() for output in loaded(features, training=False)]
        else:
            answers = loaded(values)
        largest = max(float(np.abs(output).max()) for output in outputs)
        # Files whose quality a metric decides may differ more.
        tolerance = kind.tolerance if kind.metric_tolerance is None else 0.5
        for answer, output in zip(answers, outputs, strict=True):
            assert answer.shape == output.shape
            np.testing.assert_allclose(answer, output, rtol=0, atol=tolerance * largest)
