"""Targets that read files of data: arrays, records, tables, text, ratings, images, archives."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.data.array_record import source as array_record
from orbit_runner.data.hugging_face import images as hugging_face
from orbit_runner.data.images import csv_labels
from orbit_runner.data.ratings.interactions import leave_one_out
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.data.tables.cache import read_table
from orbit_runner.data.tables.columns import CATEGORY, NUMBER
from orbit_runner.data.tables.dataset import TableOptions
from orbit_runner.data.text import parallel_text, token_records
from orbit_runner.data.text.lines import count_lines, read_lines
from orbit_runner.data.text.packed_varints import encode_varint, example_of, feature_of
from orbit_runner.data.text.record_writer import frame_records
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary, build_vocabulary
from orbit_runner.data.tfrecord import source as tfrecord
from orbit_runner.data.tfrecord.example import example_problem
from orbit_runner.data.tfrecord.framing import records_of
from orbit_runner.datasets import cifar10, movielens
from orbit_runner.datasets.install import unpack
from orbit_runner.datasets.mnist import read_idx
from orbit_runner.errors import RunnerError
from orbit_runner.registry import TABLE_SOURCES
from orbit_runner.tasks.keras.sources import _read_files as read_keras_files
from tools.fuzz.target import Seeds, Target

if TYPE_CHECKING:
    import pyarrow

_ROWS = [
    {"size": 1.5, "color": "red", "age": 3, "y": "a"},
    {"size": -2.25, "color": "blue, dark", "age": None, "y": "b"},
    {"size": 1e3, "color": None, "age": 7, "y": "a"},
]
_CSV = b'size,color,age,y\n1.5,red,3,a\n-2.25,"blue, dark",,b\n1e3,,7,a\n'
_JSONL = b"".join(json.dumps(row).encode() + b"\n" for row in _ROWS)
_TEXT = "A dog runs.\nZwei Hunde laufen über die Wiese.\n\nA man sleeps\r\n".encode()
_LINES = [f"the {word} {verb} here" for word in ("dog", "cat", "man") for verb in ("ran", "sat")]
_RATINGS = "".join(
    f"{user}\t{item}\t{item % 5 + 1}\t{9783000 + item}\n" for user in (1, 2) for item in range(25)
).encode()
_EXPECTED = {"image/encoded": "bytes", "image/class/label": "int64"}


def data_targets() -> list[Target]:
    """Returns the targets that read files of data."""
    return [*_array_targets(), *_record_targets(), *_table_targets(), *_other_targets()]


def _array_targets() -> list[Target]:
    return [
        Target(
            "idx", "x-idx3", _fixed_seeds(_idx()), lambda path: read_idx(path, 3, field="data_dir")
        ),
        Target("idx_gz", "x.gz", _fixed_seeds(_idx()), _read_idx_gz, frame=gzip.compress),
        Target("gzip", "y.gz", _fixed_seeds(gzip.compress(_idx())), _read_idx_gz),
        Target("cifar10", "batch.bin", _fixed_seeds(bytes([3]) * 6146), _read_cifar),
        Target("npz", "table.npz", _npz, _table("npz")),
        Target("keras_npz", "xy.npz", _keras_npz, _read_keras),
    ]


def _record_targets() -> list[Target]:
    return [
        Target("tfrecord", "train-00", _record_files, _read_records),
        Target("tf_example", "train-01", _examples, _read_records, frame=_frame_record),
        Target("token_record", "train-02", _token_files, _read_tokens),
        Target("tokens", "train-03", _token_examples, _read_tokens, frame=_frame_record),
        Target("array_record", "train-04", _array_files, _read_array_records),
    ]


def _table_targets() -> list[Target]:
    return [
        Target("csv", "table.csv", _fixed_seeds(_CSV), _table("csv")),
        Target("csv_gz", "table.csv.gz", _fixed_seeds(gzip.compress(_CSV)), _table("csv")),
        Target("jsonl", "table.jsonl", _fixed_seeds(_JSONL), _table("jsonl")),
        Target("jsonl_gz", "t.jsonl.gz", _fixed_seeds(gzip.compress(_JSONL)), _table("jsonl")),
        Target("parquet", "table.parquet", _parquet, _table("parquet")),
        Target("arrow", "table.arrow", _arrow_files, _table("hugging_face")),
        Target("arrow_images", "images.arrow", _arrow_images, _read_arrow_images),
        Target("image_csv", "labels.csv", _image_csv, _read_image_csv),
    ]


def _other_targets() -> list[Target]:
    return [
        Target("text", "train.en", _fixed_seeds(_TEXT, gzip.compress(_TEXT)), _read_text),
        Target("parallel", "val.en", _parallel, _read_parallel),
        Target("vocabulary", "spm.model", _vocabulary, _read_vocabulary),
        Target("ratings", "u.data", _fixed_seeds(_RATINGS), _read_ratings),
        Target("ratings_1m", "r.dat", _fixed_seeds(_RATINGS.replace(b"\t", b"::")), _read_ratings),
        Target("ratings_csv", "r.csv", _rating_csv, _read_ratings),
        Target("zip", "data.zip", _zips, _unpack),
        Target("tar", "data.tar", _tars, _unpack),
        Target("tar_gz", "data.tgz", _tars, _unpack, frame=gzip.compress),
    ]


def _fixed_seeds(*contents: bytes) -> Seeds:
    return lambda folder: contents


def _idx() -> bytes:
    return struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 4, 5) + bytes(range(40))


def _read_idx_gz(path: Path) -> object:
    return read_idx(path, 3, field="data_dir")


def _read_keras(path: Path) -> object:
    with source_cache_scope():
        return read_keras_files((str(path),))


def _read_cifar(path: Path) -> object:
    return cifar10.load(split="train", input_path=(str(path),))


def _npz(folder: Path) -> list[bytes]:
    table = {"a": np.arange(3.0), "b": np.array(["x", "yy", "z"]), "c": np.ones((3, 2), np.int16)}
    return _archives(table)


def _keras_npz(folder: Path) -> list[bytes]:
    return _archives({"x": np.ones((3, 2), np.float32), "y": np.arange(3)})


def _archives(arrays: dict[str, np.ndarray]) -> list[bytes]:
    """Returns files of arrays, of Python objects, and of a single array."""
    contents = []
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, **arrays)  # type: ignore[arg-type]
        contents.append(file.getvalue())
    pickled, single = io.BytesIO(), io.BytesIO()
    np.savez(pickled, a=np.array([{"x": 1}, None, 2], object))
    np.save(single, np.arange(4))
    return [*contents, pickled.getvalue(), single.getvalue()]


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    body = zlib.compress(b"\0" + bytes(6) + b"\0" + bytes(6))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def _field(tag: int, payload: bytes) -> bytes:
    return bytes([tag]) + encode_varint(len(payload)) + payload


def _examples(folder: Path) -> list[bytes]:
    jpeg = b"\xff\xd8\xff\xe0\0\4ab\xff\xc0\0\x11\x08\0\2\0\2\3" + bytes(9)
    return [
        example_of({"image/encoded": _field(0x0A, _field(0x0A, image)), "image/class/label": label})
        for image, label in ((_png(), feature_of([3])), (jpeg, feature_of([300])))
    ]


def _token_examples(folder: Path) -> list[bytes]:
    return [
        example_of({"inputs": feature_of([5, 300, 1]), "targets": feature_of([7, 1])}),
        example_of({"inputs": feature_of([1]), "targets": feature_of([2, 2, 9, 1])}),
    ]


def _frame_record(content: bytes) -> bytes:
    return frame_records([content])


def _record_files(folder: Path) -> list[bytes]:
    return [frame_records(_examples(folder)), frame_records(_examples(folder) * 40)]


def _token_files(folder: Path) -> list[bytes]:
    return [frame_records(_token_examples(folder)), frame_records(_token_examples(folder) * 40)]


def _read_records(path: Path) -> None:
    source = tfrecord.load(input_path=(str(path),))
    for record in records_of(path):
        example_problem(record, _EXPECTED)
    assert source.blocks.records.sum() == source.size


def _read_tokens(path: Path) -> object:
    return token_records.load(
        input_path=(str(path),), vocab_size=1000, max_length=50, is_training=True
    )


def _array_file(content: bytes) -> bytes:
    import tempfile

    from array_record.python.array_record_module import ArrayRecordWriter

    with tempfile.NamedTemporaryFile(dir=".") as file:
        writer = ArrayRecordWriter(file.name, "group_size:1")
        writer.write(content)
        writer.close()
        return Path(file.name).read_bytes()


def _array_files(folder: Path) -> list[bytes]:
    return [_array_file(content) for content in _examples(folder)]


def _read_array_records(path: Path) -> None:
    source = array_record.load(input_path=(str(path),))
    for record in source.read(range(min(source.size, 100))):
        example_problem(record, _EXPECTED)


def _table(source: str) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        table = TABLE_SOURCES.get(source).load()
        dataset = table(data_dir="", input_path=(str(path),), options=TableOptions())
        kinds = {name: kind for name, kind in dataset.kinds.items() if kind in (NUMBER, CATEGORY)}
        return read_table(dataset, kinds, kept_seconds=1e9) if kinds else None

    return read


def _parquet(folder: Path) -> list[bytes]:
    import pyarrow
    from pyarrow import parquet as writer

    contents = []
    for compression in ("none", "snappy"):
        writer.write_table(
            pyarrow.Table.from_pylist(_ROWS), folder / "seed", compression=compression
        )
        contents.append((folder / "seed").read_bytes())
    return contents


def _arrow_files(folder: Path) -> list[bytes]:
    import pyarrow

    return _write_arrow(folder, pyarrow.Table.from_pylist(_ROWS))


def _arrow_images(folder: Path) -> list[bytes]:
    import pyarrow

    images = [{"bytes": _png(), "path": "a.png"}, {"bytes": _png(), "path": None}]
    return _write_arrow(folder, pyarrow.table({"image": images, "label": [0, 1]}))


def _write_arrow(folder: Path, table: pyarrow.Table) -> list[bytes]:
    """Returns the table in Arrow's stream format and in its file format."""
    from pyarrow import ipc

    contents = []
    for new in (ipc.new_stream, ipc.new_file):
        with (folder / "seed").open("wb") as file, new(file, table.schema) as writer:
            writer.write_table(table)
        contents.append((folder / "seed").read_bytes())
    return contents


def _read_arrow_images(path: Path) -> None:
    source = hugging_face.load(input_path=[str(path)])
    for number in range(min(source.size, 100)):
        source.place(number)


def _image_csv(folder: Path) -> list[bytes]:
    for name in ("a.png", "b.png"):
        (folder / name).write_bytes(_png())
    return [b"path,label\na.png,cat\nb.png,dog\n", b"path,label\na.png,1\nb.png,10\n"]


def _read_image_csv(path: Path) -> object:
    return csv_labels.load(part="", data_dir=str(path.parent), labels_file=path.name)


def _read_text(path: Path) -> None:
    count, _ = count_lines([path])
    assert count == sum(1 for _ in read_lines(path))


def _parallel(folder: Path) -> list[bytes]:
    (folder / "val.de").write_bytes(_TEXT)
    (folder / "seed.model").write_bytes(_vocabulary(folder)[0])
    return [_TEXT, gzip.compress(_TEXT)]


def _read_parallel(path: Path) -> None:
    for training in (False, True):
        parallel_text.load(
            split="val",
            data_dir=str(path.parent),
            languages=("en", "de"),
            vocabulary=Vocabulary.load(path.with_name("seed.model")),
            max_length=20,
            is_training=training,
        )


def _vocabulary(folder: Path) -> list[bytes]:
    return [build_vocabulary(_LINES * 20, size=18).model]


def _read_vocabulary(path: Path) -> None:
    found = Vocabulary.load(path)
    found.decode([found.encode(["the dog sat", "", "é"]).row(0).tolist()])
    found.check_reproducible()


def _rating_csv(folder: Path) -> list[bytes]:
    return [b"userId,movieId,rating,timestamp\n" + _RATINGS.replace(b"\t", b",")]


def _read_ratings(path: Path) -> None:
    found = movielens.load(input_path=(str(path),), variant=_VARIANTS[path.suffix])
    try:
        leave_one_out(found, min_interactions=2)
    except RunnerError as error:  # It is about all interactions, not about the file.
        raise RunnerError(f"{path}: {error}") from None


_VARIANTS = {".data": "100k", ".dat": "1m", ".csv": "20m"}


def _zips(folder: Path) -> list[bytes]:
    contents = []
    for names in (("a.txt", "d/b.bin"), ("../x", "/etc/x", "d/../../x"), ("link",)):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                info = zipfile.ZipInfo(name)
                info.external_attr = (0o120777 if name == "link" else 0o100644) << 16
                archive.writestr(info, b"/etc/passwd" * 20)
        contents.append(file.getvalue())
    return contents


def _tars(folder: Path) -> list[bytes]:
    members: tuple[dict[str, Any], ...] = (
        {"name": "a.txt", "size": 30},
        {"name": "d", "type": tarfile.DIRTYPE},
        {"name": "l", "type": tarfile.SYMTYPE, "linkname": "/etc"},
        {"name": "l/x", "size": 3},
        {"name": "h", "type": tarfile.LNKTYPE, "linkname": "../../x"},
        {"name": "dev", "type": tarfile.CHRTYPE},
        {"name": "../out", "size": 3},
        {"name": "/abs", "size": 3},
    )
    kept = (members[:2], *([one] for one in members[2:]))
    contents = []
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        for some in kept:
            file = io.BytesIO()
            with tarfile.open(fileobj=file, mode="w", format=form) as archive:
                for fields in some:
                    info = tarfile.TarInfo(fields["name"])
                    for field, value in fields.items():
                        setattr(info, field, value)
                    archive.addfile(info, io.BytesIO(b"x" * info.size))
            contents.append(file.getvalue()[:4096])
    return contents


def _unpack(path: Path) -> None:
    import shutil
    import tempfile

    # A directory inside a new one, to detect files that are written beside it.
    around = Path(tempfile.mkdtemp(dir=path.parent))
    try:
        (around / "inside").mkdir()
        unpack(path, around / "inside", limit=10_000)
    finally:
        beside = sorted(found.name for found in around.iterdir())
        links = [found for found in around.rglob("*") if found.is_symlink()]
        shutil.rmtree(around)
    if beside != ["inside"] or links:
        raise AssertionError(f"wrote {beside} or links {links}")
