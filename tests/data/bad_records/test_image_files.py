"""Image files that cannot be decoded are left out up to `max_bad_records`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.bad_records import decoding
from orbit_runner.data.bad_records.decoding import find_undecodable
from orbit_runner.data.images.files import FileSource
from orbit_runner.errors import DataError
from orbit_runner.tasks.image_classification.sources import load_source
from orbit_runner.utils.log import PlainMessages, log_scope
from tests.support.digits import digits_config
from tests.support.images import cut_short, write_folder, write_listed
from tests.support.problems import raises
from tests.support.toy import run

LIMIT = "task__train_data__max_bad_records"


def _config(folder: Path, **changes: Any) -> ExperimentConfig:
    settings: dict[str, Any] = {
        "task__model__input_size": [12, 10, 3],
        "task__model__num_classes": 3,
        "trainer__train_steps": 3,
        "trainer__validation_interval": 3,
    }
    for section in ("train_data", "validation_data"):
        settings |= {
            f"task__{section}__source": "image_folder",
            f"task__{section}__data_dir": str(folder),
            f"task__{section}__global_batch_size": 8,
        }
    return digits_config(**{**settings, **changes})


def _load(config: ExperimentConfig) -> FileSource:
    source = load_source(config.task.train_data)  # type: ignore[arg-type]
    assert isinstance(source, FileSource)
    return source


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, list[Path]]]:
    """A directory with bad files, one without them, and the bad files; one cache for all tests."""
    above = tmp_path_factory.mktemp("images")
    damaged, clean = above / "damaged", above / "clean"
    write_folder(damaged / "train", {"ant": 7, "bee": 9, "cat": 8})
    write_folder(damaged / "val", {"ant": 3, "bee": 3, "cat": 4}, first=50)
    shutil.copytree(damaged, clean)
    train = sorted((damaged / "train").rglob("*.*"))
    # The first file of all decides on the image size if it can be decoded.
    bad = [train[0], train[9], train[-1]]
    for path, content in zip(bad, (b"", b"rubbish" * 20, cut_short()), strict=True):
        path.write_bytes(content)
        (clean / path.relative_to(damaged)).unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(above / "cache"))
        yield damaged, clean, bad


@pytest.mark.slow
def test_bad_files_are_left_out_as_if_they_did_not_exist(
    folders: tuple[Path, Path, list[Path]],
) -> None:
    damaged, clean, bad = folders
    notes: list[str] = []
    with log_scope(PlainMessages(notes.append)):
        found = _load(_config(damaged, **{LIMIT: 3}))
        expected = _load(_config(clean))
    assert [Path(path).relative_to(damaged) for path in found.paths] == [
        Path(path).relative_to(clean) for path in expected.paths
    ]
    np.testing.assert_array_equal(found.label, expected.label)
    assert found.image_shape == expected.image_shape
    assert [row.digest for row in found.data_files()] == [
        row.digest for row in expected.data_files()
    ]
    (text,) = [note for note in notes if "max_bad_records" in note]
    assert "3 of 24 images cannot be read and are left out, at most 3 (max_bad_records)" in text
    assert all(text.count(f"{path}: cannot be decoded") == 1 for path in bad)


@pytest.mark.slow
def test_file_that_cannot_be_opened_is_a_bad_one(
    folders: tuple[Path, Path, list[Path]], tmp_path: Path
) -> None:
    _, clean, _ = folders
    missing = tmp_path / "missing.png"
    (good, *_) = _load(_config(clean)).paths
    problems = decoding.find_undecodable({"images": [good, str(missing)]}, "images", 2)

    assert problems == {1: f"{missing}: cannot be read (No such file or directory)"}


@pytest.mark.slow
def test_result_is_cached_until_a_file_changes(
    folders: tuple[Path, Path, list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged, _, bad = folders
    _load(_config(damaged, **{LIMIT: 3}))

    def fail(*_: Any) -> dict[int, str]:
        raise AssertionError("images were decoded again")

    monkeypatch.setattr(decoding, "find_undecodable", fail)
    with pytest.raises(DataError) as caught:
        _load(_config(damaged, **{LIMIT: 2}))
    said = str(caught.value)
    assert "3 of 24 images cannot be read, more than max_bad_records=2" in said
    assert all(f"{path}: cannot be decoded" in said for path in bad)
    assert caught.value.field == "max_bad_records"
    shutil.copytree(damaged, tmp_path / "copy")
    assert _load(_config(tmp_path / "copy")).size == 24  # By default, nothing is decoded.
    with pytest.raises(AssertionError, match="decoded again"):
        _load(_config(tmp_path / "copy", **{LIMIT: 3}))


@pytest.mark.slow
def test_failure_of_the_process_that_decodes_is_an_error(tmp_path: Path) -> None:
    request = {"records": [str(tmp_path / "none")], "image": "image", "label": "label"}
    with raises("server-failed") as caught:
        find_undecodable(request, "records", 1)
    assert caught.value.field == "max_bad_records"


@pytest.mark.slow
def test_weights_are_those_without_the_bad_files(
    folders: tuple[Path, Path, list[Path]], tmp_path: Path
) -> None:
    damaged, clean, _ = folders
    model, _ = run(_config(damaged, **{LIMIT: 5}), tmp_path / "damaged", "train")
    other, _ = run(_config(clean), tmp_path / "clean", "train")
    for one, two in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.slow
def test_rows_of_bad_images_in_a_csv_file_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_listed(tmp_path, {"ant": 9, "bee": 10, "cat": 11})
    settings = {
        f"task__{section}__{name}": value
        for section in ("train_data", "validation_data")
        for name, value in {
            "source": "image_csv",
            "input_path": "images",
            "labels_file": "labels.csv",
            "labels_split": {"column": "part"},
        }.items()
    }
    whole = _load(_config(tmp_path, **settings))
    Path(whole.paths[4]).write_bytes(b"rubbish")

    found = _load(_config(tmp_path, **settings, **{LIMIT: 1}))

    kept = [number for number in range(whole.size) if number != 4]
    assert list(found.paths) == [whole.paths[number] for number in kept]
    assert whole.listed is not None
    assert found.listed is not None
    assert [found.listed.row_location(n) for n in range(found.size)] == [
        whole.listed.row_location(n) for n in kept
    ]
    assert found.label.tolist() == whole.label[kept].tolist()


def test_limit_does_not_change_the_fingerprint(tmp_path: Path) -> None:
    assert config_fingerprint(_config(tmp_path)) == config_fingerprint(
        _config(tmp_path, **{LIMIT: 5})
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"task__train_data__source": "digits"}, "no-effect"),
        ({"task__train_data__max_bad_images": 1}, "conflict"),
    ],
)
def test_limit_is_refused_if_it_has_no_effect(
    tmp_path: Path, changes: dict[str, Any], code: str
) -> None:
    with raises(code, "task.train_data.max_bad_records"):
        _config(tmp_path, **{LIMIT: 1}, **changes)
