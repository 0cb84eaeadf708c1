"""What a constant prediction reaches is known for each task with classes or numbers, and shown."""

from pathlib import Path

import numpy as np
import pandas
import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.schema.task_data import task_data
from orbit_runner.reporting.report_data import InputData, write_data
from orbit_runner.reporting.results import worse_than_constant
from orbit_runner.tasks.baselines import constant_label
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig
from orbit_runner.tasks.keras.config import KerasConfig, KerasDataConfig
from orbit_runner.tasks.shared_config import TableSplitConfig
from orbit_runner.tasks.tabular.config import TabularConfig, TargetConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from tests.support.images import png
from tests.support.run_directories import write_run

# In training, `usual` is the most frequent class, and the mean is 20.
ROWS = pandas.DataFrame({
    "kind": ["usual", "usual", "rare", "rare", "rare", "usual", "rare"],
    "size": [10.0, 30.0, 20.0, 25.0, 20.0, 10.0, 35.0],
    "x": range(7),
    "part": ["train"] * 3 + ["validation"] * 4,
})  # fmt: skip
SPLIT = TableSplitConfig(column="part")
CLASSES, SIZES = ("majority", 0.25), ("mean", 7.5)  # 1 of 4; |5|, |0|, |-10|, |15| on average


def _sections(kind, **settings):
    return {
        "train_data": kind(is_training=True, **settings),
        "validation_data": kind(is_training=False, **settings),
    }


def _tabular(**target):
    data = _sections(TableDataConfig, source="csv", input_path="a.csv")
    return TabularConfig(target=TargetConfig(**target), split=SPLIT, **data)


def _keras(outputs):
    train = KerasDataConfig(source="csv", input_path="a.csv", is_training=True)
    return KerasConfig(inputs=["x"], outputs=outputs, split=SPLIT, train_data=train)


def _images(config, section):
    for part, counts in (("train", (2, 1)), ("val", (1, 3))):
        for name, count in zip(("cat", "dog"), counts, strict=True):
            folder = Path("set", part, name)
            folder.mkdir(parents=True)
            for number in range(count):
                (folder / f"{number}.png").write_bytes(png(number, 8, 8))
    return config(**_sections(section, source="image_folder", data_dir="set"))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (lambda: _tabular(column="kind"), {"accuracy": CLASSES}),
        (lambda: _tabular(column="size", type="regression"), {"mae": SIZES}),
        (lambda: _keras("kind"), {"accuracy": CLASSES, "sparse_categorical_accuracy": CLASSES}),
        (lambda: _keras("size"), {"mae": SIZES, "mean_absolute_error": SIZES}),
        (lambda: _keras({"a": "kind", "b": "size"}), {"a_accuracy": CLASSES, "b_mae": SIZES}),
        (lambda: _images(ImageClassificationConfig, ImageDataConfig), {"accuracy": CLASSES}),
        (lambda: _images(KerasConfig, KerasDataConfig), {"accuracy": CLASSES}),
    ],
)
def test_each_task_knows_what_a_constant_reaches(config, expected, here):
    ROWS.to_csv("a.csv", index=False)

    baselines = task_data(config()).baselines_of(expected)

    assert {
        name: (text, pytest.approx(result)) for name, (text, result) in baselines.items()
    } == expected


@pytest.mark.parametrize(
    ("train", "validation", "accuracy"),
    [
        ([0, 1, 1], [1, 0, 0, 0], 0.25),
        ([[0.0], [1.0], [1.0]], [[1.0], [0.0]], 0.5),
        ([[0, 1, 0], [0, 1, 0], [1, 0, 0]], [[0, 1, 0], [0, 0, 1]], 0.5),
        ([0.5, 1.5], [0.5], None),
        ([["a"], ["b"]], [["a"]], None),
        ([3e8, 2e8], [3e8], None),  # A name for each class number would fill the memory.
        (np.zeros(10**7 + 1, np.int8), [0], None),
    ],
)
def test_labels_of_keras_have_classes_in_each_form(train, validation, accuracy):
    baselines = constant_label(np.array(train), np.array(validation))
    assert baselines.get("accuracy", ("", None))[1] == accuracy


@pytest.mark.parametrize(
    ("metrics", "baselines", "worse"),
    [
        ({"accuracy": 0.6922}, {"accuracy": ("majority", 0.7593)}, True),
        ({"accuracy": 0.8}, {"accuracy": ("majority", 0.8)}, True),
        ({"rmse": 2.0}, {"rmse": ("mean", 1.9)}, True),
        ({"rmse": 1.8}, {"rmse": ("mean", 1.9)}, False),
        ({"rmse": float("nan")}, {"rmse": ("mean", 1.9)}, True),
    ],
)
def test_a_model_that_is_no_better_is_a_warning(metrics, baselines, worse):
    assert bool(worse_than_constant(metrics, baselines)) == worse


@pytest.mark.parametrize("result", [float("nan"), float("inf"), "broken"])
def test_constant_that_is_not_known_is_not_compared(result, monkeypatch):
    data = task_data(_keras("size"))
    known = {"mae": ("mean", result), "mse": ("mean", 2.0)}
    monkeypatch.setattr(data, "baselines", lambda: known)
    baselines = data.baselines_of(["mae", "mse"])
    assert baselines == ({} if result == "broken" else {"mse": ("mean", 2.0)})


def test_report_shows_the_constant_and_the_warning(tmp_path):
    run = write_run(tmp_path / "a", accuracies={100: 0.5, 200: 0.6, 300: 0.55})
    for result, is_worse in ((0.7593, True), (0.41, False)):
        write_data(run, InputData(baselines={"accuracy": ("majority", result)}))
        assert main(["report", str(run)]) == 0
        page = (run / "report.html").read_text()
        assert f"majority {result}" in page
        assert ("not better than a constant prediction" in page) == is_worse
