"""Fingerprints of datasets: what counts as a change, and what does not."""

import gzip
import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.data import DataConfig
from orbit_runner.config.schema.experiment import TaskConfig
from orbit_runner.config.schema.task_data import task_data
from orbit_runner.data.fingerprint import (
    DataDifference,
    DataFile,
    Fingerprint,
    compare,
    content_digest,
    describe_arrays,
    describe_files,
)
from orbit_runner.data.text.packed_varints import encode_varint, example_of
from orbit_runner.data.tfrecord.framing import masked_crc32c
from orbit_runner.run_directory.data_record import (
    DataChanged,
    DataRecord,
    fingerprint_of,
    inexact_data,
    read_record,
)
from orbit_runner.tasks.image_classification import sources as of_images
from orbit_runner.tasks.recommendation import sources as of_ratings

SAME = DataDifference()
_PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x08\0\0\0\x08\x08\0\0\0\0\xe1d\xe1W\0\0\0\x0fIDATx\x9cc"
    b"`\x18\x05\xa3\x60\x14\0\0\x02\x48\0\x01\0\0\0\0IEND\xaeB`\x82"
)


def _checksum(data: bytes) -> bytes:
    return masked_crc32c(np.frombuffer(data, np.uint8)[np.newaxis]).astype("<u4").tobytes()


def _frame(data: bytes) -> bytes:
    length = len(data).to_bytes(8, "little")
    return length + _checksum(length) + data + _checksum(data)


def _example(label: int) -> bytes:
    image = b"\x0a" + encode_varint(len(_PNG)) + _PNG
    number = bytes([0x1A, 3, 0x0A, 1, label])
    return example_of(
        {"image/encoded": b"\x0a" + encode_varint(len(image)) + image, "image/class/label": number}
    )


_EXAMPLE, _OTHER = _example(7), _example(8)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _rows(*rows: DataFile) -> Fingerprint:
    return {"train_data": [*rows]}


def _fingerprint(experiment: str, overrides: Sequence[str]) -> Fingerprint:
    """Returns a fingerprint as another process would compute it."""
    of_images._load_cached.cache_clear()
    of_ratings._load.cache_clear()
    task = resolve(Request(experiment=experiment, params_overrides=tuple(overrides))).config.task
    assert list(task_data(task).problems()) == []
    return fingerprint_of(task)


def test_moved_dataset_has_the_same_fingerprint(tmp_path: Path) -> None:
    first = tmp_path / "a"
    first.mkdir()
    for name in ("x", "y"):
        (first / name).write_text(name)
    before = _rows(*describe_files([first / "x", first / "y"], content_digest))
    shutil.move(first, tmp_path / "b")
    moved = [tmp_path / "b" / name for name in ("x", "y")]
    for path in moved:
        os.utime(path, (1, 1))
    assert compare(before, _rows(*describe_files(moved, content_digest))) == SAME


@pytest.mark.parametrize(
    ("before", "now", "change", "note"),
    [
        ([("a", 5, 1, "")], [("a", 6, 2, "")], "a: 6 bytes, previously 5 bytes; modified ", ""),
        ([("a", 5, 1, "")], [("a", 5, 2, "")], "", "a: modified "),
        ([("a", 5, 1, "")], [("a", 5, 1, "")], "", ""),
        ([("a", 5, 1, "k:1")], [("a", 5, 2, "k:1")], "", ""),
        ([("a", 5, 1, "k:1")], [("a", 5, 1, "k:2")], "a: different contents, same size", ""),
        ([("a", 5, 1, "k:1")], [("a", 9, 1, "k:1")], "", ""),
        ([("a", 5, 1, "k:1")], [("b", 5, 1, "k:1")], "", ""),
        ([("a", 5, 1, "k:1")], [("a", 5, 1, "other:2")], "", ""),
        ([("a", 5, 1, ""), ("b", 7, 1, "")], [("a", 5, 1, "")],
         "b: missing, previously 7 bytes", ""),
        ([("a", 5, 1, "")], [("a", 5, 1, ""), ("b", 7, 1, "")], "b: new, 7 bytes", ""),
        ([("a", 5, 1, ""), ("b", 5, 1, "")], [("b", 5, 1, ""), ("a", 5, 1, "")],
         "the same files in a different order", ""),
    ],
)  # fmt: skip
def test_compare_classifies_differences_as_changes_or_notes(
    before: list[tuple[str, int, int, str]],
    now: list[tuple[str, int, int, str]],
    change: str,
    note: str,
) -> None:
    found = compare(*(_rows(*(DataFile(*row) for row in rows)) for rows in (before, now)))
    for lines, expected in ((found.changes, change), (found.notes, note)):
        assert len(lines) == bool(expected)
        assert all(line.startswith(f"train_data: {expected}") for line in lines)


def test_only_sections_present_in_both_are_compared() -> None:
    row = DataFile("a", 1)
    assert compare({"train_data": [row]}, {"validation_data": [row]}) == SAME


def test_digest_of_arrays_depends_on_values_and_dtype() -> None:
    first, same, other, typed = (
        describe_arrays({"x": np.array(numbers)}) for numbers in ([1, 2], [1, 2], [1, 3], [1.0, 2])
    )
    assert first == same
    assert len({rows[0].digest for rows in (first, other, typed)}) == 3


def _both(*settings: str) -> list[str]:
    sections = ("train_data", "validation_data")
    return [f"task.{section}.{setting}" for section in sections for setting in settings]


def _cifar(folder: Path) -> list[str]:
    rows = np.random.default_rng(0).integers(0, 10, (4, 3073)).astype(np.uint8)
    for name in (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"):
        rows.tofile(folder / name)
    return _both("source=cifar10", f"data_dir={folder}")


def _records(folder: Path) -> list[str]:
    (folder / "train-0").write_bytes(_frame(_EXAMPLE) * 3)
    return [*_both("source=tfrecord", f"input_path={folder}/train-*"), "task.model.num_classes=10"]


def _images(folder: Path) -> list[str]:
    for split, name in itertools.product(("train", "val"), ("cat", "dog")):
        (folder / split / name).mkdir(parents=True)
        for number in range(2):
            (folder / split / name / f"{number}.png").write_bytes(_PNG)
    return [*_both("source=image_folder", f"data_dir={folder}"), "task.model.input_size=[8,8,1]"]


def _ratings(folder: Path) -> list[str]:
    lines = [f"{user}\t{item}\t3\t{item}\n" for user in range(5) for item in range(30)]
    (folder / "u.data").write_text("".join(lines))
    return [
        *_both("source=movielens", f"data_dir={folder}", "min_interactions=2"),
        "task.validation_data.num_eval_negatives=0",
    ]


def _text(folder: Path) -> list[str]:
    for name in ("train.en", "train.de", "val.en", "val.de"):
        (folder / name).write_text("one line\nand another\n")
    return [
        *_both("source=parallel_text"),
        f"task.train_data.input_path=[{folder}/train.en, {folder}/train.de]",
        f"task.validation_data.input_path=[{folder}/val.en, {folder}/val.de]",
    ]


def _write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def _gzip(folder: Path) -> None:
    text = (folder / "train.de").read_bytes()
    (folder / "train.de").write_bytes(gzip.compress(text))


@pytest.mark.parametrize(
    ("experiment", "write", "change", "line"),
    [
        ("resnet_cifar", _cifar, lambda folder: os.truncate(folder / "data_batch_5.bin", 3073),
         "train_data: data_batch_5.bin: 3,073 bytes, previously 12,292 bytes"),
        ("digits", _records, _write("train-0", _frame(_EXAMPLE) * 2 + _frame(_OTHER)),
         "train_data: train-0: different contents, same size"),
        ("digits", _records, lambda folder: os.utime(folder / "train-0", (1, 1)), ""),
        ("digits", _images, lambda folder: (folder / "train/dog/1.png").unlink(),
         "train_data: dog: 1 file, "),
        ("digits", _images, lambda folder: (folder / "train/dog/1.png").rename(
            folder / "train/dog/7.png"), "train_data: dog: different contents, same size"),
        ("ncf_movielens", _ratings, lambda folder: os.truncate(folder / "u.data", 50 * 5),
         "train_data: u.data: 250 bytes, previously "),
        ("transformer_multi30k", _text, _write("train.de", b"one line\nand another.\n"),
         "train_data: train.de: "),
        ("transformer_multi30k", _text, _gzip, ""),
    ],
)  # fmt: skip
def test_fingerprint_of_each_source_detects_changed_contents(
    experiment: str,
    write: Callable[[Path], Sequence[str]],
    change: Callable[[Path], object],
    line: str,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    overrides = write(folder)
    before = _fingerprint(experiment, overrides)
    assert compare(before, _fingerprint(experiment, overrides)) == SAME
    change(folder)
    changes = compare(before, _fingerprint(experiment, overrides)).changes
    assert bool(changes) == bool(line)
    assert changes[:1] == () or changes[0].startswith(line), changes


def test_default_fingerprint_covers_files_from_data_settings(
    tmp_path: Path,
) -> None:
    for name in ("train-0", "train-1", "words.txt"):
        (tmp_path / name).write_text(name)
    prepared = tmp_path / "some" / "1.0.0"
    prepared.mkdir(parents=True)
    (prepared / "some-test.tfrecord").write_text("records")
    task = TaskConfig(
        train_data=DataConfig(input_path=f"{tmp_path}/train-*"),
        validation_data=DataConfig(
            tfds_name="some:1.0.0", tfds_data_dir=str(tmp_path), input_path="gs://not/here"
        ),
    )
    found = fingerprint_of(task)
    names = {section: [row.name for row in rows] for section, rows in found.items()}
    assert names == {
        "train_data": ["train-0", "train-1"],
        "validation_data": ["some-test.tfrecord"],
    }
    assert {row.digest for rows in found.values() for row in rows} == {""}


def test_data_record_round_trips_and_logs_changed_data_on_resume(
    tmp_path: Path,
) -> None:
    first, second = _rows(DataFile("a", 5, 1, "k:1")), _rows(DataFile("a", 6, 2, "k:2"))
    DataRecord(tmp_path, first).on_run_begin(SimpleNamespace(step=0))
    assert read_record(tmp_path) == (first, [])
    changed = DataRecord(tmp_path, second)
    with pytest.raises(DataChanged, match="train_data: a: 6 bytes, previously 5 bytes"):
        changed.check()
    changed.on_run_begin(SimpleNamespace(step=40))
    DataRecord(tmp_path, second).check()
    assert [change["step"] for change in read_record(tmp_path)[1]] == [40]
    assert inexact_data(tmp_path) == ["it resumed at step 40 with different data"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff", b'{"format": 2}', b'{"format": 1, "sections": 3}',
                b'{"format": 1, "sections": {"a": [{"name": 1}]}, "changes": []}']
)  # fmt: skip
def test_damaged_data_record_is_reported_and_renamed(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_bytes(content)
    record = DataRecord(tmp_path, _rows(DataFile("a", 5)))
    record.check()
    (note,) = record.notes()
    assert note.startswith(f"{tmp_path / 'data.json'}: cannot be read")
    record.on_run_begin(SimpleNamespace(step=0))
    assert (tmp_path / "data.json.damaged").read_bytes() == content
    assert read_record(tmp_path) == (_rows(DataFile("a", 5)), [])
