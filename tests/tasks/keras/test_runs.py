"""Runs of the task `keras`: exact after a stop, on replicas, with weights; and wrong models."""

import json

import pytest
import tf_keras

from orbit_runner.errors import SettingError
from tests.support.keras_models import NO_VALIDATION, OPTIMIZERS, keras_config
from tests.support.toy import run, run_and_resume

_HERE = "tests.support.keras_models"
_MODELS = {
    "function": {},
    "subclass": {"task__model": f"{_HERE}:Subclassed"},
    "metrics": {
        "task__metrics": "[accuracy, SparseTopKCategoricalAccuracy, "
        "{class_name: MeanIoU, config: {num_classes: 3, sparse_y_pred: false}}]"
    },
    **OPTIMIZERS,
    "legacy optimizer": {"task__optimizer": "{class_name: legacy.Adam, config: {decay: 0.1}}"},
    "weights": {"task__train_data__function": f"{_HERE}:weighted"},
    "pipeline": {"task__train_data__on_device": "false"},
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


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"task__model__arguments__width": 2}, "task.loss",
         "got labels int64 [batch] from 0 to 2, but the model has 2 outputs"),
        ({"task__model": f"{_HERE}:wrong_input"}, "task.model",
         "expected axis -1 of input shape to have value 5"),
        ({"task__model": "tests.support.keras_3_models:wrong_input"}, "task.model",
         "does not accept the inputs"),
        ({"task__model": f"{_HERE}:not_a_model"}, "task.model.build",
         "returns builtins.int, expected a Keras model"),
        ({"task__model": f"{_HERE}:OwnLoop"}, "task.model",
         "OwnLoop defines make_train_function, which a run does not call"),
        ({"task__model": f"{_HERE}:wrong_logs"}, "task.model",
         "WrongLogs.train_step returns a list, expected a dict"),
        ({"task__metrics": "[mae, {class_name: AUC, config: {curv: PR}}]"}, "task.metrics[1]",
         "'curv'"),
        ({"task__loss": "meen"}, "task.loss", "unknown loss 'meen'"),
        ({"task__optimizer": "adamm"}, "task.optimizer", "did you mean 'Adam'?"),
        ({"task__metrics": "[mae, mae]"}, "task.metrics", "mae"),
        ({"task__metrics": f"['{_HERE}:EachClass']"}, "task.metrics", "set average: macro"),
        (NO_VALIDATION, "task.validation_data.source", "train without evaluations: --mode=train"),
    ],
)  # fmt: skip
def test_model_that_does_not_fit_is_an_error_before_training(tmp_path, changes, path, message):
    with pytest.raises(SettingError) as caught:
        run(keras_config(**changes), tmp_path)

    assert caught.value.path == path
    assert message in str(caught.value)
    assert not list(tmp_path.glob("checkpoints/*"))


@pytest.mark.slow
def test_model_trains_without_validation_data(tmp_path):
    config = keras_config(**NO_VALIDATION)
    model, logs = run(config, tmp_path, mode="train")

    assert isinstance(model, tf_keras.Model)
    assert logs == {}
