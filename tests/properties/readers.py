"""The readers of files, with valid files for each."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import parquet

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml
from orbit_runner.data.images import csv_labels
from orbit_runner.data.ratings.interactions import leave_one_out
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.data.tables.build import read_table
from orbit_runner.data.tables.columns import CATEGORY, NUMBER
from orbit_runner.data.tables.dataset import TableOptions
from orbit_runner.data.text import parallel_text
from orbit_runner.data.text.lines import count_lines, read_lines
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary, build_vocabulary
from orbit_runner.data.tfrecord import source as tfrecord
from orbit_runner.data.tfrecord.example import example_problem
from orbit_runner.datasets import cifar10, movielens
from orbit_runner.datasets.mnist import read_idx
from orbit_runner.errors import RunnerError
from orbit_runner.registry import TABLE_SOURCES
from orbit_runner.run_directory.config import read_settings
from orbit_runner.run_directory.run_reader import RunReader
from orbit_runner.tasks.keras.sources import read_files as read_keras_files
from tests.support.records import example_of, frame_records
from tests.support.samples import png

_ROWS = [
    {"size": 1.5, "color": "red", "age": 3, "y": "a"},
    {"size": -2.25, "color": "blue, dark", "age": None, "y": "b"},
    {"size": 1e3, "color": None, "age": 7, "y": "a"},
]
_CSV = b'size,color,age,y\n1.5,red,3,a\n-2.25,"blue, dark",,b\n1e3,,7,a\n'
_TEXT = "A dog runs.\nZwei Hunde laufen über die Wiese.\n\nA man sleeps\r\n".encode()
_LINES = [f"the {word} {verb} here" for word in ("dog", "cat", "man") for verb in ("ran", "sat")]
_RATINGS = "".join(
    f"{user}\t{item}\t{item % 5 + 1}\t{9783000 + item}\n" for user in (1, 2) for item in range(25)
).encode()
_EXPECTED = {"image/encoded": "bytes", "image/class/label": "int64"}
_ATTEMPT = {
    "argv": ["run", "--experiment=digits"], "mode": "train_and_eval", "step": 20,
    "started": "2026-01-01T10:00:00+0000", "finished": "2026-01-01T10:01:00+0000",
    "outcome": "done", "experiment": "digits", "train_steps": 20, "seed": 3,
    "metrics": {"accuracy": 0.5}, "changes": {"runtime.seed": 3}, "weights": "ab",
}  # fmt: skip
_METRICS = (
    {"step": 10, "split": "train", "time": 1.5, "training_loss": 0.7, "system/x": None},
    {"step": 10, "split": "validation", "time": 2.5, "accuracy": 0.25},
    {"step": 10, "event": "skipped", "skipped": [3, 4]},
    {"step": 20, "split": "validation", "time": 3.5, "accuracy": 0.5},
)


@dataclasses.dataclass(frozen=True)
class Reader:
    """A function that reads a file, and valid contents for it.

    Attributes:
        file: The name of the file.
        seeds: Writes what the reader needs besides the file into a directory, and returns valid
            contents of the file.
        read: Reads the file.
        frame: Returns the content of the file from a changed content, such as one with checksums.
    """

    file: str
    seeds: Callable[[Path], Sequence[bytes]]
    read: Callable[[Path], object]
    frame: Callable[[bytes], bytes] = bytes


def _fixed(*contents: bytes) -> Callable[[Path], Sequence[bytes]]:
    return lambda folder: contents


_IDX = struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 4, 5) + bytes(range(40))


def _read_idx(path: Path) -> object:
    return read_idx(path, 3)


def _archives(**arrays: np.ndarray) -> list[bytes]:
    """Returns files of arrays, and of Python objects."""
    pickled = np.array([{"x": 1}, None, 2], object)
    contents = []
    for values in (arrays, {"a": pickled}):
        file = io.BytesIO()
        np.savez_compressed(file, **values)
        contents.append(file.getvalue())
    return contents


def _read_keras(path: Path) -> object:
    with source_cache_scope():
        return read_keras_files((str(path),))


def _table(source: str) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        table = TABLE_SOURCES.get(source).load()
        dataset = table.load(data_dir="", input_path=(str(path),), options=TableOptions())
        kinds = {name: kind for name, kind in dataset.kinds.items() if kind in (NUMBER, CATEGORY)}
        return read_table(dataset, kinds) if kinds else None

    return read


def _parquet(folder: Path) -> list[bytes]:
    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(_ROWS), file)
    return [file.getvalue()]


def _image_csv(folder: Path) -> list[bytes]:
    for name in ("a.png", "b.png"):
        (folder / name).write_bytes(png(0, size=2))
    return [b"path,label\na.png,cat\nb.png,dog\n", b"path,label\na.png,1\nb.png,10\n"]


def _read_image_csv(path: Path) -> object:
    return csv_labels.load(data_dir=str(path.parent), labels_file=path.name)


def _image_example(folder: Path) -> list[bytes]:
    return [example_of(image__encoded=[png(0, size=2)], image__class__label=[3])]


def _frame(content: bytes) -> bytes:
    return frame_records([content])


def _framed(examples: Callable[[Path], list[bytes]]) -> Callable[[Path], Sequence[bytes]]:
    return lambda folder: [frame_records(examples(folder)), frame_records(examples(folder) * 40)]


def _read_records(path: Path) -> None:
    source = tfrecord.load(input_path=(str(path),))
    for record in source.records(range(source.size)):
        example_problem(record, _EXPECTED)
    assert source.blocks().records.sum() == source.size


def _read_text(path: Path) -> None:
    count, _ = count_lines([path])
    assert count == sum(1 for _ in read_lines(path))


def _vocabulary(folder: Path) -> list[bytes]:
    return [build_vocabulary(_LINES * 20, size=18).model]


def _read_vocabulary(path: Path) -> None:
    vocabulary = Vocabulary.load(path)
    vocabulary.decode([vocabulary.encode(["the dog sat", "", "é"]).row(0).tolist()])
    vocabulary.check_reproducible()


def _parallel(folder: Path) -> list[bytes]:
    (folder / "val.de").write_bytes(_TEXT)
    (folder / "seed.model").write_bytes(*_vocabulary(folder))
    return [_TEXT, gzip.compress(_TEXT)]


def _read_parallel(path: Path) -> object:
    sides = parallel_text.find_files(split="val", data_dir=str(path.parent), languages=("en", "de"))
    return parallel_text.load(
        *sides,
        vocabulary=Vocabulary.load(path.with_name("seed.model")),
        max_length=20,
        is_training=True,
    )


def _read_ratings(path: Path) -> None:
    ratings = movielens.load(input_path=(str(path),))
    try:
        leave_one_out(ratings, min_interactions=2)
    except RunnerError as error:  # It is about all interactions, not about the file.
        raise RunnerError(f"{path}: {error}") from None


def _read_run(path: Path) -> None:
    run = RunReader(path.parent)
    for name in dir(run):
        getattr(run, name)
    run.log.recoveries()
    run.log.divergence()


def _checkpoint(folder: Path) -> list[bytes]:
    (folder / "ckpt-5.index").write_bytes(b"index")
    record = CheckpointRecord(step=5, weights="ab", state="cd", numerics={"threads": "1"})
    record.write(folder / "seed.json")
    return [(folder / "seed.json").read_bytes()]


READERS = {
    "idx": Reader("x-idx3", _fixed(_IDX), _read_idx),
    "cifar10": Reader(
        "test_batch.bin",
        _fixed(bytes([3]) * 6146),
        lambda path: cifar10.load(split="test", data_dir=str(path.parent)),
    ),
    "npz": Reader("t.npz", lambda folder: _archives(a=np.arange(3.0)), _table("npz")),
    "keras_npz": Reader(
        "xy.npz", lambda folder: _archives(x=np.ones((3, 2)), y=np.arange(3)), _read_keras
    ),
    "csv": Reader("table.csv", _fixed(_CSV), _table("csv")),
    "jsonl": Reader("t.jsonl", _fixed("\n".join(map(json.dumps, _ROWS)).encode()), _table("jsonl")),
    "parquet": Reader("table.parquet", _parquet, _table("parquet")),
    "image_csv": Reader("labels.csv", _image_csv, _read_image_csv),
    "tfrecord": Reader("train-00", _framed(_image_example), _read_records),
    "tf_example": Reader("train-01", _image_example, _read_records, _frame),
    "text": Reader("train.en", _fixed(_TEXT, gzip.compress(_TEXT)), _read_text),
    "parallel": Reader("val.en", _parallel, _read_parallel),
    "vocabulary": Reader("spm.model", _vocabulary, _read_vocabulary),
    "ratings": Reader("u.data", _fixed(_RATINGS), _read_ratings),
    "ratings_1m": Reader("r.dat", _fixed(_RATINGS.replace(b"\t", b"::")), _read_ratings),
    "run": Reader("run.json", _fixed(json.dumps({"attempts": [_ATTEMPT]}).encode()), _read_run),
    "metrics": Reader(
        "metrics.jsonl", _fixed("\n".join(map(json.dumps, _METRICS)).encode()), _read_run
    ),
    "checkpoint": Reader(
        "ckpt-5.json", _checkpoint, lambda path: CheckpointFolder(path.parent)._damage(5)
    ),
    "config": Reader(
        "config.yaml",
        lambda folder: [to_yaml(resolve(Request(experiment="digits")).config).encode()],
        lambda path: read_settings(path.parent),
    ),
}
