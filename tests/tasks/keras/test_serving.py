"""Export and predictions of the task `keras`, in memory and from a SavedModel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.errors import RunnerError
from orbit_runner.tasks.keras.task import KerasTask
from tests.support import keras_models
from tests.support.keras_models import keras_config

_HERE = "tests.support.keras_models"
_ADDER = {
    "task__model": f"{_HERE}:adder",
    "task__train_data__function": f"{_HERE}:two_inputs",
    "task__validation_data__function": f"{_HERE}:two_inputs",
    "task__validation_data__arguments": "{}",
    "task__loss": "mse",
}


def _signatures(task: KerasTask, model: Any, folder: Path, where: str) -> Any:
    serving = task.serving(model)
    if where == "memory":
        return serving.signatures
    module = tf.Module()
    module.model = model
    tf.saved_model.save(module, str(folder), signatures=dict(serving.signatures))
    return tf.saved_model.load(str(folder)).signatures


@pytest.fixture(params=["memory", "export"])
def classifier(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    task = KerasTask(keras_config().task)
    model = task.build_model()
    return model, task.predictor(_signatures(task, model, tmp_path, request.param))


def _predicted(predictor: Any, *arguments: str, lines: Any = ()) -> list[Any]:
    return [found.data for found in predictor.predict(list(predictor.items(arguments, lines)))]


def test_classes_and_probabilities_are_predicted(classifier: Any, tmp_path: Path) -> None:
    model, predictor = classifier
    x, _ = keras_models.classes(3)
    np.savez(tmp_path / "rows.npz", x=x)
    found = _predicted(predictor, str(tmp_path / "rows.npz"))

    logits = model(x.astype(np.float32), training=False).numpy()
    assert [row["row"] for row in found] == [0, 1, 2]
    assert [row["class"] for row in found] == logits.argmax(axis=1).tolist()
    np.testing.assert_allclose([row["outputs"] for row in found], logits, rtol=1e-4)
    np.testing.assert_allclose(
        [row["probabilities"] for row in found], tf.nn.softmax(logits), rtol=1e-4
    )


def test_rows_are_json_arguments_files_and_lines(classifier: Any, tmp_path: Path) -> None:
    _, predictor = classifier
    (tmp_path / "rows.jsonl").write_text('[1, 2, 3, 4]\n\n{"x": [1, 2, 3, 4]}\n')
    found = _predicted(
        predictor, "[1, 2, 3, 4]", str(tmp_path / "rows.jsonl"), "-", lines=["[1,2,3,4]\n"]
    )

    assert len(found) == 4
    assert len({json.dumps(row["outputs"]) for row in found}) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1, 2]", "x: got shape [2], expected [4]"),
        ('{"y": [1, 2, 3, 4]}', "has no input 'x'; expected x"),
        ("[1, 2,", "not JSON: "),
        ('["a", "b", "c", "d"]', "x: could not convert string to float"),
    ],
)
def test_unusable_row_is_reported_in_its_place(classifier: Any, line: str, message: str) -> None:
    found = _predicted(classifier[1], "-", lines=["[0, 0, 0, 0]", line])

    assert "error" not in found[0]
    assert message in found[1]["error"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [("no_such_file", "expected an .npz file, a file of JSON lines"), ("no.npz", "cannot be read")],
)
def test_missing_file_is_an_error(classifier: Any, argument: str, message: str) -> None:
    with pytest.raises(RunnerError, match=message):
        _predicted(classifier[1], argument)


def test_file_without_an_input_is_an_error(classifier: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", z=np.zeros([2, 4]))
    with pytest.raises(RunnerError, match="has no array x"):
        _predicted(classifier[1], str(tmp_path / "other.npz"))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"left": np.zeros([3, 2]), "right": np.zeros([2, 2])}, "got left 3, right 2"),
        ({"left": np.zeros([3, 2]), "right": np.float32(1)}, "got left 3, right none"),
    ],
)
def test_arrays_of_different_lengths_are_an_error(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    task = KerasTask(keras_config(**_ADDER).task)
    predictor = task.predictor(_signatures(task, task.build_model(), tmp_path, "memory"))
    np.savez(tmp_path / "rows.npz", **arrays)
    with pytest.raises(RunnerError, match=f"arrays of equally many rows, {message}"):
        _predicted(predictor, str(tmp_path / "rows.npz"))


def test_damaged_archive_is_an_error(classifier: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.npz").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(RunnerError, match=r"cannot be read as \.npz"):
        _predicted(classifier[1], str(tmp_path / "rows.npz"))


@pytest.mark.parametrize("where", ["memory", "export"])
def test_several_inputs_keep_their_names(tmp_path: Path, where: str) -> None:
    task = KerasTask(keras_config(**_ADDER).task)
    model = task.build_model()
    predictor = task.predictor(_signatures(task, model, tmp_path, where))
    (found,) = _predicted(predictor, '{"right": [1, 2], "left": [3, 4]}')

    features = {"left": tf.constant([[3.0, 4.0]]), "right": tf.constant([[1.0, 2.0]])}
    np.testing.assert_allclose(found["outputs"], model(features)[0], rtol=1e-4)
    assert "class" not in found
