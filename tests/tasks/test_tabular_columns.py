"""A table with columns of each kind: inputs, signature, predictions, and an exact resume."""

import datetime
import json
import math

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.tables.columns import MISSING_DATE, Column
from orbit_runner.tasks.tabular.config import TextColumnConfig
from orbit_runner.tasks.tabular.layers import TextColumnMeans, TokenMean
from orbit_runner.tasks.tabular.preprocessing import fit_text
from orbit_runner.tasks.tabular.task import TabularTask
from tests.support.configs import in_both_sections
from tests.support.evaluations import random_model
from tests.support.tables import make_rows, table_config, write_csv

FEATURES = {
    "numeric": ["size", "age"],
    "categorical": ["color"],
    "date": ["when", "day"],
    "text": [{"column": "note", "max_length": 3}, "about me"],
}


def _rows():
    start = datetime.datetime(2019, 12, 30, 22, 15)
    rows = []
    for number, row in enumerate(make_rows()):
        when = start + datetime.timedelta(hours=31 * number)
        rows.append(
            {
                **row,
                "when": when.isoformat(),
                "day": None if number % 10 == 3 else when.date().isoformat(),
                "note": None if number % 7 == 2 else f"{row['y']} number{number % 10} end rest",
                "about me": ("hello world", "Hello there!")[number % 2],
            }
        )
    return rows


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("table") / "a.csv", _rows())


@pytest.fixture(scope="module")
def served(path):
    """A task, its model of random weights, and its signatures."""
    config = table_config(path, task__features=FEATURES, task__model__name="wide_deep")
    task = TabularTask(config.task)
    model = random_model(task)
    return task, model, task.serving(model)


def test_arrays_have_the_values_of_each_column(path):
    config = table_config(path, task__features=FEATURES)
    task, data = TabularTask(config.task), config.task.validation_data
    assert [*config.data.problems()] == []
    dates = task.fitted.dates
    assert (dates["when"].has_time, dates["when"].has_missing) == (True, False)
    assert (dates["day"].has_time, dates["day"].has_missing) == (False, True)
    arrays, part = task.arrays(data).arrays["features"], task.part(data)
    assert {name: (array.shape, array.dtype.name) for name, array in arrays.items()} == {
        "numeric": ((part.size, 2), "float32"),
        "categorical": ((part.size, 1), "int32"),
        "dates": ((part.size, 4), "int32"),
        "tokens": ((part.size, 3 + 64), "int32"),
    }
    note, about = (task.fitted.texts[name] for name in ("note", "about me"))
    notes = note.decode(arrays["tokens"][:, :3])
    abouts = about.decode(arrays["tokens"][:, 3:])
    for row in range(part.size):
        assert notes[row] == " ".join(part.column("note").text(row).split()[:3])
        assert abouts[row] == part.column("about me").text(row).lower().strip("!")


def test_signature_and_predictor_take_raw_columns(served, tmp_path):
    task, model, serving = served
    data = task.task_config.validation_data
    part = task.part(data)
    arguments = {"size": "size", "age": "age", "color": "color", "note": "note",
                 "about me": "about_me"}  # fmt: skip
    raw = {}
    for name, argument in arguments.items():
        column = part.column(name)
        texts = [column.text(row) for row in range(part.size)]
        raw[argument] = column.values if name in ("size", "age") else tf.constant(texts)
    for name in ("when", "day"):
        seconds = part.column(name).values.tolist()
        known = [math.nan if value == MISSING_DATE else float(value) for value in seconds]
        raw[name] = tf.constant(known, tf.float64)

    outputs = serving.signatures["predict"](**raw)

    # In a graph, as the signature: on some processors, fused kernels give other last bits.
    features = task.arrays(data).arrays["features"]
    specs = {name: tf.TensorSpec([None, *x.shape[1:]], x.dtype) for name, x in features.items()}
    predict = tf.function(lambda x: tf.nn.softmax(model(x)["y"]), input_signature=[specs])
    expected = predict(features)
    np.testing.assert_array_equal(outputs["y"], expected)
    is_date = serving.signatures["columns"]()["is_date"].numpy().tolist()
    assert is_date == [False, False, False, True, True, False, False]

    names = [*arguments, "when", "day"]
    rows = [{name: part.column(name).text(n) for name in names} for n in range(part.size)]
    predictor = task.predictor(serving.signatures)
    lines = [json.dumps(row) + "\n" for row in rows]
    predictions = predictor.predict([*predictor.items(["-"], lines)])
    classes = task.fitted.classes
    for prediction, shares in zip(predictions, expected.numpy(), strict=True):
        assert "new_categories" not in prediction.data
        probabilities = [prediction.data["y"]["probabilities"][name] for name in classes]
        np.testing.assert_allclose(probabilities, shares, rtol=1e-4, atol=1e-6)
    changes = [{"note": "quite new", "about me": None}, {"when": "29.2.2024"}, {"day": "NA"}]
    file = write_csv(tmp_path / "rows.csv", [rows[0] | change for change in changes])
    new, bad, missing = predictor.predict([*predictor.items([str(file)], [])])
    assert "probabilities" in new.data["y"]
    assert "column 'when': got '29.2.2024', expected a date such as 2024-01-31" in bad.text
    assert "probabilities" in missing.data["y"]


@pytest.mark.parametrize(
    ("features", "code", "setting"),
    [
        ({"date": ["whn"]}, "unknown-column", "features.date"),
        ({"date": ["size"]}, "unknown-column", "features.date"),
        ({"numeric": ["when"]}, "unknown-column", "features.numeric"),
        ({"date": ["color"]}, "bad-record", "features"),
    ],
)
def test_columns_of_another_kind_are_an_error(path, features, code, setting):
    problems = table_config(path, task__features=features).data.problems()
    assert {(problem.code, problem.path) for problem in problems} == {(code, setting)}


def test_synthetic_tables_have_columns_of_each_kind():
    config = table_config("", task__features=FEATURES, **in_both_sections(source="synthetic"))
    task = TabularTask(config.task)
    assert [*config.data.problems()] == []
    assert len(task.fitted.texts["note"].words) == 100
    assert len({*task.part(config.task.train_data).column("day").values.tolist()}) > 100


def _column(*texts):
    known = sorted({text for text in texts if text})
    codes = [known.index(text) if text else -1 for text in texts]
    return Column("c", "category", np.array(codes, np.int32), tuple(known))


def test_words_are_ordered_by_their_number_in_the_training_rows():
    column = _column("b a", "B, c", "b a", "d", "d", "d", "")
    fitted = fit_text(TextColumnConfig(column="c", max_length=2), column)
    assert fitted.words == ("b", "d", "a", "c")
    assert fitted.size == 6
    assert fitted.tokens(_column("d A b", "new b", "", "?!")).tolist() == [
        [3, 4], [1, 2], [0, 0], [0, 0],
    ]  # fmt: skip
    assert fitted.decode([[3, 4], [1, 2], [0, 0]]) == ["d a", "⁇ b", ""]


def test_tokens_are_embedded_and_averaged_without_padding():
    layer = TokenMean(5, 2)
    tokens = tf.constant([[2, 4, 0], [0, 0, 0], [1, 0, 0]])
    means = layer(tokens).numpy()
    table = layer.table.numpy()
    np.testing.assert_allclose(means, [(table[2] + table[4]) / 2, [0, 0], table[1]], rtol=1e-6)
    both = TextColumnMeans([5, 5], [2, 3], [1, 2])
    result = both(tokens).numpy()
    first, second = (mean.table.numpy() for mean in both.means)
    np.testing.assert_allclose(result[0], [*first[2], *second[4]], rtol=1e-6)
