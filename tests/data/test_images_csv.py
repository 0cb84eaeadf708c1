"""Images that a CSV file lists: files, classes and parts, and errors that name row and column."""

import csv

import pytest

from orbit_runner.data.images.csv_labels import load
from orbit_runner.errors import DataError
from tests.support.images import write_listed
from tests.support.problems import raises

COLUMNS = {"path_column": "file", "label_column": "kind"}


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def listed(tmp_path):
    return write_listed(tmp_path / "set", {"10": 7, "9": 6, "ant": 8})


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def open_listed(path, **settings):
    return load(
        **{
            "data_dir": str(path.parent),
            "input_path": ("images",),
            "labels_file": path.name,
            **settings,
        }
    )


def change(path, row, **values):
    """Changes values of a row, which is numbered from 1."""
    rows = rows_of(path)
    rows[row - 1] |= values
    with path.open("w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_images_are_in_the_order_of_the_rows(listed):
    source = open_listed(listed)

    rows = rows_of(listed)
    images = listed.parent / "images"
    assert source.paths == tuple(str(images / row["file"]) for row in rows)
    assert source.labels == ("10", "9", "ant")
    assert [source.labels[label] for label in source.class_numbers()] == [
        row["kind"] for row in rows
    ]
    assert source.image_shape[2] == 3
    assert open_listed(listed, **COLUMNS).paths == source.paths
    assert open_listed(listed, label_column="person").labels == ("p0", "p1", "p2", "p3", "p4")


def test_classes_file_decides_on_the_numbers_of_classes(listed):
    rows = [row for row in rows_of(listed) if row["kind"] != "9"]
    other = listed.with_name("other.csv")
    other.write_text(
        "".join(
            f"{row['file']},{row['kind']}\n" for row in [{"file": "file", "kind": "kind"}, *rows]
        )
    )

    source = open_listed(other, classes_file="labels.csv")

    assert source.labels == ("10", "9", "ant")
    assert {*source.class_numbers().tolist()} == {0, 2}
    assert open_listed(other).labels == ("10", "ant")
    with raises("bad-record"):
        open_listed(listed, classes_file="other.csv")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"file": "no.jpg"}, "row 5: column 'file': got 'no.jpg', which is not a file in {images}"),
        ({"file": ""}, "row 5: column 'file': has no value, expected the path of an image"),
        (
            {"file": "../labels.csv"},
            "row 5: column 'file': got '../labels.csv', which is not in {images}",
        ),
        ({"kind": ""}, "row 5: column 'kind': has no value, expected the name of a class"),
    ],
)
def test_errors_name_row_and_column(listed, values, message):
    words = {
        "images": listed.parent / "images",
        "listed": listed,
        "first": rows_of(listed)[0]["file"],
    }
    change(listed, 5, **{name: value.format(**words) for name, value in values.items()})

    with pytest.raises(DataError) as caught:
        open_listed(listed)

    assert message.format(**words) in str(caught.value)
    assert str(listed) in str(caught.value)
    assert caught.value.field == "labels_file"


@pytest.mark.parametrize(
    ("settings", "field", "message"),
    [
        ({"labels_file": "none.csv"}, "labels_file", "csv: no file matches"),
        ({"input_path": ("a", "b")}, "input_path", "expected one directory"),
        ({"path_column": "fil"}, "path_column", "unknown column 'fil'; did you mean 'file'?"),
    ],
)
def test_invalid_settings_are_rejected(listed, settings, field, message):
    with pytest.raises(DataError) as caught:
        open_listed(listed, **settings)
    assert message in str(caught.value)
    assert caught.value.field == field


def test_file_with_one_column_is_rejected(listed):
    listed.write_text("file\na.jpg\n")
    with raises("unknown-column"):
        open_listed(listed)
