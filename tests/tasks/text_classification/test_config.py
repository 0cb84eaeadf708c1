"""Settings of text classification, and the checks of its files before a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orbit_runner.config.errors import ConfigError
from tests.support.problems import pairs
from tests.support.tables import write_csv
from tests.support.texts import TRANSFORMER, text_config, write_texts

CSV: dict[str, Any] = {
    f"task__{section}__{name}": value
    for section in ("train_data", "validation_data")
    for name, value in (("source", "csv"), ("files", None))
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_texts(tmp_path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"task__model__name": "gpt"}, "allowed: bag_of_words, transformer"),
        ({"task__text__column": "''"}, "task.text.column — --task.text.column\n    is not set"),
        ({"task__text__tokenizer": "letters"}, "allowed: 'words', 'subwords'"),
        ({"task__train_data__source": "text"}, "unknown data source 'text'"),
        ({"task__train_data__files": None}, "is not set; for example, {en: train.en"),
        ({"task__train_data__files__german": 3}, "german: got 3, expected the name of a file"),
        ({"task__train_data__source": "csv"}, "is read only by source 'text_files', got source"),
        ({"task__train_data__split": "train"}, "got 'train', but task.split is not set"),
        ({"task__metrics": ["accuracy"]}, "task.metrics"),
        ({**TRANSFORMER, "task__model__embedding_width": 7}, "got 7, expected an even number"),
        ({**TRANSFORMER, "task__model__embedding_width": 10,
          "task__model__num_attention_heads": 4}, "got 4, expected a divisor of the width, 10"),
    ],
)  # fmt: skip
def test_contradictory_settings_are_rejected(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        text_config("data", **changes)
    assert expected in str(caught.value)


def _problems(folder: Path, **changes: Any) -> dict[str, str]:
    return dict(pairs(text_config(folder, **changes).data.problems()))


def test_files_are_found_plain_or_packed(folder: Path) -> None:
    assert _problems(folder) == {}
    others = write_texts(folder / "others")
    (others / "val.de").unlink()
    assert _problems(others) == {
        "validation_data.files": f"text_files: no file matches {others / 'val.de'}, plain or with "
        ".gz"
    }


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"task__text__column": "tex"}, "text.column", "did you mean 'text'?"),
        ({"task__label_column": "lable"}, "label_column", "did you mean 'label'?"),
        ({"task__train_data__files__german": "train.en"}, "train_data.files",
         "train.en.gz is listed twice"),
        ({"task__validation_data__files": {"a": "val.de", "b": "val.*"}},
         "validation_data.files", "val.de is listed twice"),
        ({"task__train_data__input_path": "train.en"}, "train_data.input_path",
         "list the files of each class in `files`"),
        ({"task__split__column": "part"}, "split.column", "unknown column 'part'"),
    ],
)  # fmt: skip
def test_problems_of_files_name_their_setting(
    folder: Path, changes: dict[str, Any], field: str, message: str
) -> None:
    found = _problems(folder, **changes)
    assert message in found[field]
    assert list(found) == [field]


@pytest.mark.parametrize(
    ("rows", "field", "message"),
    [
        ([("one", "a"), ("two", ""), ("three", "b")], "label_column",
         "column 'label' has no value in {path}, row 2\n"),
        ([("one", "a"), ("two", "a")], "label_column", "has only the class 'a' in training"),
        ([("", "a"), ("", "b")], "text", "column 'text' has no values in training"),
    ],
)  # fmt: skip
def test_problems_of_rows_name_file_and_row(
    rows: list[tuple[str, str]], field: str, message: str, tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "a.csv", [{"text": t, "label": c} for t, c in rows])
    found = _problems(tmp_path, **CSV)
    assert message.format(path=path) in found[field]
