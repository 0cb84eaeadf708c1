"""Tables that Hugging Face's `datasets` saved on disk: columns, classes, parts and errors."""

import sys

import numpy as np
import pyarrow
import pytest
from pyarrow import feather, ipc

from orbit_runner.data import hugging_face
from orbit_runner.data.tables.build import read_table
from orbit_runner.data.tables.dataset import TableOptions
from tests.support.hugging_face import class_label, save_dict, save_to_disk, write_arrow
from tests.support.problems import raises

NAMES = ("pear", "apple", "fig")  # Not in alphabetical order.
FEATURES = {"kind": class_label(*NAMES)}


pytestmark = pytest.mark.usefixtures("own_cache")


def make_table(rows=45, first=0):
    numbers = range(first, first + rows)
    return pyarrow.table(
        {
            "size": pyarrow.array([None if n % 7 == 3 else n / 4 for n in numbers]),
            "count": pyarrow.array(numbers, pyarrow.int64()),
            "text": [f" line {n % 5}" for n in numbers],
            "ripe": [n % 2 == 0 for n in numbers],
            "kind": pyarrow.array([n % 4 - 1 for n in numbers], pyarrow.int64()),
            "many": [[n, n] for n in numbers],
        }
    )


def open_table(data_dir, input_path=(), split="", splits=("train",)):
    return hugging_face.TABLE.load(
        data_dir=str(data_dir),
        input_path=input_path,
        options=TableOptions(hugging_face_split=split),
        default_splits=splits,
    )


def test_columns_are_read_exactly_through_all_files(tmp_path, monkeypatch):
    monkeypatch.setattr(hugging_face, "BLOCK_ROWS", 7)
    paths = save_to_disk(tmp_path / "fruit", make_table(), FEATURES, sizes=(21, 4, 20))
    dataset = open_table(tmp_path / "fruit")
    assert dataset.kinds == {
        "size": "number", "count": "number", "text": "category", "ripe": "category",
        "kind": "category", "many": "list<item: int64>",
    }  # fmt: skip

    assert dataset.name == "hugging_face"
    kinds = {name: kind for name, kind in dataset.kinds.items() if name != "many"}
    source = read_table(dataset, kinds)

    rows = make_table().to_pydict()
    assert source.size == 45
    np.testing.assert_array_equal(source.columns["count"].values, rows["count"])
    np.testing.assert_array_equal(source.columns["size"].values, np.array(rows["size"], np.float32))
    texts = {n: [source.columns[n].text(row) for row in range(45)] for n in ("text", "ripe")}
    assert texts["text"] == [text.strip() for text in rows["text"]]
    assert texts["ripe"] == [str(value).lower() for value in rows["ripe"]]
    assert source.location(24) == f"{paths[1]}, row 4"


def test_classes_are_their_names_in_the_order_of_the_file(tmp_path):
    save_to_disk(tmp_path / "fruit", make_table(), FEATURES)
    source = read_table(open_table(tmp_path / "fruit"), {"kind": "category"})
    column = source.columns["kind"]
    assert column.vocabulary == NAMES
    assert [column.text(row) for row in range(5)] == ["", "pear", "apple", "fig", ""]
    # The names of a mixture with the same classes keep their order.
    joined = source.join([source, source])
    assert joined.column("kind").vocabulary == NAMES


def test_the_parts_of_a_dict_are_chosen(tmp_path):
    save_dict(tmp_path, ["train", "test"])
    for number, name in enumerate(("train", "test")):
        save_to_disk(tmp_path / name, make_table(3, first=10 * number), FEATURES)

    def counts(split="", splits=("train",)):
        dataset = open_table(tmp_path, split=split, splits=splits)
        values = read_table(dataset, {"count": "number"}).columns["count"].values
        return [*values]

    assert counts() == counts("train") == counts(splits=["train"]) == [0, 1, 2]
    assert counts("test") == counts(splits=["validation", "test"]) == [10, 11, 12]
    with raises("unknown-part") as caught:
        open_table(tmp_path, split="tset")
    assert caught.value.field == "hugging_face_split"
    with raises("unknown-part"):
        open_table(tmp_path, splits=["validation"])


@pytest.mark.parametrize("kind", ["stream", "feather"])
def test_arrow_files_are_read_without_their_directory(tmp_path, kind):
    table = make_table().drop_columns(["many"])
    path = tmp_path / "rows.arrow"
    if kind == "feather":
        feather.write_feather(table, path, compression="zstd", chunksize=8)
    else:
        write_arrow(path, table, new=ipc.new_stream if kind == "stream" else ipc.new_file)
    dataset = open_table(tmp_path, ["*.arrow"])
    source = read_table(dataset, dict(dataset.kinds))
    assert source.columns["count"].values.tolist() == [*range(45)]
    assert dataset.kinds["kind"] == "number"  # Nothing describes its classes.


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    write_arrow(tmp_path / "rows.arrow", make_table().drop_columns(["many"]))
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert open_table(tmp_path, ["*.arrow"]).kinds["size"] == "number"
    with raises("missing-package") as caught:
        open_table(tmp_path)
    assert "pip install 'orbit-runner[hugging_face]'" in str(caught.value)


def test_what_the_package_saves_is_read(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra hugging_face is not installed")
    rows = {"size": [0.5, 1.5, 2.5, 3.5], "kind": [2, 0, 1, 2]}
    features = {"size": datasets.Value("float64"), "kind": datasets.ClassLabel(names=[*NAMES])}
    saved = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    parts = {"train": saved.shuffle(seed=1), "test": saved.select([3, 1])}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "fruit", num_shards={"train": 2, "test": 1})
    for name, part in parts.items():
        dataset = open_table(tmp_path / "fruit", split=name)
        source = read_table(dataset, {"size": "number", "kind": "category"})
        assert source.columns["size"].values.tolist() == part["size"][:]
        kinds = [source.columns["kind"].text(row) for row in range(len(part))]
        assert kinds == [NAMES[kind] for kind in part["kind"]]
        arrow_files = [path for path in dataset.files if path.suffix == ".arrow"]
        assert len(arrow_files) == (2 if name == "train" else 1)


def test_the_classes_of_an_arrow_file_are_in_its_metadata(tmp_path):
    save_to_disk(tmp_path / "fruit", make_table(), FEATURES)
    dataset = open_table(tmp_path, ["fruit/data-*"])
    assert read_table(dataset, {"kind": "category"}).columns["kind"].vocabulary == NAMES


def _damage(path, offset):
    content = bytearray(path.read_bytes())
    content[offset : offset + 4] = b"\xff\xff\xff\x7f"
    path.write_bytes(content)


def test_damaged_files_are_named(tmp_path):
    (path,) = save_to_disk(tmp_path / "fruit", make_table(), FEATURES)
    content = path.read_bytes()
    for damaged in (b"", b"x" * 900, content[:200], content[: len(content) // 2], b"FEA1" * 99):
        path.write_bytes(damaged)
        with raises("damaged-file"):
            read_table(open_table(tmp_path / "fruit"), {"text": "category"})
    path.write_bytes(content)
    _damage(path, content.index(np.array([0, 7, 14, 21], np.int32).tobytes()) + 8)
    with raises("bad-record"):
        read_table(open_table(tmp_path / "fruit"), {"text": "category"})
    path.write_bytes(content.replace(b" line 3", b" lin\xff 3"))
    with raises("bad-record"):
        read_table(open_table(tmp_path / "fruit"), {"text": "category"})


def test_a_class_without_a_name_is_an_error(tmp_path):
    table = pyarrow.table({"kind": pyarrow.array([0, 1, 5, 5], pyarrow.int64())})
    save_to_disk(tmp_path / "fruit", table, FEATURES)
    with raises("bad-record"):
        read_table(open_table(tmp_path / "fruit"), {"kind": "category"})


def test_directories_and_settings_that_do_not_fit_are_errors(tmp_path):
    save_to_disk(tmp_path / "fruit", make_table(), FEATURES)
    gone = {"_data_files": [{"filename": "gone.arrow"}]}
    save_to_disk(tmp_path / "lacking", make_table(), FEATURES, state=gone)
    for arguments, code, field in (
        ((tmp_path,), "missing-file", "source"),
        ((tmp_path / "gone",), "missing-file", "source"),
        ((tmp_path / "lacking",), "missing-file", "source"),
        ((tmp_path / "fruit", (), "train"), "unknown-part", "hugging_face_split"),
        ((tmp_path, ["fruit/*.arrow"], "train"), "unknown-part", "hugging_face_split"),
    ):
        with raises(code) as caught:
            open_table(*arguments)
        assert caught.value.field in (field, "data_dir")
