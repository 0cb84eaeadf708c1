"""The tabular task: settings, checks before a run, inputs, losses, and exact resumes."""

import json

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.data.tables.columns import Column
from orbit_runner.tasks.base import WeightedLabels
from orbit_runner.tasks.tabular.networks import CategoryWeights, EncodeCategories, NormalizeColumns
from orbit_runner.tasks.tabular.preprocessing import (
    PREPROCESSING_FILE,
    NumberFit,
    Preprocessing,
    fit,
)
from orbit_runner.tasks.tabular.sources import table_query
from orbit_runner.tasks.tabular.task import TabularTask
from tests.support.batches import without_autotuning
from tests.support.problems import pairs, raises
from tests.support.tables import make_rows, table_config, write_csv
from tests.support.toy import run

PRICE = {"column": "price", "type": "regression"}


def _task(config, folder=None):
    return TabularTask(config.task, logging_dir=folder and str(folder))


def _rows_of(config, section):
    part = table_query(config.task).part(section)
    return [make_rows()[row] for row in part.places.all_rows()]


def _problems(path, **changes):
    return dict(pairs(table_config(path, **changes).data.problems()))


@pytest.mark.parametrize(
    ("change", "changes", "field", "message"),
    [
        ({}, {"task__target": "yy"}, "target.column", "unknown column 'yy'"),
        ({}, {"task__features__numeric": ["siz"]}, "features.numeric", "did you mean 'size'?"),
        ({}, {"task__features__text": ["colr"]}, "features.text[0].column", "mean 'color'?"),
        ({}, {"task__weight_column": "no"}, "weight_column", "unknown column 'no'"),
        ({}, {"task__split__hash_of": ["idd"]}, "split.hash_of", "did you mean 'id'?"),
        ({"size": "wide"}, {}, "features", "row 5: column 'size': got 'wide', expected a number"),
        ({"y": None}, {}, "target.column", "column 'y' has no value in {path}, row 5\n"),
        ({"y": "huge"}, {"task__split__column": "part", "task__split__fractions": None},
         "target.column", "has the class 'huge' in {path}, row 5, which no training row has"),
        ({}, {"task__target": "price"}, "target.column", "for numbers, write target: {{"),
        ({"price": None}, {"task__target": PRICE}, "target.column", "has no value in {path}, r"),
        ({"w": -2}, {"task__weight_column": "w"}, "weight_column", "has -2 in {path}, row 5, exp"),
        ({"w": None}, {"task__weight_column": "w"}, "weight_column", "has nan in {path}, row 5"),
    ],
)  # fmt: skip
def test_problems_of_a_table_name_column_and_row(change, changes, field, message, tmp_path):
    rows = [
        row | {"part": "train" if n > 20 else "validation"} for n, row in enumerate(make_rows())
    ]
    path = write_csv(tmp_path / "a.csv", rows)
    both = changes | {"task__features__categorical": ["color"]}
    assert _problems(path) == {}
    path = write_csv(tmp_path / "b.csv", [*rows[:4], rows[4] | change, *rows[5:]])

    problems = _problems(path, **both)

    assert list(problems) == [field]
    assert message.format(path=path) in problems[field]


@pytest.mark.parametrize(
    ("rows", "field", "message"),
    [
        ([{"id": f"p{n}", "y": n % 2} for n in range(1500)], "features", "column 'id' has 1,0"),
        ([{"x": "", "c": n, "y": n % 2} for n in range(40)], "features",
         "column 'x' has no values in training"),
        ([{"x": n, "y": "same"} for n in range(40)], "target.column",
         "column 'y' has only the class 'same' in training"),
        ([{"y": n} for n in range(40)], "features", "no columns are left for features"),
    ],
)  # fmt: skip
def test_uninformative_columns_are_reported(rows, field, message, tmp_path):
    path = write_csv(tmp_path / "a.csv", rows)

    problems = _problems(path, task__features={"numeric": [], "categorical": []})

    assert message in problems[field]


def test_features_are_all_columns_that_nothing_else_uses(path):
    config = table_config(
        path,
        task__features={"numeric": [], "categorical": []},
        task__features__exclude=["price"],
        task__weight_column="w",
        task__split__hash_of=["id"],
    )

    fitted = fit(config.task)

    assert list(fitted.numeric) == ["size", "age"]
    assert list(fitted.categorical) == ["color"]


def test_preprocessing_is_fitted_on_the_training_rows(path):
    config = table_config(path)
    rows = _rows_of(config, "train_data")

    fitted = fit(config.task)

    assert 50 < len(rows) < 90
    for name in ("size", "age"):
        values = np.array([row[name] for row in rows if row[name] is not None], np.float32)
        assert fitted.numeric[name].mean == pytest.approx(float(values.mean()))
        assert fitted.numeric[name].deviation == pytest.approx(float(values.std()))
    assert (fitted.numeric["size"].has_missing, fitted.numeric["age"].has_missing) == (False, True)
    assert fitted.categorical == {"color": ("", "blue, dark", "green", "red")}
    assert fitted.classes == ("big", "small")
    price = np.array([row["price"] for row in rows])
    scale = fit(table_config(path, task__target=PRICE).task).scale
    assert scale.mean == pytest.approx(price.mean(), rel=1e-5)


def test_texts_that_training_does_not_have_get_code_0():
    fitted = Preprocessing({}, {"c": ("a", "b"), "m": ("", "a")}, "y", ("a", "b"))
    for name, expected in (("c", [1, 0, 2, 0]), ("m", [2, 0, 0, 1])):
        column = Column(name, "category", np.array([0, 2, 1, -1], np.int32), ("a", "b", "new"))
        assert fitted.codes(column).tolist() == expected
    column = Column("y", "category", np.array([1, 0, 1], np.int32), ("a", "b"))
    assert column.numbers(("a", "b")).tolist() == [1, 0, 1]


def test_evaluation_notes_categories_that_training_does_not_have(path, tmp_path, caplog):
    rows = make_rows(5)
    for row, color in zip(rows, ["pink", "red", None, "pink", "lime"], strict=True):
        row["color"] = color
    other = write_csv(tmp_path / "other.csv", rows)
    config = table_config(path, task__validation_data__input_path=str(other), task__split=None)
    task = _task(config)
    task.arrays(config.task.train_data)
    assert "no training row" not in caplog.text
    task.arrays(config.task.validation_data)
    assert "categories: color 'lime' in 1 row, color 'pink' in 2 rows" in caplog.text


def test_preprocessing_of_other_features_and_a_damaged_one_are_refused(path, tmp_path):
    config = table_config(path)
    task = _task(config, tmp_path / "run")
    assert task.fitted
    task.assets.write()

    other = table_config(path, task__features__numeric=["size"])
    with raises("other-assets", "task.features"):
        _ = _task(other, tmp_path / "run").fitted
    (tmp_path / "run" / "assets" / PREPROCESSING_FILE).write_text("{}")
    with raises("damaged-file"):
        _ = _task(config, tmp_path / "run").fitted


def test_numbers_are_normalized_and_missing_ones_are_marked():
    layer = NormalizeColumns([NumberFit(10, 2), NumberFit(1, 4, True)])
    outputs = layer(tf.constant([[12, np.nan], [np.nan, 9.0]]))
    assert outputs.numpy().tolist() == [[1, 0, 1], [0, 2, 0]]
    assert [w.shape.as_list() for w in layer.non_trainable_weights] == [[2], [2]]
    assert layer.trainable_weights == []


def test_codes_become_one_hot_vectors_or_embeddings_and_unknown_texts_zeros():
    layer = EncodeCategories([2, 11], width=3)
    vectors = layer(tf.constant([[1, 11], [2, 1], [0, 0]])).numpy()
    table = layer.tables[1].numpy()
    assert table.shape == (12, 3)
    np.testing.assert_array_equal(vectors[0], [1, 0, *table[11]])
    np.testing.assert_array_equal(vectors[1], [0, 1, *table[1]])
    np.testing.assert_array_equal(vectors[2], np.zeros(5))


def test_each_text_has_its_own_weight_in_the_wide_part():
    layer = CategoryWeights([2, 3], 1)
    codes = tf.constant([[1, 1], [2, 3], [0, 2], [0, 0]])
    layer(codes)
    layer.table.assign(10.0 ** np.arange(7)[:, np.newaxis])
    assert layer(codes).numpy()[:, 0].tolist() == [10 + 1e4, 100 + 1e6, 1e5, 0]


def _numpy(batch):
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), batch)


def test_batches_are_the_rows_of_the_table(path):
    config = table_config(path, task__weight_column="w")
    task, rows = _task(config), _rows_of(config, "validation_data")
    fitted, seen = task.fitted, 0
    weights = np.array([row["w"] for row in rows], np.float32)

    for batch in without_autotuning(task.build_inputs(config.task.validation_data)):
        features, targets, (counts, weight) = _numpy(batch)
        for place in np.flatnonzero(counts):
            row = rows[seen]
            expected = [np.nan if row[n] is None else row[n] for n in ("size", "age")]
            np.testing.assert_array_equal(
                features["numeric"][place], np.array(expected, np.float32)
            )
            code = features["categorical"][place, 0]
            assert ("unknown", *fitted.categorical["color"])[code] == (row["color"] or "")
            assert fitted.classes[targets["y"][place]] == row["y"]
            np.testing.assert_allclose(weight[place], row["w"] / weights.mean(), rtol=1e-6)
            seen += 1
    assert seen == len(rows) == task.num_examples(config.task.validation_data)


def test_loss_and_metrics_of_classes(path):
    task = _task(table_config(path))
    logits = np.array([[1.0, 3], [0, -2]])
    log_shares = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    labels, outputs = {"y": tf.constant([0, 1])}, {"y": tf.constant(logits, tf.float32)}
    _check_loss(task, labels, outputs, -log_shares[[0, 1], [0, 1]], {"accuracy": 0.0})


def test_loss_and_metrics_of_numbers(path):
    task = _task(table_config(path, task__target=PRICE))
    labels = {"price": tf.constant([30.0, 80.0])}
    outputs = {"price": tf.constant([20.0, 90.0])}
    squares = np.full(2, (10 / task.fitted.scale.deviation) ** 2)
    _check_loss(task, labels, outputs, squares, {"mae": 10.0, "rmse": 10.0})


def _check_loss(task, labels, outputs, expected, results):
    np.testing.assert_allclose(task.example_losses(labels, outputs), expected, rtol=1e-5)
    weights = tf.constant([0.5, 2.0])
    loss = task.build_losses(WeightedLabels(labels, weights, weights), outputs)
    np.testing.assert_allclose(loss, (expected * [0.5, 2]).sum() / 2, rtol=1e-5)
    metrics = task.build_metrics()
    task.process_metrics(metrics, WeightedLabels(labels, weights, weights), outputs)
    assert {metric.name: float(metric.result()) for metric in metrics} == pytest.approx(results)


def test_table_with_the_shipped_settings_trains_and_keeps_its_best_checkpoint(path, tmp_path):
    config = resolve(
        Request(
            config_files=("configs/data/table.yaml",),
            params_overrides=(
                "task.target=y",
                f"task.train_data={{source: csv, input_path: {path}}}",
                "trainer.min_steps_per_epoch=2",
                "trainer.train_epochs=10",
            ),
        )
    ).config
    assert config.task.section("validation_data").input_path == str(path)
    _, logs = run(config, tmp_path / "run")
    assert logs["validation_examples"] == table_query(config.task).part("validation_data").size
    assert 10 <= logs["validation_examples"] <= 30
    best = json.loads((tmp_path / "run" / "best" / "info.json").read_text())
    assert best["validation_loss"] <= logs["validation_loss"]


@pytest.mark.parametrize(
    ("settings", "code", "field"),
    [
        ({"task__split": None}, "not-allowed", "source"),
        ({"task__validation_data__global_batch_size": 0}, "out-of-range", "global_batch_size"),
        ({"task__validation_data__input_path": "b.csv"}, "no-effect", "input_path"),
    ],
)
def test_validation_data_without_a_source_are_a_part_of_the_training_data(settings, code, field):
    part = {f"task__validation_data__{name}": "''" for name in ("source", "input_path")}
    task = table_config("a.csv", task__train_data__delimiter=";", **part).task
    data = task.section("validation_data")
    assert (data.source, data.input_path, data.delimiter) == ("csv", "a.csv", ";")
    assert data.part == "validation"
    with raises(code, f"task.validation_data.{field}"):
        table_config("a.csv", **part | settings)
