"""The IDs of examples to exclude: files and lists of them, and the fingerprint of the config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orbit_runner.config.example_ids import UNREADABLE, ids_digest, read_ids
from orbit_runner.config.fingerprint import (
    config_fingerprint,
    excludes_same_examples,
)
from orbit_runner.errors import DataError
from orbit_runner.run_directory.config import is_made_with
from tests.support.digits import digits_config
from tests.support.problems import raises
from tests.support.toy import toy_config


def excluding(ids: Any) -> Any:
    """Returns the config of the digits without some training examples."""
    config = digits_config()
    data = config.task.train_data.replace(exclude=ids)
    return config.replace(task=config.task.replace(train_data=data))


def write_ids(path: Path, text: str) -> str:
    """Writes a file, and returns its path."""
    path.write_text(text)
    return str(path)


def test_file_has_one_id_per_line(tmp_path):
    text = "\ufeff# mislabeled\n 17 \n\n4  # a 9\ntrain/cat #3.png\n a#b.png\n17\n"
    path = write_ids(tmp_path / "ids.txt", text)

    ids = read_ids(path)

    assert [*ids] == ["17", "4", "train/cat", "a#b.png"]
    assert ids["4"] == f"{path}:4"


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0c", "\x1c"])
def test_only_line_feeds_end_the_line_of_an_id(character, tmp_path):
    path = write_ids(tmp_path / "ids.txt", f"17 # a 9{character}18\r\n19\n")

    assert read_ids(path) == {"17": f"{path}:1", "19": f"{path}:2"}


@pytest.mark.parametrize(
    ("content", "code"),
    [(None, "unreadable-file"), (b"# nothing\n\n", "empty-data"), (b"\xff\xfe1", "bad-syntax")],
)
def test_file_without_ids(content, code, tmp_path):
    path = tmp_path / "ids.txt"
    if content is not None:
        path.write_bytes(content)

    with raises(code, kind=DataError) as error:
        read_ids(str(path))
    assert error.value.field == "exclude"
    assert ids_digest(str(path)) == UNREADABLE


def test_fingerprint_depends_on_the_ids_and_not_on_the_file(tmp_path):
    path = write_ids(tmp_path / "ids.txt", "17\n4\n17\n")
    other = write_ids(tmp_path / "other.txt", "# the same\n4\n17")
    more = write_ids(tmp_path / "more.txt", "4\n17\n18")
    every = [(17, 4), ("4", "17", 17), path, other]

    prints = {config_fingerprint(excluding(ids)) for ids in every}

    assert len(prints) == 1
    assert config_fingerprint(digits_config()) not in prints
    assert config_fingerprint(excluding(more)) not in prints
    assert config_fingerprint(excluding((17,))) not in prints
    assert excludes_same_examples(excluding(path), excluding((4, 17)))
    assert not excludes_same_examples(excluding(path), excluding(more))
    assert not excludes_same_examples(excluding(path), excluding(()))


def test_empty_list_keeps_the_fingerprint():
    assert config_fingerprint(excluding(())) == config_fingerprint(digits_config())


def test_run_can_be_read_without_its_file(tmp_path):
    config = excluding(write_ids(tmp_path / "ids.txt", "17\n"))
    fingerprint = config_fingerprint(config)
    assert is_made_with(tmp_path, fingerprint, config)
    assert not is_made_with(tmp_path, config_fingerprint(digits_config()), config)

    (tmp_path / "ids.txt").unlink()

    assert is_made_with(tmp_path, fingerprint, config)
    assert not excludes_same_examples(config, excluding(str(tmp_path / "gone.txt")))


def test_task_without_an_order_is_refused():
    with raises("not-supported", "task.train_data.exclude"):
        toy_config(task__train_data__exclude=[1])

    assert [*excluding((1,)).problems()] == []
