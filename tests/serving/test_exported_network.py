"""Exports of the network alone give the predictions of the run, with the signatures of its task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner.checkpoint.latest_checkpoint import PLAIN, choose_checkpoint
from orbit_runner.errors import RunnerError
from orbit_runner.serving.export import export_all
from orbit_runner.serving.export_directory import find_export
from orbit_runner.serving.loader import load_export, load_scope
from orbit_runner.serving.network import describe_spec, parse_spec
from orbit_runner.tasks.adapter import adapt
from orbit_runner.tasks.keras.serving import ArrayPredictor
from orbit_runner.tasks.keras.task import KerasTask
from tests.support.keras_models import ADDER, keras_config
from tests.support.problems import raises
from tests.support.toy import run

_HERE = "tests.support.keras_models"
ROWS = [
    '{"left": [1, 2], "right": [3, 5]}',
    '{"right": [0, 7], "left": [1, 0]}',
    '{"right": [0, 7], "left": [NaN, 0]}',
]


def _predictions(signatures: Any) -> list[Any]:
    predictor = ArrayPredictor(signatures)
    return [answer.data for answer in predictor.predict([*predictor.items(ROWS, [])])]


@pytest.mark.slow
def test_network_of_two_inputs_in_a_file_answers_like_the_run(tmp_path):
    config = keras_config(trainer__train_steps=5, **ADDER)
    run(config, tmp_path / "run", "train")
    task = KerasTask(config.task)
    choice = choose_checkpoint(tmp_path / "run", None, "", pytest.fail)
    with load_scope(config, task, choice, PLAIN) as loaded:
        expected = _predictions(loaded.serving.signatures)
        records = export_all(
            ("litert", "keras"), loaded, adapt(task), config, tmp_path / "run", tmp_path / "to"
        )

    for record in records:
        signatures = load_export(Path(record["path"]), KerasTask(config.task))
        answers = _predictions(signatures)
        assert ["error" in row for row in answers] == [False, False, True]
        for answer, row in zip(answers, expected, strict=True):
            assert answer.get("outputs", []) == pytest.approx(row.get("outputs", []), rel=1e-4)
            assert answer.get("error") == row.get("error")
    _check_problems(Path(records[0]["path"]), config)


def _check_problems(place: Path, config: Any) -> None:
    """Checks the messages for an export that cannot be loaded."""
    missing_data = config.task.train_data.replace(function=f"{_HERE}:no_such_function")
    with raises("other-assets", "WHERE"):
        load_export(place, KerasTask(config.task.replace(train_data=missing_data)))
    record = json.loads((place / "export.json").read_text())
    (place / "export.json").write_text(json.dumps({**record, "format": "onnx"}))
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        with pytest.raises(RunnerError, match=r"pip install 'orbit-runner\[onnx\]'"):
            load_export(place, KerasTask(config.task))
    del record["structure"]
    (place / "export.json").write_text(json.dumps(record))
    with raises("export-failed", "WHERE"):
        load_export(place, KerasTask(config.task))
    (place / "model.tflite").write_bytes(b"TFL3 cut short")
    (place / "export.json").write_text(json.dumps({**record, "structure": "x"}))
    with raises("export-failed", "WHERE"):
        load_export(place, KerasTask(config.task))


@pytest.mark.parametrize(
    ("exports", "expected"),
    [
        (["100", "200-litert", "300-keras"], "100"),
        (["100", "20", "300-keras"], "100"),
        (["20-litert", "100-keras", "100-litert"], "100-litert"),
        (["100-other", "best"], None),
    ],
)
def test_saved_model_of_the_last_step_comes_before_other_formats(exports, expected, tmp_path):
    for name in exports:
        (tmp_path / name).mkdir()
        for file in ("model.tflite", "export.json") if "-" in name else ("saved_model.pb",):
            (tmp_path / name / file).touch()
    assert find_export(tmp_path) == (expected and tmp_path / expected)
    for name in filter(None, [expected]):
        assert find_export(tmp_path / name) == tmp_path / name


@pytest.mark.parametrize("shape", [[], [None], [None, 8, 8, 1]])
def test_described_spec_is_parsed(shape):
    spec = tf.TensorSpec(shape, tf.uint8)
    assert parse_spec(describe_spec(spec)) == spec
