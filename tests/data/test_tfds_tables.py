"""Tables that TensorFlow Datasets has prepared: columns, splits, and errors."""

import numpy as np
import pytest

from orbit_runner.data import tfds
from orbit_runner.data.places import Places
from orbit_runner.data.tables.build import read_table
from orbit_runner.data.tables.columns import TablePart
from orbit_runner.data.tables.dataset import TableOptions, TableUse
from orbit_runner.errors import DataError
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from tests.support.prepared_tables import CLASSES, make_row, write_table
from tests.support.problems import raises

KINDS = {
    "size": "number",
    "age": "number",
    "old": "category",
    "color": "category",
    "y": "category",
    "inner/n": "number",
}


pytestmark = pytest.mark.usefixtures("own_cache")


def open_table(folder, split="train", name="rows"):
    options = TableOptions(tfds_name=name, tfds_split=split, tfds_data_dir=str(folder))
    return tfds.TABLE.load(options=options)


def check_rows(table, numbers):
    rows = [make_row(number) for number in numbers]
    assert table.size == len(rows)
    for name in ("size", "age", "inner/n"):
        expected = np.array([row[name] for row in rows], np.float32)
        np.testing.assert_array_equal(table.columns[name].values, expected)
    texts = {
        name: [table.columns[name].text(n) for n in range(len(rows))]
        for name in ("old", "color", "y")
    }
    assert texts["old"] == [("false", "true")[row["old"]] for row in rows]
    assert texts["color"] == [row["color"] for row in rows]
    assert texts["y"] == ["" if row["y"] < 0 else CLASSES[row["y"]] for row in rows]


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_features_become_columns(file_format, tmp_path, monkeypatch):
    monkeypatch.setattr(tfds, "_BLOCK_ROWS", 7)
    place = write_table(tmp_path, {"train": (20, 0, 13), "test": (9,)}, file_format)

    reader = open_table(tmp_path)

    assert {**reader.kinds} == KINDS | {"pair": "Tensor [2]"}
    table = read_table(reader, KINDS)
    check_rows(table, range(33))
    assert table.places.text(25) == f"{place / f'rows-train.{file_format}-00002-of-00003'}, row 6"
    assert len(reader.files) == 3
    check_rows(read_table(open_table(tmp_path, "test"), KINDS), range(33, 42))


@pytest.mark.parametrize(
    ("is_training", "is_split", "split", "expected"),
    [
        (True, False, "", 5),
        (False, False, "", 3),
        # With `task.split`, both sections read parts of the same rows.
        (False, True, "", 5),
        (True, False, "test", 3),
    ],
)
def test_section_reads_the_split_that_it_names_or_usually_has(
    is_training, is_split, split, expected, tmp_path
):
    write_table(tmp_path, {"train": (5,), "test": (3,)})
    section = TableDataConfig(source="tfds", is_training=is_training)
    options = TableOptions(tfds_name="rows", tfds_split=split, tfds_data_dir=str(tmp_path))

    table = tfds.TABLE.open(section, options, TableUse(is_split=is_split))

    assert read_table(table, {"age": "number"}).size == expected


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"split": "train[:50%]"}, "tfds_split", "for a part of one, set task.split"),
        ({"name": "other"}, "tfds_name", "tfds build other --data_dir="),
    ],
)
def test_invalid_settings_are_rejected(options, field, message, tmp_path):
    write_table(tmp_path, {"train": (5,)})
    with pytest.raises(DataError) as caught:
        open_table(tmp_path, **options)
    assert message in str(caught.value)
    assert caught.value.field == field


@pytest.mark.parametrize("change", [{"age": None}, {"age": [1, 2]}, {"y": "big"}])
def test_invalid_values_are_reported_with_their_row(change, tmp_path, monkeypatch):
    monkeypatch.setattr(tfds, "_BLOCK_ROWS", 2)
    write_table(tmp_path, {"train": (2, 5)}, "tfrecord", {5: change})
    with raises("bad-record"):
        read_table(open_table(tmp_path), KINDS)


@pytest.mark.slow
def test_dataset_that_the_package_prepares_has_the_same_columns(tmp_path):
    import tensorflow_datasets as tfds

    class Rows(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        # Otherwise looked up with a package that may not be installed.
        code_path = tmp_path / "rows.py"

        def _info(self):
            features = {
                "size": np.float32,
                "age": np.int64,
                "old": np.bool_,
                "color": tfds.features.Text(),
                "pair": tfds.features.Tensor(shape=(2,), dtype=np.float32),
                "y": tfds.features.ClassLabel(names=CLASSES),
                "inner": {"n": np.int32},
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for number in range(50):
                row = make_row(number)
                yield number, row | {"old": bool(row["old"]), "inner": {"n": row.pop("inner/n")}}

    Rows(data_dir=str(tmp_path), file_format="array_record").download_and_prepare()
    table = read_table(open_table(tmp_path), KINDS)

    # The package shuffles the rows of a dataset.
    order = np.argsort(-table.columns["age"].values, kind="stable")
    columns = {name: column.take(order) for name, column in table.columns.items()}
    check_rows(TablePart("tfds", columns, Places((("", 50),))), range(50))
