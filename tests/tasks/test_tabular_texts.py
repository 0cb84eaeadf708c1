"""Text columns of tables: tokens beside numbers and categories, in training and serving."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.config.errors import ConfigError
from orbit_runner.data.tables.columns import Column
from orbit_runner.tasks.tabular.config import TextColumnConfig
from orbit_runner.tasks.tabular.layers import TextColumnMeans, TokenMean
from orbit_runner.tasks.tabular.preprocessing import PREPROCESSING_FILE, fit_text
from orbit_runner.tasks.tabular.serving import RowPredictor
from orbit_runner.tasks.tabular.task import TabularTask
from tests.support.tables import make_rows, table_config, write_csv
from tests.support.toy import run_and_resume

FEATURES: dict[str, Any] = {
    "numeric": ["size"],
    "categorical": ["color"],
    "text": [{"column": "note", "max_length": 3}, "about me"],
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        {
            **row,
            "note": None if n % 7 == 2 else f"{row['y']} number{n % 10} end rest",
            "about me": ("hello world", "Hello there!")[n % 2],
        }
        for n, row in enumerate(make_rows())
    ]
    return write_csv(tmp_path_factory.mktemp("table") / "a.csv", rows)


def _column(*texts: str) -> Column:
    known = sorted({text for text in texts if text})
    codes = [known.index(text) if text else -1 for text in texts]
    return Column("c", "category", np.array(codes, np.int32), tuple(known))


def test_words_are_ordered_by_their_number_in_the_training_rows() -> None:
    column = _column("b a", "B, c", "b a", "d", "d", "d", "")
    fitted = fit_text(TextColumnConfig(column="c", max_length=2), column)
    assert fitted.words == ("b", "d", "a", "c")
    assert fitted.size == 6
    assert fitted.tokens(_column("d A b", "new b", "", "?!")).tolist() == [
        [3, 4], [1, 2], [0, 0], [0, 0],
    ]  # fmt: skip
    assert fitted.decode([[3, 4], [1, 2], [0, 0]]) == ["d a", "⁇ b", ""]


def test_tokens_are_embedded_and_averaged_without_padding() -> None:
    layer = TokenMean(5, 2)
    tokens = tf.constant([[2, 4, 0], [0, 0, 0], [1, 0, 0]])
    found = layer(tokens).numpy()
    table = layer.table.numpy()
    np.testing.assert_allclose(found, [(table[2] + table[4]) / 2, [0, 0], table[1]], rtol=1e-6)
    both = TextColumnMeans([5, 5], [2, 3], [1, 2])
    result = both(tokens).numpy()
    first, second = (mean.table.numpy() for mean in both.means)
    np.testing.assert_allclose(result[0], [*first[2], *second[4]], rtol=1e-6)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"text": ["color"]}, "task.features.text[0].column"),
        ({"text": ["a", "a"]}, "'a' is listed twice"),
        ({"text": [{"max_length": 3}]}, "is not set"),
        ({"text": ["y"]}, "'y' is also a feature"),
    ],
)
def test_contradictory_text_columns_are_rejected(features: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        table_config("a.csv", task__features={"categorical": ["color"], **features})
    assert expected in str(caught.value)


def test_batches_have_the_tokens_of_all_text_columns(path: Path) -> None:
    config = table_config(path, task__features=FEATURES)
    task = TabularTask(config.task)  # type: ignore[arg-type]
    assert list(config.data.problems()) == []
    found = task.arrays(config.task.validation_data).arrays["features"]
    part = task.part(config.task.validation_data)
    note, about = (task.fitted.texts[name] for name in ("note", "about me"))
    assert found["tokens"].shape == (part.size, 3 + 64)
    assert found["numeric"].shape == found["categorical"].shape == (part.size, 1)
    notes, abouts = note.decode(found["tokens"][:, :3]), about.decode(found["tokens"][:, 3:])
    for row in range(part.size):
        assert notes[row] == " ".join(part.column("note").text(row).split()[:3])
        assert abouts[row] == part.column("about me").text(row).lower().strip("!")


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["mirrored2", "one_device"])
@pytest.mark.parametrize("model", ["mlp", "wide_deep"])
def test_stopped_and_resumed_run_gets_the_same_weights(
    path: Path, tmp_path: Path, model: str, strategy: str
) -> None:
    config = table_config(path, task__features=FEATURES, task__model__name=model)
    run_and_resume(config, tmp_path, strategy)
    assets = [tmp_path / name / "assets" / PREPROCESSING_FILE for name in ("parts", "whole")]
    assert assets[0].read_bytes() == assets[1].read_bytes()
    task = TabularTask(config.task, logging_dir=str(tmp_path / "parts"))
    assert task.fitted == TabularTask(config.task).fitted


def test_signature_and_predictor_take_raw_texts(path: Path) -> None:
    config = table_config(path, task__features=FEATURES)
    task = TabularTask(config.task)  # type: ignore[arg-type]
    model, generator = task.build_model(), np.random.default_rng(2)
    for variable in model.trainable_variables:
        variable.assign(generator.normal(size=variable.shape))
    serving = task.serving(model)
    part = task.part(config.task.validation_data)
    names = ["size", "color", "note", "about me"]
    columns = [[part.column(name).text(row) for name in names] for row in range(9)]
    lines = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in columns]
    predictor = task.predictor(serving.signatures)
    assert isinstance(predictor, RowPredictor)
    found = predictor.predict([*predictor.items(["-"], io.StringIO("".join(lines)))])

    arrays = task.arrays(config.task.validation_data).arrays["features"]
    inputs = {name: array[:9] for name, array in arrays.items()}
    inputs["numeric"] = np.array([[float(row[0] or "nan")] for row in columns], np.float32)
    expected = tf.nn.softmax(model(inputs)["y"]).numpy()
    classes = task.fitted.classes["y"]
    for one, shares in zip(found, expected, strict=True):
        assert "new_categories" not in one.data
        given = [one.data["y"]["probabilities"][name] for name in classes]
        np.testing.assert_allclose(given, shares, rtol=1e-4, atol=1e-6)
    new = json.dumps({"size": 1, "color": "red", "note": "quite new", "about me": None})
    (answer,) = predictor.predict([*predictor.items(["-"], [new])])
    assert "error" not in answer.data


def test_synthetic_tables_have_text_columns() -> None:
    changes = {
        f"task__{section}__source": "synthetic" for section in ("train_data", "validation_data")
    }
    config = table_config(
        "", task__features={"numeric": [], "categorical": [], "text": ["t"]}, **changes
    )
    task = TabularTask(config.task)  # type: ignore[arg-type]
    assert list(config.data.problems()) == []
    features = task.arrays(config.task.train_data).arrays["features"]
    assert list(features) == ["tokens"]
    assert len(task.fitted.texts["t"].words) == 100
