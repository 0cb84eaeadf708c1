"""Serving of tables: columns by name, new categories, bad rows, and models without their data."""

import csv
import io

import numpy as np
import pandas
import pytest
import tensorflow as tf

from orbit_runner.cli.commands.predict import print_predictions
from orbit_runner.tasks.tabular.task import TabularTask
from tests.support.configs import in_both_sections
from tests.support.evaluations import random_model
from tests.support.problems import error_of, raises
from tests.support.tables import make_rows, table_config, write_csv

PRICE = {"column": "the price", "type": "regression"}


@pytest.fixture(scope="module", params=["y", PRICE], ids=["classes", "numbers"])
def both(request, tmp_path_factory):
    """A model of random weights on a table with names that are no identifiers."""
    return _serve(request.param, tmp_path_factory.mktemp("table"))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The same for classes."""
    return _serve("y", tmp_path_factory.mktemp("classes"))


def _serve(target, folder):
    rows = [{**row, "the price": row["price"], "1 size": row["size"]} for row in make_rows()]
    path = write_csv(folder / "a.csv", rows)
    features = {"numeric": ["1 size", "age"], "categorical": ["color"]}
    config = table_config(path, task__target=target, task__features=features)
    task = TabularTask(config.task)
    model = random_model(task)
    return task, model, task.serving(model)


def _predictor(served):
    return served[0].predictor(served[2].signatures)


def test_signature_takes_raw_columns(both):
    task, model, serving = both
    assert serving.default == "predict"
    sizes = np.array([10, np.nan, 80], np.float32)
    colors = ["red", " green ", "violet"]
    outputs = serving.signatures["predict"](
        c_1_size=tf.constant(sizes), age=tf.constant([3.0, 4.0, np.nan]), color=tf.constant(colors)
    )
    texts = list(task.fitted.categorical["color"])
    numeric = np.stack([sizes, [3, 4, np.nan]], axis=1).astype(np.float32)
    codes = np.array([[texts.index("red") + 1], [texts.index("green") + 1], [0]], np.int32)
    expected = model({"numeric": numeric, "categorical": codes})
    if task.fitted.classes:
        np.testing.assert_allclose(outputs["y"], tf.nn.softmax(expected["y"]), rtol=1e-6)
    else:
        np.testing.assert_allclose(outputs["the_price"], expected["the price"], rtol=1e-6)
        assert not np.isnan(outputs["the_price"]).any()


def test_signature_takes_values_however_they_are_written(tmp_path):
    rows = pandas.DataFrame({"sold": [True, False] * 20, "floors": [3.0, None, 4.0, 12.0] * 10})
    rows.assign(y=[*"aab"] * 13 + ["b"], n=range(40)).to_parquet(tmp_path / "a.parquet")
    features = {"numeric": [], "categorical": ["sold", "floors"]}
    config = table_config(
        tmp_path / "a.parquet",
        task__features=features,
        task__split__hash_of=["n"],
        **in_both_sections(source="parquet"),
    )
    task = TabularTask(config.task)
    serving = task.serving(task.build_model())
    predict = serving.signatures["predict"]
    written = predict(sold=tf.constant(["True", "FALSE"]), floors=tf.constant(["3.0", "12.0 "]))
    known = predict(sold=tf.constant(["true", "false"]), floors=tf.constant(["3", "12"]))
    np.testing.assert_array_equal(written["y"], known["y"])


def test_scored_table_has_all_columns_and_the_predictions(both, tmp_path, capsys):
    predictor = _predictor(both)
    path = tmp_path / "a.csv"
    path.write_text(
        'id,1 size,age,color,note\n007,1.50,NA, red ,"a, b"\n8,wide,3,blue,\n10,2,3,teal,\n'
    )
    scored = tmp_path / "out" / "scored.csv"

    failed = print_predictions(predictor, [str(path)], as_json=False, batch_size=2, to=scored)

    rows = [*csv.DictReader(scored.read_text().splitlines())]
    items = [*predictor.items([str(path)], [])]
    expected, _, new = (answer.data for answer in predictor.predict(items))
    assert new["new_categories"] == {"color": "teal"}
    assert failed == 1
    own = {"id": "007", "1 size": "1.50", "age": "NA", "color": " red ", "note": "a, b"}
    assert own.items() <= rows[0].items()
    if "y" in expected:
        assert rows[0]["predicted_y"] == expected["y"]["class"]
        assert float(rows[0]["probability_y_big"]) == expected["y"]["probabilities"]["big"]
        assert rows[1]["predicted_y"] == ""
    else:
        assert float(rows[0]["predicted_the price"]) == expected["the price"]
        assert rows[1]["predicted_the price"] == ""
    assert rows[0]["prediction_error"] == ""
    assert rows[1]["id"] == "8"
    assert "got 'wide', expected a number" in rows[1]["prediction_error"]
    warnings = [row["prediction_warning"] for row in rows]
    assert warnings == ["", "", "new: color 'teal'"]
    assert "1 of 3 items have a warning; first: new: color 'teal'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--to=scored.json"], "expected a file that ends in .csv"),
        (["--to=scored.csv", "--json"], "--json has no effect"),
        (["--to=a.csv"], "a.csv is one of the items"),
    ],
)
def test_wrong_scored_file_is_refused_at_once(flags, message):
    assert message in str(error_of(["predict", "run", "a.csv", *flags]))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"1 size": "wide", "age": 3, "color": "red"}', "column '1 size': got 'wide', expected"),
        ('{"1 size": [2], "age": 3, "color": "red"}', "got [2], expected a number"),
        ('{"1 size": 1e300, "age": 3, "color": "red"}', "got 1e+300, expected a number of 32 bits"),
        ('{"1 size": 1, "age": "1_0", "color": "red"}', "got '1_0', expected a number"),
        ('{"1 size": 1, "age": 3, "color": "\\udc00"}', "column 'color': is not valid UTF-8"),
    ],
)  # fmt: skip
def test_bad_rows_are_reported_in_their_place(served, row, message):
    good = '{"1 size": 1, "age": null, "color": "red"}'
    predictor = _predictor(served)
    items = list(predictor.items([], io.StringIO(f"{good}\n{row}\n{good}\n")))

    predictions = predictor.predict(items)

    assert ["error" in prediction.data for prediction in predictions] == [False, True, False]
    assert message in predictions[1].data["error"]
    assert predictions[1].text.startswith("standard input, row 2: error: ")


def test_argument_without_a_column_is_reported(served):
    predictor = _predictor(served)
    (prediction,) = predictor.predict([*predictor.items(['{"age": 3, "color": "red"}'], [])])
    assert prediction.data == {"error": "has no column '1 size'"}


def test_row_is_an_argument(served):
    row = '{"1 size": 1, "age": null, "color": "red"}'
    predictor = _predictor(served)
    items = [*predictor.items([row], []), *predictor.items([], [row])]
    argument, line = (prediction.data for prediction in predictor.predict(items))
    assert line == {"row": "standard input, row 1", **argument}


def test_missing_file_is_refused(served):
    with raises("bad-item"):
        list(_predictor(served).items(["absent.csv"], []))


def test_number_of_classes_is_refused_if_there_are_none():
    config = table_config("a.csv", task__target=PRICE)
    with raises("no-effect", "--top_k"):
        TabularTask(config.task).predictor({}, top_k=2)
