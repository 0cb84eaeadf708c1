"""Runs of the task `keras`: exact after a stop, on replicas, with weights; and wrong models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tf_keras

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.errors import SettingError
from tests.support.keras_models import keras_config
from tests.support.toy import run, run_and_resume

_HERE = "tests.support.keras_models"
_MODELS = {
    "function": {},
    "subclass": {"task__model": f"{_HERE}:Subclassed"},
    "layers": {
        "task__model": "{build: '', layers: [{Dense: {units: 8}}, {Dropout: {rate: 0.5}}, "
        "{Dense: {units: 3}}]}"
    },
    "metrics": {
        "task__metrics": "[accuracy, SparseTopKCategoricalAccuracy, "
        "{class_name: MeanIoU, config: {num_classes: 3, sparse_y_pred: false}}]"
    },
    "optimizer": {
        "task__optimizer": "{class_name: AdamW, config: {learning_rate: {class_name: CosineDecay, "
        "config: {initial_learning_rate: 0.01, decay_steps: 30}}}}"
    },
    "average": {
        "task__optimizer": "{class_name: SGD, config: {momentum: 0.9, use_ema: true, "
        "ema_momentum: 0.9, ema_overwrite_frequency: 8, clipnorm: 0.5}}"
    },
    "legacy optimizer": {"task__optimizer": "{class_name: legacy.Adam, config: {decay: 0.1}}"},
    "optimizer and fine-tuning": {
        "task__optimizer": "adam",
        "trainer__fine_tuning": "{freeze: [dense], unfreeze: [{layers: [dense], step: 9}]}",
    },
    "optimizer and average": {
        "task__optimizer": "adam",
        "trainer__optimizer_config__ema": "{average_decay: 0.9}",
    },
    "optimizer and accumulation": {
        "task__optimizer": "adam",
        "trainer__gradient_accumulation_steps": 2,
    },
    "optimizer and logical replicas": {"task__optimizer": "adam", "runtime__logical_replicas": 2},
    "optimizer in float16": {
        "task__optimizer": "adam",
        "runtime__mixed_precision_dtype": "float16",
    },
    "weights": {"task__train_data__function": f"{_HERE}:weighted"},
    "pipeline": {"task__train_data__on_device": "false"},
}


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize("name", _MODELS)
def test_stopped_and_resumed_run_has_the_weights_of_an_uninterrupted_one(
    tmp_path: Path, strategy: str, name: str
) -> None:
    config = keras_config(**_MODELS[name])
    run_and_resume(config, tmp_path, strategy)
    records = [
        json.loads((tmp_path / folder / "checkpoints" / "ckpt-20.json").read_text())
        for folder in ("whole", "parts")
    ]
    assert records[0]["state"] == records[1]["state"]


@pytest.mark.slow
def test_run_of_a_named_function_is_reproducible_and_the_seed_decides(tmp_path: Path) -> None:
    found = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        model, _ = run(keras_config(runtime__seed=seed), tmp_path / name)
        found[name] = weights_fingerprint(model)

    assert found["a"] == found["b"] != found["c"]


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"task__model__arguments__width": 2}, "task.loss",
         "got labels int64 [batch] from 0 to 2, but the model has 2 outputs"),
        ({"task__model": f"{_HERE}:wrong_input"}, "task.model",
         "expected axis -1 of input shape to have value 5"),
        ({"task__model": f"{_HERE}:not_a_model"}, "task.model.build",
         "returns builtins.int, expected a Keras model"),
        ({"task__model": f"{_HERE}:OwnLoop"}, "task.model",
         "OwnLoop defines make_train_function, which a run does not call"),
        ({"task__model": f"{_HERE}:wrong_logs"}, "task.model",
         "WrongLogs.train_step returns a list, expected a dict"),
        ({"task__loss": "categorical_crossentropy"}, "task.loss",
         "for class numbers, use sparse_categorical"),
        ({"task__loss": "mean_squared_eror"}, "task.loss",
         "unknown loss 'mean_squared_eror'; did you mean 'mean_squared_error'?"),
        ({"task__loss": "{class_name: Huber, config: {delt: 2}}"}, "task.loss", "'delt'"),
        ({"task__metrics": "[mae, acuracy]"}, "task.metrics[1]",
         "unknown metric 'acuracy'; did you mean 'accuracy'?"),
        ({"task__metrics": "[mae, {class_name: AUC, config: {curv: PR}}]"}, "task.metrics[1]",
         "'curv'"),
        ({"task__metrics": "[{average: macro}]"}, "task.metrics[0].average",
         "unknown metric 'macro'"),
        ({"task__metrics": "[mae, mae]"}, "task.metrics", "mae"),
        ({"task__metrics": f"['{_HERE}:EachClass']"}, "task.metrics", "set average: macro"),
        ({"task__optimizer": "{class_name: SGD, config: {rate: 1}}"}, "task.optimizer",
         "SGD: rate is not a valid argument"),
        ({"task__model": "{build: '', layers: [Flaten]}"}, "task.model.layers[0]",
         "unknown layer 'Flaten'; did you mean 'Flatten'?"),
        ({"task__model": "{build: '', layers: [{Dense: {unit: 3}}]}"}, "task.model.layers[0]",
         "Dense: "),
        ({"task__model": "{build: '', layers: [{Dense: {units: 3, bias: 1}}]}"},
         "task.model.layers[0]", "Dense: "),
        ({"task__validation_data__source": "''", "task__validation_data__function": "''",
          "task__validation_data__arguments": "{}"}, "task.validation_data.source",
         "train without evaluations: --mode=train"),
    ],
)  # fmt: skip
def test_model_that_does_not_fit_is_an_error_before_training(
    tmp_path: Path, changes: dict[str, Any], path: str, message: str
) -> None:
    with pytest.raises(SettingError) as caught:
        run(keras_config(**changes), tmp_path)

    assert caught.value.path == path
    assert message in str(caught.value)
    assert not list(tmp_path.glob("checkpoints/*"))


def unreadable() -> Any:
    """Fails."""
    raise AssertionError("the data were read")


@pytest.mark.parametrize(
    ("setting", "value", "path"),
    [
        ("loss", "meen", "task.loss"),
        ("metrics", "[mae, {class_name: Auk}]", "task.metrics[1]"),
        ("weighted_metrics", "[Auk]", "task.weighted_metrics[0]"),
        ("optimizer", "adamm", "task.optimizer"),
    ],
)
def test_unknown_name_is_an_error_before_data_are_read(
    tmp_path: Path, setting: str, value: str, path: str
) -> None:
    config = keras_config(
        **{f"task__{setting}": value}, task__train_data__function=f"{__name__}:unreadable"
    )
    with pytest.raises(SettingError) as caught:
        run(config, tmp_path)

    assert (caught.value.path, caught.value.code) == (path, "unknown-name")


@pytest.mark.slow
def test_model_trains_without_validation_data(tmp_path: Path) -> None:
    config = keras_config(
        task__validation_data__source="''",
        task__validation_data__function="''",
        task__validation_data__arguments="{}",
    )
    model, logs = run(config, tmp_path, mode="train")

    assert isinstance(model, tf_keras.Model)
    assert logs == {}
