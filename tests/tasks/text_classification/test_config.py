"""Settings of text classification, and the checks of its files before a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.problems import pairs
from tests.support.texts import text_config, write_texts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_texts(tmp_path)


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
