"""What the report shows of an evaluation of a table."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.tasks.tabular import report_examples
from orbit_runner.tasks.tabular.task import TabularTask
from tests.support.evaluations import random_model
from tests.support.tables import table_config

PRICE = {"column": "price", "type": "regression"}


def _task(shared_path, target, **changes):
    task = TabularTask(table_config(shared_path, task__target=target, **changes).task)
    return task, random_model(task)


def _examples(task, model):
    batches = iter(task.build_inputs(task.task_config.validation_data))
    return task.report_examples(model, batches)


def _outputs(task, model, target):
    arrays = task.arrays(task.task_config.validation_data).arrays
    return arrays["targets"][target], model(arrays["features"])[target].numpy()


def test_classes_and_worst_rows_are_those_of_the_model(shared_path):
    task, model = _task(shared_path, "y")

    examples = _examples(task, model)

    labels, logits = _outputs(task, model, "y")
    shares = tf.nn.softmax(logits.astype(np.float64)).numpy()
    part = task.part(task.task_config.validation_data)
    assert sum(examples.confusion.values()) == part.size
    right = (shares.argmax(axis=-1) == labels).sum()
    counted = f"all {part.size} examples of the evaluation"
    assert examples.note == f"{right} correct predictions for {counted}"
    worst = int(shares[np.arange(len(labels)), labels].argmin())
    assert len(examples.rows) == 20
    place, label, prediction, probability, loss, values = examples.rows[0]
    assert place == part.location(worst)
    assert (label, prediction) == (part.column("y").text(worst), {"big": "small"}.get(label, "big"))
    assert float(loss) == pytest.approx(-np.log(shares[worst, labels[worst]]), abs=1e-3)
    assert float(probability) == pytest.approx(shares[worst].max(), abs=1e-4)
    assert f"size {part.column('size').text(worst)}, age " in values
    assert sum(count for count, _, _ in examples.calibration) == part.size
    mean = sum(count * share for count, share, _ in examples.calibration) / part.size
    assert mean == pytest.approx(shares.max(axis=-1).mean())


def test_errors_of_numbers_are_summarized(shared_path):
    task, model = _task(shared_path, PRICE)

    examples = _examples(task, model)

    labels, outputs = _outputs(task, model, "price")
    errors = outputs.astype(np.float64) - labels
    facts = dict(examples.facts)
    assert float(facts["mean error, prediction less label"]) == pytest.approx(errors.mean())
    assert float(facts["largest error"]) == pytest.approx(np.abs(errors).max(), rel=1e-5)
    assert float(examples.rows[0][3]) == pytest.approx(errors[np.abs(errors).argmax()], rel=1e-5)
    sizes = [abs(float(row[3])) for row in examples.rows]
    assert sizes == sorted(sizes, reverse=True)
    assert examples.note.startswith("predictions for all ")


def test_weighted_rows_and_the_limit(shared_path, monkeypatch):
    monkeypatch.setattr(report_examples, "_MOST_ROWS", 20)

    examples = _examples(*_task(shared_path, "y", task__weight_column="w"))

    assert sum(examples.confusion.values()) == 20
    assert "for the first 20 examples of" in examples.note


def test_no_batches_are_no_examples(shared_path):
    task, model = _task(shared_path, "y")

    assert task.report_examples(model, []) is None
