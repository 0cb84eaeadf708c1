"""The place of an example is the row of the user's file or array, and is accepted as an ID."""

import csv
from pathlib import Path

import numpy as np
import pytest

from orbit_runner.step.examples import TrainingOrder
from tests.support.digits import digits_config
from tests.support.images import write_listed
from tests.support.keras_models import BASE, classes
from tests.support.problems import raises
from tests.support.tables import WRITERS, make_rows, table_config, write_csv
from tests.support.toy import config_of

_BY_COLUMN = {"task__split__column": "part", "task__split__fractions": "null"}
# Returns the class of the row that a place names.


pytestmark = pytest.mark.usefixtures("own_cache")


def _examples(config):
    return TrainingOrder(config, None).examples()


def _label(row):
    if "targets" in row:
        (target,) = row["targets"].values()
        return str(target)
    return str(row.get("class", row.get("label")))


def _without_validation_data(changes):
    base = {path: value for path, value in BASE.items() if "validation_data" not in path}
    return config_of(base | {"task.validation_data.global_batch_size": 16} | changes)


def check_places(config, label_of):
    """Checks the places of the first steps against the files that the user has."""
    order, examples = TrainingOrder(config, None), _examples(config)
    rows = [row for step in range(1, 5) for row in order.step(step).chosen]
    differ = False
    for row in rows:
        name, _, number = row["place"].rpartition(" ")
        file = name.rpartition(", ")[0]
        assert label_of(file, int(number)) == _label(row)
        for text in (row["place"], f"{file}:{number}", f"{Path(file).name}:{number}"):
            assert examples.find(text) == row["example"]
        assert examples.find(str(row["example"])) == row["example"]
        differ |= row["example"] != int(number) - (" row" in name)
    assert differ, "no example is at another place than in its file"


@pytest.mark.parametrize("split", [{}, _BY_COLUMN])
@pytest.mark.parametrize("source", ["csv", "jsonl", "parquet", "hugging_face"])
def test_row_of_a_table(tmp_path, source, split):
    parts = ("validation", "train", "train")
    rows = [row | {"part": parts[number % 3]} for number, row in enumerate(make_rows())]
    path = WRITERS[source](tmp_path / f"rows.{source}", rows)
    config = table_config(
        path,
        task__train_data__source=source,
        task__validation_data__source=source,
        **split,
    )

    check_places(config, lambda file, number: {str(path): rows}[file][number - 1]["y"])


def test_row_of_a_mixture_of_tables(tmp_path):
    tables = {
        str(write_csv(tmp_path / f"{name}.csv", rows)): rows
        for name, rows in (("a", make_rows(40)), ("b", make_rows(70)))
    }
    first, second = tables
    mixture = [{"weight": 1}, {"input_path": second, "weight": 1}]
    config = table_config(first, task__train_data__mixture=mixture)

    check_places(config, lambda file, number: tables[file][number - 1]["y"])


def test_row_in_the_validation_part_is_no_training_example(tmp_path):
    rows = [row | {"part": ("validation", "train")[n % 2]} for n, row in enumerate(make_rows())]
    path = write_csv(tmp_path / "rows.csv", rows)
    examples = _examples(table_config(path, **_BY_COLUMN))

    assert examples.find("rows.csv:2") == 0
    with raises("unknown-example", "--example"):
        examples.find("rows.csv:1")
    for unknown in ("rows.csv:0", "rows.csv:101", "row.csv:2", "rows.csv"):
        with raises("unknown-example", "--example"):
            examples.find(unknown)


def test_index_of_an_array_before_the_split():
    labels = classes()[1]
    function = "tests.support.keras_models:classes"
    config = _without_validation_data({"task.validation_split": 0.3})

    check_places(config, lambda file, number: str({function: labels}[file][number]))
    with raises("unknown-example", "--example"):
        _examples(config).find("labels:3")


@pytest.mark.parametrize("mixed", [False, True])
def test_index_in_one_of_several_array_files(tmp_path, mixed):
    labels = {}
    for name, count in (("a", 30), ("b", 50)):
        path = tmp_path / f"{name}.npz"
        x, y = classes(count, seed=count)
        np.savez(path, x=x, y=y)
        labels[str(path)] = y
    first, second = labels
    data = {"source": "npz", "input_path": f"{first},{second}"}
    if mixed:
        mixture = [{"weight": 1}, {"input_path": second, "weight": 1}]
        data |= {"input_path": first, "mixture": mixture}
    section = {f"task.train_data.{name}": value for name, value in data.items()}
    config = _without_validation_data(
        {"task.train_data.function": '""', "task.validation_split": 0.4} | section
    )

    check_places(config, lambda file, number: str(labels[file][number]))


def test_index_among_all_digits():
    from sklearn.datasets import load_digits

    target = load_digits().target
    check_places(digits_config(), lambda file, number: str(target[number]))


def test_row_of_a_list_of_images(tmp_path):
    labels = write_listed(tmp_path / "set", {"cat": 9, "dog": 8})
    with labels.open() as file:
        listed = list(csv.reader(file))[1:]
    config = digits_config(
        task__train_data__source="image_csv",
        task__train_data__data_dir=str(labels.parent),
        task__train_data__input_path="images",
        task__train_data__labels_file=labels.name,
        task__split={"column": "part"},
        task__train_data__global_batch_size=4,
        task__model__input_size=[16, 16, 3],
    )

    check_places(config, lambda file, number: listed[number - 1][1])
