"""Image files whose labels are in a CSV file; does not import TensorFlow, to report errors early.

Each row of the CSV file names an image and its class. The file is read and cached as a table.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from orbit_runner.data.files import data_folder
from orbit_runner.data.images.files import DIRECTORY, FileImages, format_others
from orbit_runner.data.tables.build import read_table
from orbit_runner.data.tables.columns import CATEGORY, TEXT, TablePart
from orbit_runner.data.tables.csv_file import CSV
from orbit_runner.data.tables.dataset import TableDataset, TableOptions
from orbit_runner.errors import DataError, unknown_name_message
from orbit_runner.utils.log import Progress

_NAME = "image_csv"
_HINT = "set data_dir to the directory of the images, or input_path to a directory in it"
# A class may be called NA.
_OPTIONS = TableOptions(missing_values=("",))
_FIELDS = ("path_column", "label_column")


def load(
    *,
    data_dir: str = "",
    input_path: Sequence[str] = (),
    labels_file: str = "",
    classes_file: str = "",
    path_column: str = "",
    label_column: str = "",
    split_columns: Sequence[tuple[str, str]] = (),
) -> FileImages:
    """Returns the images that a CSV file lists, in the order of its rows.

    Args:
        data_dir: The directory of the images and of the CSV files.
        input_path: The directory of the images, relative to `data_dir`; by default `data_dir`.
        labels_file: The CSV file, relative to `data_dir`. Its first line names the columns.
        classes_file: A CSV file with the same columns, whose labels are the classes. By default,
            it is `labels_file`. The classes are sorted; by value if all are integers.
        path_column: The column with the path of an image, relative to the directory of the images;
            by default the first column.
        label_column: The column with the name of the class; by default the second column.
        split_columns: More columns to read, each with its kind, by which images can be split.

    Raises:
        DataError: A file, a directory or a column is missing, or a row is invalid.
    """
    if len(input_path) > 1:
        raise DataError(
            f"{_NAME}: got input_path {list(input_path)}, expected one directory",
            field="input_path",
            code="not-allowed",
        )
    root = os.path.normpath(data_folder(_NAME, os.path.join(data_dir, *input_path), _HINT))
    reader = _open_table(data_dir, labels_file, "labels_file")
    paths_in, labels_in = _choose_columns(reader, path_column, label_column)
    table = _read_columns(reader, (paths_in, labels_in), dict(split_columns))
    classes = table.columns[labels_in].vocabulary
    files = table.files
    if classes_file:
        other = _open_table(data_dir, classes_file, "classes_file")
        _check_column(other, labels_in, "classes_file")
        classes = read_table(other, {labels_in: CATEGORY}).columns[labels_in].vocabulary
        files = (*files, *other.files)
    paths = _image_paths(table, paths_in, root)
    return FileImages(
        name=_NAME,
        files=tuple(dict.fromkeys(files)),
        places=table.places,
        numbers=_class_numbers(table, labels_in, classes),
        labels=classes,
        paths=paths,
        directories=((root, len(paths)),),
        root=root,
        listed=table,
    ).with_shape()


def _open_table(data_dir: str, name: str, field: str) -> TableDataset:
    with _table_error_scope(field):
        return CSV.load(data_dir=data_dir, input_path=(name,), options=_OPTIONS)


@contextlib.contextmanager
def _table_error_scope(field: str) -> Iterator[None]:
    """Converts an error of a table to an error of this source."""
    try:
        yield
    except DataError as error:
        raise DataError(str(error), field=field, code="bad-record") from None


def _choose_columns(reader: TableDataset, *configured: str) -> tuple[str, str]:
    """Returns the columns with the paths and with the labels."""
    known = list(reader.kinds)
    for field, name in zip(_FIELDS, configured, strict=True):
        if name:
            _check_column(reader, name, field)
    if len(known) < 2:
        raise DataError(
            f"{reader.files[0]}: got only the column {known[0]!r}, expected a column with paths "
            "and one with labels",
            field="labels_file",
            code="unknown-column",
        )
    paths, labels = (name or known[place] for place, name in enumerate(configured))
    return paths, labels


def _check_column(reader: TableDataset, name: str, field: str, *more: str) -> None:
    """Raises `DataError` if neither the file nor `more` has a column."""
    known = [*reader.kinds, *more]
    if name not in known:
        problem = unknown_name_message("column", name, known)
        raise DataError(f"{reader.files[0]}: {problem}", field=field, code="unknown-column")


def _read_columns(
    reader: TableDataset,
    columns: tuple[str, str],
    split_columns: Mapping[str, str],
) -> TablePart:
    for name, kind in split_columns.items():
        field = "split.column" if kind == CATEGORY else "split.hash_of"
        _check_column(reader, name, field, DIRECTORY)
    # Image files have a column of their own.
    kinds = {name: kind for name, kind in split_columns.items() if name in reader.kinds}
    kinds |= dict(zip(columns, (TEXT, CATEGORY), strict=True))
    with _table_error_scope("labels_file"):
        return read_table(reader, kinds)


def _image_paths(table: TablePart, name: str, root: str) -> tuple[str, ...]:
    """Returns the paths of the images of a part; checks that they exist."""
    column = table.column(name)
    paths = [os.path.normpath(os.path.join(root, text)) for text in column.vocabulary]
    _check_values(table, name, column.is_missing(), "has no value, expected the path of an image")
    above = os.path.join(root, "") if root != "." else ""
    outside = [not p.startswith(above) or p.startswith("..") for p in paths]
    _check_values(table, name, np.array(outside)[column.values], f"is not in {root}")
    absent = _find_missing_files(paths, column.values)
    _check_values(table, name, absent[column.values], f"is not a file in {root}")
    return tuple(paths[code] for code in column.values.tolist())


def _find_missing_files(paths: Sequence[str], codes: np.ndarray) -> np.ndarray:
    """Returns which paths are not files, bool [n]; looks only for those of `codes`."""
    missing = np.zeros(len(paths), bool)
    progress = Progress("looking for images")
    for count, code in enumerate(np.unique(codes).tolist()):
        missing[code] = not os.path.isfile(paths[code])
        if count % 1024 == 0:
            progress(f"{count:,} files")
    return missing


def _class_numbers(table: TablePart, name: str, classes: Sequence[str]) -> np.ndarray:
    """Returns the class of each image, int32 [n]."""
    column = table.column(name)
    _check_values(table, name, column.is_missing(), "has no value, expected the name of a class")
    label = column.numbers(classes)
    _check_values(table, name, label < 0, "is not a label of classes_file")
    return label


def _check_values(table: TablePart, name: str, wrong: np.ndarray, problem: str) -> None:
    """Raises `DataError` for the first row in which the value of a column is wrong."""
    if not wrong.any():
        return
    row = int(wrong.argmax())
    text = table.column(name).text(row)
    got = f"got {text!r}, which " if text else ""
    raise DataError(
        f"{table.location(row)}: column {name!r}: {got}{problem}{format_others(int(wrong.sum()))}",
        field="labels_file",
        code="bad-record",
    )
