"""Evaluations that are NaN or infinite are reported, and count neither as best nor as progress."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.registry import TASKS
from orbit_runner.tasks.adapter import adapt
from tests.support import texts
from tests.support.images import write_folder
from tests.support.keras_models import classes, keras_config
from tests.support.tables import make_rows, table_config, write_csv
from tests.support.toy import Notes, config_of, run

HERE = "tests.train.nonfinite.test_evaluation"


NAN, INFINITE = -1000.0, -100.0  # The values for which the first layer is not finite.


def with_bad_rows(
    bad: list[int], value: float = NAN, count: int = 37, seed: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """Returns examples of which some have a feature that the model cannot use."""
    x, y = classes(count, seed)
    x[bad, 1] = value
    return x, y


def logarithmic() -> tf_keras.Model:
    """Returns a classifier whose first layer is the logarithm of x + 100."""
    inputs = tf_keras.Input([4])
    hidden = tf_keras.layers.Lambda(lambda x: tf.math.log(x + 100.0))(inputs)
    return tf_keras.Model(inputs, tf_keras.layers.Dense(3, dtype="float32")(hidden))


class NanWithoutClass(tf_keras.metrics.Metric):
    """The share of a class that no label has: 0 / 0."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(tf.reduce_sum(tf.cast(tf.equal(y_true, 99), tf.float32)))

    def result(self) -> tf.Tensor:
        return self.total / self.total


def _config(bad: list[int], value: float = NAN, **changes: Any) -> Any:
    arguments = f"{{bad: {bad}, value: {value}}}"
    return keras_config(
        task__model=f"{HERE}:logarithmic",
        task__validation_data__function=f"{HERE}:with_bad_rows",
        task__validation_data__arguments=arguments,
        **changes,
    )


def _warnings(notes: Notes) -> list[str]:
    return [text for text in notes.notes if text.startswith("warning: the evaluation")]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize("value", [NAN, INFINITE])
def test_examples_that_cause_it_are_named(tmp_path: Path, strategy: str, value: float) -> None:
    notes, bad = Notes(), [5, 33]
    config = _config(bad, value, task__train_data__global_batch_size=16)
    _, logs = run(config, tmp_path, strategy=strategy, notes=notes)
    assert not np.isfinite(logs["validation_loss"])
    first, second = _warnings(notes)
    labels = with_bad_rows(bad)[1]
    lines = first.splitlines()
    assert lines[0].startswith("warning: the evaluation at step 10 is not finite: validation_loss")
    assert [line.strip() for line in lines[2:]] == [f"example {n}: label {labels[n]}" for n in bad]
    assert second.splitlines()[1:] == ["  the same metrics as at step 10, see there"]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
def test_examples_are_named_under_logical_replicas(tmp_path: Path, strategy: str) -> None:
    notes, bad = Notes(), [5, 33]
    run(
        _config(bad, trainer__train_steps=10, runtime__logical_replicas=4),
        tmp_path,
        strategy=strategy,
        notes=notes,
    )
    (text,) = _warnings(notes)
    assert re.findall(r"example (\d+): label", text) == ["5", "33"]


@pytest.mark.slow
def test_many_examples_are_cut(tmp_path: Path) -> None:
    notes = Notes()
    run(_config([*range(20, 37)], trainer__train_steps=10), tmp_path, notes=notes)
    (text,) = _warnings(notes)
    assert text.count("example ") == 8
    assert "… and others" in text
    assert "definition" not in text


@pytest.mark.slow
def test_metric_that_is_nan_by_its_definition(tmp_path: Path) -> None:
    notes = Notes()
    config = keras_config(task__metrics=f"['{HERE}:NanWithoutClass']", trainer__train_steps=10)
    run(config, tmp_path, notes=notes)
    (text,) = _warnings(notes)
    assert "is not finite: nan_without_class is nan" in text
    assert "check the definition of the metric" in text
    assert "example 0" not in text


@pytest.mark.slow
def test_average_of_the_weights_is_what_is_searched(tmp_path: Path) -> None:
    notes = Notes()
    ema = {"trainer__optimizer_config__ema__average_decay": 0.9}
    run(_config([7], trainer__train_steps=10, **ema), tmp_path, notes=notes)
    assert "example 7: label" in _warnings(notes)[0]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"runtime__logical_replicas": 4}])
def test_search_changes_neither_weights_nor_other_results(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """The state of metrics and random draws is that of a run without a search."""
    models, logs = [], []
    for name, skip in (("a", False), ("b", True)):
        with pytest.MonkeyPatch.context() as patch:
            if skip:
                module = "orbit_runner.train.nonfinite.evaluation"
                patch.setattr(f"{module}.non_finite_values", lambda logs: {})
            model, found = run(_config([7], **changes), tmp_path / name)
        models.append(model.get_weights())
        logs.append(found)
    assert all(np.array_equal(a, b) for a, b in zip(*models, strict=True))
    (left, right) = ({n: v for n, v in one.items() if n != "steps_per_second"} for one in logs)
    np.testing.assert_equal(left, right)


@pytest.mark.slow
def test_such_an_evaluation_is_neither_the_best_nor_an_improvement(tmp_path: Path) -> None:
    notes = Notes()
    config = _config(
        [7],
        trainer__train_steps=40,
        trainer__best_checkpoint_export_subdir="best",
        trainer__best_checkpoint_eval_metric="validation_loss",
        trainer__best_checkpoint_metric_comp="lower",
        trainer__early_stopping="{metric: validation_loss, metric_comp: lower, patience: 2}",
    )
    run(config, tmp_path, notes=notes)
    assert not (tmp_path / "best" / "info.json").exists()
    assert any("stopped early at step 20" in text for text in notes.notes)
    evaluated = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [e["validation_loss"] for e in evaluated if e["split"] == "validation"] == [None, None]


def _adapted(config: Any, folder: Path) -> Any:
    return adapt(TASKS.get(config.task.name).load()(config.task, logging_dir=str(folder)))


def test_rows_of_tables_and_texts_are_named_by_file_and_row(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "rows.csv", make_rows(20))
    table = _adapted(table_config(path), tmp_path)
    place = table.describe_example(None, 1)
    assert place["place"].startswith(f"{path}, row ") or "rows.csv, row " in place["place"]
    text = _adapted(texts.text_config(texts.write_texts(tmp_path / "texts")), tmp_path)
    assert ", row 4" in text.describe_example(None, 3)["place"]


def test_images_are_named_by_their_files(tmp_path: Path) -> None:
    write_folder(tmp_path / "images" / "val", {"a": 2, "b": 2})
    write_folder(tmp_path / "images" / "train", {"a": 2, "b": 2})
    config = config_of(
        {
            "task.name": "image_classification",
            "task.model.name": "mlp",
            "task.model.input_size": "[8, 8, 3]",
            **{
                f"task.{section}.{name}": value
                for section in ("train_data", "validation_data")
                for name, value in (
                    ("source", "image_folder"),
                    ("data_dir", tmp_path / "images"),
                    ("global_batch_size", 2),
                )
            },
            "trainer.optimizer_config.optimizer.type": "sgd",
            "trainer.optimizer_config.learning_rate.type": "constant",
            "trainer.optimizer_config.learning_rate.constant.learning_rate": 0.1,
        }
    )
    place = _adapted(config, tmp_path).describe_example(None, 3)
    assert "/val/b/" in place["file"]
    assert place["class"] == "b"
