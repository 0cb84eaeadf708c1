"""An evaluation counts each example once, whatever the user wrote, and has the numbers of Keras."""

import numpy as np
import pytest
import tf_keras

from tests.support import keras_models
from tests.support.configs import in_both_sections
from tests.support.evaluations import evaluate
from tests.support.keras_models import keras_config

_HERE = "tests.support.keras_models"
_GAP = f"{{class_name: '{_HERE}:Gap', config: {{name: gap}}}}"
_METRICS = f"[accuracy, mae, AUC, R2Score, '{_HERE}:Rows', {_GAP}]"
# In each of them, the last batch has 5 or 1 of the 37 examples.
_PLACES = {
    "replicas without examples": ("mirrored3", 12, {}),
    "two pipelines": ("mirrored2", 12, {"task__validation_data__on_device": "false"}),
    "eager": ("one_device", 8, {"runtime__run_eagerly": "true"}),
    "logical on two": ("mirrored2", 8, {"runtime__logical_replicas": 4}),
}


def _config(batch, **changes):
    both = in_both_sections(function=f"{_HERE}:numbers", arguments="{}", global_batch_size=batch)
    settings = {
        "task__model": f"{_HERE}:regularized",
        "task__loss": "mse",
        "task__metrics": _METRICS,
    }
    return keras_config(**(settings | both | changes))


def _expected(batch, loss, data, **arguments):
    model = keras_models.regularized(**arguments)
    metrics = tf_keras.metrics
    model.compile(
        loss=loss,
        metrics=[
            *("accuracy", "mae", metrics.AUC(name="auc"), metrics.R2Score(name="r2_score")),
            *(keras_models.Rows(), keras_models.Gap(name="gap")),
        ],
    )
    results = model.evaluate(*data[:2], batch, 0, *data[2:], return_dict=True)
    return {"validation_loss" if name == "loss" else name: results[name] for name in results}


@pytest.mark.slow
@pytest.mark.parametrize("place", _PLACES)
def test_evaluation_is_that_of_keras(place):
    strategy, batch, changes = _PLACES[place]
    _, results = evaluate(_config(batch, task__model__arguments__activity=0.1, **changes), strategy)

    assert results.pop("validation_examples") == 37
    expected = _expected(batch, "mse", keras_models.numbers(), activity=0.1)
    assert expected["rows"] == 37
    _assert_close(results, expected)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["two pipelines", "logical on two"])
def test_weights_of_examples_are_not_taken_for_padding(place):
    strategy, batch, changes = _PLACES[place]
    both = in_both_sections(function=f"{_HERE}:weighted_numbers")
    _, results = evaluate(_config(batch, **changes, **both), strategy)

    assert results.pop("validation_examples") == 37
    _assert_close(results, _expected(batch, "mse", keras_models.weighted_numbers()))


@pytest.mark.slow
def test_loss_with_one_value_for_a_batch_is_that_of_keras():
    _, results = evaluate(_config(8, task__loss=f"{_HERE}:mean_squared"))

    del results["validation_examples"]
    _assert_close(results, _expected(8, keras_models.mean_squared, keras_models.numbers()))


@pytest.mark.parametrize("strategy", ["one_device", "logical"])
def test_state_that_is_not_a_sum_is_that_of_keras(strategy):
    changes = {"runtime__logical_replicas": 4} if strategy == "logical" else {}
    changes["task__metrics"] = f"['{_HERE}:Largest']"
    model, results = evaluate(_config(8, **changes))

    outputs = model(keras_models.numbers()[0], training=False).numpy()
    np.testing.assert_allclose(results["largest"], np.abs(outputs - 0.5).max(), rtol=1e-6)


def test_fewer_validation_steps_leave_out_the_last_examples():
    _, results = evaluate(_config(8, trainer__validation_steps=2))

    assert results["validation_examples"] == 16
    assert results["rows"] == 16


def _assert_close(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=2e-6, atol=1e-7, err_msg=name)
