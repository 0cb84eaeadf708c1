"""Runs of the task `keras`: exact after a stop, on replicas, with weights; and wrong models."""

import json

import pytest

from orbit_runner.tasks.keras.task import KerasTask
from tests.support.keras_models import NO_VALIDATION, OPTIMIZERS, keras_config
from tests.support.problems import raises
from tests.support.toy import run, run_and_resume

_HERE, _HERE_3 = "tests.support.keras_models", "tests.support.keras_3_models"
_MODELS = {
    "subclass and metrics": {
        "task__model": f"{_HERE}:Subclassed",
        "task__metrics": "[accuracy, SparseTopKCategoricalAccuracy, "
        "{class_name: MeanIoU, config: {num_classes: 3, sparse_y_pred: false}}]",
    },
    **OPTIMIZERS,
    "legacy optimizer": {"task__optimizer": "{class_name: legacy.Adam, config: {decay: 0.1}}"},
    "pipeline of weighted examples": {
        "task__train_data__function": f"{_HERE}:weighted",
        "task__train_data__on_device": "false",
    },
}


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize("name", _MODELS)
def test_stopped_and_resumed_run_has_the_weights_of_an_uninterrupted_one(tmp_path, strategy, name):
    config = keras_config(**_MODELS[name])
    run_and_resume(config, tmp_path, strategy)
    records = [
        json.loads((tmp_path / folder / "checkpoints" / "ckpt-20.json").read_text())
        for folder in ("whole", "parts")
    ]
    assert records[0]["state"] == records[1]["state"]
    assert {"keras", "tf_keras"} & {*records[0]["numerics"]} == {"tf_keras"}


@pytest.mark.parametrize(
    ("changes", "code", "path"),
    [
        ({"model__arguments__width": 2}, "model-mismatch", "task.loss"),
        ({"model": f"{_HERE}:wrong_input"}, "model-mismatch", "task.model"),
        ({"model": f"{_HERE_3}:wrong_input"}, "model-mismatch", "task.model"),
        ({"model": f"{_HERE}:not_a_model"}, "wrong-type", "task.model.build"),
        ({"model": f"{_HERE}:OwnLoop"}, "not-supported", "task.model"),
        ({"model": f"{_HERE}:wrong_logs"}, "wrong-type", "task.model"),
        ({"metrics": "[mae, {class_name: AUC, config: {curv: PR}}]"}, "bad-arguments",
         "task.metrics[1]"),
        ({"loss": "meen"}, "unknown-name", "task.loss"),
        ({"optimizer": "adamm"}, "unknown-name", "task.optimizer"),
        ({"metrics": "[mae, mae]"}, "model-mismatch", "task.metrics"),
        ({"metrics": f"['{_HERE}:EachClass']"}, "wrong-type", "task.metrics"),
    ],
)  # fmt: skip
def test_model_that_does_not_fit_is_an_error_before_training(changes, code, path):
    config = keras_config(**{f"task__{name}": value for name, value in changes.items()})
    with raises(code, path):
        KerasTask(config.task).build_model()


def test_missing_validation_data_is_an_error_before_training(tmp_path):
    with raises("not-set", "task.validation_data.source"):
        run(keras_config(**NO_VALIDATION), tmp_path)
    assert not list(tmp_path.glob("checkpoints/*"))
