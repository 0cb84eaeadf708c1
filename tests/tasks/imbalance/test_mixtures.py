"""Mixtures of sources, and shares of classes in batches: each task, runs, and bad input."""

from collections import Counter

import numpy as np
import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.serving.loader import make_task
from orbit_runner.step.examples import TrainingOrder
from orbit_runner.tasks.tabular.sources import table_query
from tests.support.array_records import write_array_file
from tests.support.batches import global_batches
from tests.support.digits import digits_config
from tests.support.images import write_folder
from tests.support.keras_models import classes, keras_config
from tests.support.problems import pairs
from tests.support.tables import make_rows, table_config, write_csv, write_parquet
from tests.support.texts import text_config, write_texts
from tests.support.tfrecords import write_file, write_set

_HERE = "tests.tasks.imbalance.test_mixtures"


def far_classes():
    """Returns examples of the same kind as `classes`, from another distribution."""
    x, y = classes(30, seed=5)
    return x + 10, y


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    rows = make_rows()
    write_csv(directory / "a.csv", rows[:80])
    write_parquet(directory / "b.parquet", [{**row, "color": "violet"} for row in rows[80:]])
    write_texts(directory / "first")
    write_texts(directory / "second", train=12)
    write_folder(directory / "left" / "train", {"cat": 9, "dog": 3})
    write_folder(directory / "right" / "train", {"cat": 4, "dog": 5}, first=20)
    write_folder(directory / "left" / "val", {"cat": 2, "dog": 2}, first=40)
    for name, sizes in (("left", (5, 7)), ("right", (9,))):
        for kind, write in (("tfrecord", write_file), ("array_record", write_array_file)):
            (directory / kind / name).mkdir(parents=True)
            write_set(directory / kind / name, sizes, classes=5, write=write)
    return directory


def _table(folder, **changes):
    mixture = [
        {"input_path": str(folder / "a.csv"), "weight": 0.25},
        {"source": "parquet", "input_path": str(folder / "b.parquet"), "weight": 0.75},
    ]
    settings = {"task__split": None, "task__train_data__mixture": mixture}
    return table_config(folder / "a.csv", **{**settings, **changes})


def _text(folder, **changes):
    mixture = [{"weight": 1}, {"data_dir": str(folder / "second"), "weight": 3}]
    return text_config(folder / "first", task__train_data__mixture=mixture, **changes)


def _keras(folder, **changes):
    mixture = [{"weight": 1}, {"function": f"{_HERE}:far_classes", "weight": 3}]
    return keras_config(task__train_data__mixture=mixture, **changes)


def _images(folder, **changes):
    settings = {
        "task__train_data__source": "image_folder",
        "task__train_data__mixture": [
            {"data_dir": str(folder / "left"), "weight": 1},
            {"data_dir": str(folder / "right"), "weight": 3},
        ],
        "task__validation_data__source": "image_folder",
        "task__validation_data__data_dir": str(folder / "left"),
        "task__model__input_size": [8, 8, 3],
    }
    return digits_config(**{**settings, **changes})


def _records(folder, kind, **changes):
    left, right = (str(folder / kind / name / "train-*") for name in ("left", "right"))
    settings = {
        "task__train_data__source": kind,
        "task__train_data__mixture": [
            {"input_path": left, "weight": 1},
            {"input_path": right, "weight": 3},
        ],
        "task__validation_data__source": kind,
        "task__validation_data__input_path": left,
        "task__model__num_classes": 5,
    }
    return digits_config(**{**settings, **changes})


_TASKS = {
    "table": _table,
    "text": _text,
    "keras": _keras,
    "images": _images,
    "tfrecords": lambda folder, **changes: _records(folder, "tfrecord", **changes),
    "array records": lambda folder, **changes: _records(folder, "array_record", **changes),
}


def _second(config, row):
    """Returns whether an example is of the second source."""
    sizes = {"tabular": 80, "keras": 100, "image_classification": 12}
    return bool(row["example"] >= sizes[str(config.task.name)])


@pytest.mark.slow
@pytest.mark.parametrize("name", _TASKS)
def test_runner_batch_names_the_rows_that_the_pipeline_reads(name, folder):
    config = _TASKS[name](folder)
    size = config.task.train_data.global_batch_size
    assert [*config.data.problems()] == []
    task, order = make_task(config, None), TrainingOrder(config, None)
    data = resolve_data_config(config.task.train_data, config.runtime)
    read = global_batches(lambda context: task.build_inputs(data, context, start_step=700), 2, 2, 3)
    numbers = Counter[bool]()
    for step in range(1, 1001):
        rows = order.step(step).chosen if step in (1, 500, 1000) or 700 < step < 704 else None
        if rows is None:
            continue
        numbers.update(_second(config, row) for row in rows)
        if 700 < step < 704:
            labels = [row.get("label", row.get("targets")) for row in rows]
            batch = read[step - 701][1]
            assert _labels(task, batch) == labels
    assert abs(numbers[True] - 6 * size * 0.75) <= 12
    first = order.step(9).chosen[2]
    (description,) = [
        occurrence
        for occurrence in order.occurrences(first["example"], 9)
        if occurrence["step"] == 9 and occurrence["row"] == 2
    ]
    assert description["position"] == first["position"]


def _labels(task, batch):
    if type(task).__name__ != "TabularTask":
        return [int(number) for number in batch]
    ((name, numbers),) = batch.items()
    return [{name: task.fitted.classes[number]} for number in numbers]


def test_rows_of_a_mixture_keep_file_and_row_and_their_texts(folder):
    config = _table(folder)
    part = table_query(config.task).part("train_data")
    assert part.size == 100
    rows = make_rows()
    for number in (0, 79, 80, 99):
        color = "violet" if number >= 80 else rows[number]["color"] or ""
        assert part.column("color").text(number) == color
        assert part.column("size").values[number] == np.float32(rows[number]["size"])
    assert part.location(79).endswith("a.csv, row 80")
    assert part.location(80).endswith("b.parquet, row 1")
    assert "violet" in make_task(config, None).fitted.categorical["color"]


def test_parts_of_a_mixture_are_split_alike(folder):
    config = _table(folder, task__split={"fractions": {"train": 0.5}, "hash_of": ["id"]},
                    task__validation_data__split="train")  # fmt: skip
    part = table_query(config.task).part("train_data")
    assert 30 < part.size < 70
    np.testing.assert_array_equal(part.origins, part.places.all_rows() >= 80)


def _classes_read(config, steps):
    order = TrainingOrder(config, None)
    rows = [row for step in range(1, steps + 1) for row in order.step(step).chosen]
    return Counter(row["targets"]["y"] for row in rows)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [("balanced", {"big": 40, "small": 40}), ("{big: 3, small: 1}", {"big": 60, "small": 20})],
)
def test_classes_have_their_shares_in_the_batches(folder, shares, expected):
    plain = table_config(folder / "a.csv", task__split=None)
    config = table_config(
        folder / "a.csv", task__split=None, task__train_data__class_sampling=shares
    )
    assert _classes_read(config, 10) == expected != _classes_read(plain, 10)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mixture": [{"weight": 1}]}, "got one source, expected two or more"),
        ({"mixture": [{"weight": 0}, {"weight": 0}]}, "all weights are 0"),
        ({"mixture": [{"weight": -1}, {}]}, "got -1.0"),
        ({"mixture": [{"wieght": 1}, {}]}, "did you mean 'weight'?"),
        ({"mixture": [{}, {}], "class_sampling": "balanced"}, "mixture is set, too; remove one"),
        ({"class_sampling": {"big": -2}}, "got -2, expected a number from 0"),
        ({"class_sampling": "balanced", "is_training": False}, "draws training examples"),
    ],
)
def test_shares_that_cannot_be_drawn_are_errors(changes, expected):
    settings = {f"task__train_data__{name}": value for name, value in changes.items()}
    with pytest.raises(ConfigError) as caught:
        table_config("a.csv", **settings)
    assert expected in str(caught.value)


def test_sources_that_do_not_fit_together_are_named(folder, tmp_path):
    rows = [{"size": 1.0, "color": "red", "y": "big", "agee": 2}]
    write_csv(tmp_path / "odd.csv", rows)
    mixture = [{}, {"input_path": str(tmp_path / "odd.csv")}]
    problems = dict(pairs(_table(folder, task__train_data__mixture=mixture).data.problems()))
    assert problems == {
        "train_data.mixture[1]": f"{tmp_path / 'odd.csv'}: has no column 'age'; did you mean "
        f"'agee'?, which {folder / 'a.csv'} of mixture[0] has"
    }
    write_folder(tmp_path / "fish" / "train", {"cat": 1, "fish": 1})
    mixture = [{"data_dir": str(folder / "left")}, {"data_dir": str(tmp_path / "fish")}]
    problems = dict(pairs(_images(folder, task__train_data__mixture=mixture).data.problems()))
    assert (
        "has other classes than mixture[0], image_folder: only here fish; only in mixture[0], "
        "image_folder dog" in (problems["train_data.mixture[1]"])
    )
    mixture = [{}, {"function": "tests.support.keras_models:two_inputs"}]
    problems = dict(pairs(keras_config(task__train_data__mixture=mixture).data.problems()))
    assert (
        "got x.left float32 [2], expected none as in mixture[0]"
        in problems["train_data.mixture[1]"]
    )
