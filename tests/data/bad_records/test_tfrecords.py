"""Records that cannot be read are left out of TFRecord files up to `max_bad_records`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.fingerprint import compare
from orbit_runner.data.tfrecord.framing import HEAD_BYTES, record_starts
from orbit_runner.data.tfrecord.pipeline import eval_records, train_records
from orbit_runner.data.tfrecord.source import RecordSource, load
from orbit_runner.errors import DataError
from orbit_runner.tasks.image_classification.sources import load_source
from orbit_runner.utils.log import PlainMessages, log_scope
from tests.support.digits import digits_config
from tests.support.tfrecords import example, pixels, write_file

SIZES = (70, 130)
# By the number of the record in both files: no label, no tf.Example, no image, a wrong checksum.
# Two are next to each other, one is the first of all, and one the first of a block.
BAD = {0: b"", 5: b"\xff rubbish", 6: None, 70 + 64: "no image", 70 + 129: "checksum"}
_TRAIN = "task__train_data__"


def _record(number: int, *, clean: bool) -> bytes:
    fault = BAD.get(number)
    good = example(tf.io.encode_png(pixels(number)).numpy(), number)
    if clean or number not in BAD or fault == "checksum":
        return good
    if isinstance(fault, bytes):
        return fault
    if fault == "no image":
        return example(b"rubbish" * 9, number)
    message = tf.train.Example.FromString(good)
    del message.features.feature["image/class/label"]
    return message.SerializeToString()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A directory with bad records and one that lacks them; one cache for all tests."""
    above = tmp_path_factory.mktemp("records")
    damaged, clean = above / "damaged", above / "clean"
    first = 0
    for number, size in enumerate(SIZES):
        every = range(first, first + size)
        for folder in (damaged, clean):
            folder.mkdir(exist_ok=True)
        write_file(damaged / f"train-{number}", [_record(k, clean=False) for k in every])
        good = [_record(k, clean=True) for k in every if k not in BAD]
        write_file(clean / f"train-{number}", good)
        first += size
    path = damaged / "train-1"
    content = bytearray(path.read_bytes())
    # The last record of the file: one byte of the image.
    content[_last_start(path) + HEAD_BYTES + 40] ^= 1
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(above / "cache"))
        yield damaged, clean


def _last_start(path: Path) -> int:
    offset = 0
    while True:
        starts = record_starts(path, offset)
        if starts[-1] == path.stat().st_size:
            return starts[-2]
        offset = starts[-1]


def _load(folder: Path, limit: int = 0) -> RecordSource:
    return load(data_dir=str(folder), input_path=["train-*"], max_bad_records=limit)


def _labels(source: RecordSource, **settings: Any) -> list[int]:
    batches = train_records(source, global_batch_size=13, seed=3, **settings)
    epoch = -(-source.size // 13)
    return [int(n) for batch in batches.take(epoch) for n in batch["label"]]


@pytest.mark.slow
def test_bad_records_are_counted_and_listed(folders: tuple[Path, Path]) -> None:
    notes: list[str] = []
    with log_scope(PlainMessages(notes.append)):
        source = _load(folders[0], 5)
    assert source.left_out_records == tuple(BAD)
    assert source.size == sum(SIZES) - len(BAD)
    (text,) = [note for note in notes if "max_bad_records" in note]
    first, second = folders[0] / "train-0", folders[0] / "train-1"
    assert "5 of 200 records cannot be read and are left out, at most 5" in text
    assert f"{first}: record 0 at byte 0: got features (none)" in text
    assert f"{first}: record 5 at byte " in text
    assert f"{first}: record 6 at byte " in text
    assert "image/encoded cannot be decoded" in text
    assert f"{second}: record 129 at byte {_last_start(second)}: the data do not match" in text


@pytest.mark.slow
def test_records_in_stored_order_are_those_of_files_without_the_bad_ones(
    folders: tuple[Path, Path],
) -> None:
    found, expected = _load(folders[0], 5), _load(folders[1])
    assert found.image_shape == expected.image_shape
    assert _labels(found) == _labels(expected)
    one, two = (eval_records(source, global_batch_size=64) for source in (found, expected))
    for (batch, weight), (other, other_weight) in zip(one, two, strict=True):
        np.testing.assert_array_equal(batch["image"], other["image"])
        np.testing.assert_array_equal(weight, other_weight)


@pytest.mark.slow
@pytest.mark.parametrize("buffer", [7, 1000])
def test_shuffled_epoch_has_each_other_record_once_from_any_step(
    folders: tuple[Path, Path], buffer: int
) -> None:
    source = _load(folders[0], 5)
    whole = _labels(source, shuffle_buffer_size=buffer)
    epoch = whole[: source.size]
    assert sorted(epoch) == [number for number in range(sum(SIZES)) if number not in BAD]
    resumed = _labels(source, shuffle_buffer_size=buffer, start_step=7)
    assert resumed[: len(whole) - 7 * 13] == whole[7 * 13 :]


def _config(folder: Path, **changes: Any) -> ExperimentConfig:
    settings: dict[str, Any] = {"task__model__num_classes": sum(SIZES)}
    for section in ("train_data", "validation_data"):
        settings |= {
            f"task__{section}__source": "tfrecord",
            f"task__{section}__data_dir": str(folder),
            f"task__{section}__input_path": "train-*",
            f"task__{section}__max_bad_records": 5,
        }
    return digits_config(**{**settings, f"{_TRAIN}global_batch_size": 16, **changes})


@pytest.mark.slow
def test_examples_of_a_step_are_named_by_their_file_and_record(
    folders: tuple[Path, Path],
) -> None:
    config = _config(folders[0], **{f"{_TRAIN}shuffle_buffer_size": 50})
    data = config.task.train_data
    examples = config.data.training_examples(data, None)
    batches = train_records(
        load_source(data),  # type: ignore[arg-type]
        global_batch_size=16,
        seed=data.seed or 0,
        shuffle_buffer_size=50,
    )
    firsts = {"train-0": 0, "train-1": SIZES[0]}
    for step, batch in enumerate(batches.take(14)):
        rows = examples.order.rows(step)
        found = examples.describe(rows, np.arange(16))
        numbers = [firsts[Path(one["file"]).name] + one["record"] for one in found]
        assert numbers == batch["label"].numpy().tolist()
        assert numbers == [one["label"] for one in found]


@pytest.mark.slow
def test_other_bad_records_are_other_data(folders: tuple[Path, Path]) -> None:
    source = load_source(_config(folders[0]).task.train_data)  # type: ignore[arg-type]
    assert isinstance(source, RecordSource)
    now = {"train_data": source.data_files()}
    before = {"train_data": now["train_data"][:-1]}
    (line,) = compare(before, now).changes
    assert line.startswith("train_data: records left out: new")
    assert not compare(now, now).changes


def test_more_bad_records_than_the_limit_are_an_error_with_a_list(
    folders: tuple[Path, Path],
) -> None:
    with pytest.raises(DataError) as caught:
        _load(folders[0], 4)
    assert "5 of 200 records cannot be read, more than max_bad_records=4" in str(caught.value)
    assert f"{folders[0] / 'train-0'}: record 5 at byte" in str(caught.value)
    assert caught.value.field == "max_bad_records"
