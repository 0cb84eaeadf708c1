"""The tensors of a step of the toy, whose every number can be worked out by hand."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.step.tensor_comparison import PLACES
from orbit_runner.step.tensors import record_step
from tests.support.toy import descent, make_strategy, session_of, toy_config, toy_task, weights


def _started(folder, strategy, **changes):
    run = session_of(toy_config(**changes), folder, strategy)
    run.restore_or_initialize()
    return run


def _values(tensors):
    return {(tensor.place, tensor.name): tensor.value for tensor in tensors}


@pytest.mark.slow
def test_step_has_the_batch_the_outputs_the_gradients_and_the_update(tmp_path):
    strategy = make_strategy("one_device")
    run = _started(tmp_path, strategy)
    with strategy.scope():
        run.trainer.train(tf.constant(1))
        tensors = record_step(run)

    values = _values(tensors)
    (before, _, _), (kernel, loss, _), (after, _, _) = descent(run.config, 2)
    rows = (8 + np.arange(8)) % 20
    features, labels = (item[rows] for item in toy_task(run.config).arrays())
    assert not np.allclose(before, kernel)
    np.testing.assert_array_equal(values["batch", "features"], features)
    np.testing.assert_array_equal(values["batch", "labels"], labels)
    np.testing.assert_allclose(values["weights", "w/kernel"], kernel, rtol=1e-5)
    np.testing.assert_allclose(values["output", "w"], features @ kernel, rtol=1e-5)
    np.testing.assert_allclose(values["loss", ""], loss, rtol=1e-5)
    np.testing.assert_allclose(
        values["gradient", "w/kernel"], (kernel - after) / 0.1, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(values["update", "w/kernel"], after, rtol=1e-5)
    places = [PLACES.index(item.place) for item in tensors]
    assert places == sorted(places)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one_device", "mirrored2"])
def test_recorded_step_gives_the_same_bits_as_the_usual_one(name, tmp_path):
    strategy = make_strategy(name)
    plain, recorded = (
        _started(tmp_path / place, strategy, task__batch_norm=True)
        for place in ("plain", "recorded")
    )
    with strategy.scope():
        plain.trainer.train(tf.constant(1))
        values = _values(record_step(recorded))
    for one, other in zip(weights(plain.model), weights(recorded.model), strict=True):
        np.testing.assert_array_equal(one, other)
    replicas = [key[1] for key in values if key[0] == "batch"]
    assert replicas == (
        ["features", "labels"]
        if name == "one_device"
        else [f"{part}, replica {k}" for part in ("features", "labels") for k in (0, 1)]
    )
