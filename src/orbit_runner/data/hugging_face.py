"""Images and tables that Hugging Face's `datasets` saved on disk, and other Arrow files.

That package opens its datasets. The files are mapped into memory, so that only the pages that are
used are read. Does not import TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.data.files import data_folder, named_files
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.images.stored import ImageStore, StoredImages
from orbit_runner.data.places import Places
from orbit_runner.data.tables.arrow_types import read_error_scope
from orbit_runner.data.tables.cache import read_table
from orbit_runner.data.tables.cell_texts import normal_text
from orbit_runner.data.tables.columns import CATEGORY, NUMBER, Column, TablePart
from orbit_runner.data.tables.dataset import (
    Block,
    TableOptions,
)
from orbit_runner.data.tables.parquet import BLOCK_ROWS, ArrowTypedFiles, check_array
from orbit_runner.errors import DataError, first_line, format_choices, unknown_name_message

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow


_NAME = "hugging_face"
_HINT = (
    "set data_dir to a directory that dataset.save_to_disk wrote, or input_path to Arrow files or "
    "patterns"
)
# The first bytes of Arrow's file format; the stream format begins with the others.
_FILE_FORMAT = b"ARROW1"
_EMBED = (
    "the images must be inside of the Arrow files: save the dataset again with a current version "
    "of `datasets`, where their files are"
)


class HuggingFaceTable(ArrowTypedFiles):
    """A saved dataset, or Arrow files. A column of `ClassLabel` is read as the names of classes.

    Args:
        data_dir: The directory of a dataset, or of a `DatasetDict`.
        input_path: Arrow files or patterns to read instead, relative to `data_dir`.
        options: `hugging_face_split` is the part of a `DatasetDict`; by default, the first in
            `default_splits` that exists.

    Attributes:
        tables: The rows of each Arrow file, in order.
        descriptions: The files that describe the Arrow files.
        features: The features by name, as in `datasets.Features`; empty if there are none.

    Raises:
        DataError: There is no such dataset, or no such part; a file is missing or damaged; or the
            package `datasets` is not installed.
    """

    name = _NAME
    has_parts = True
    file_start = (_FILE_FORMAT, b"\xff\xff\xff\xff")

    def __init__(self, *, data_dir: str, input_path: Sequence[str], options: TableOptions) -> None:
        self.options = options
        self.descriptions: tuple[Path, ...] = ()
        self.features: Mapping[str, Any] = {}
        if input_path:
            paths = self._named_files(data_dir, input_path)
        else:
            paths = self._open_saved(data_folder(_NAME, data_dir, _HINT))
        self.tables = {path: _map_file(path) for path in paths}
        self.files = tuple(paths)
        metadata = self.tables[paths[0]].schema.metadata
        if input_path and b"huggingface" in (metadata or {}):
            with _load_error_scope(paths[0]):
                schema = self.tables[paths[0]].schema
                self.features = _import_datasets().Features.from_arrow_schema(schema)
        kinds = dict(self.read_kinds())
        # As categories are compared.
        self.classes = {
            name: tuple(normal_text(text.strip()) for text in feature.names)
            for name, feature in self.features.items()
            if type(feature).__name__ == "ClassLabel" and kinds.get(name) == NUMBER
        }
        self.kinds = kinds | dict.fromkeys(self.classes, CATEGORY)
        # The names of classes are in the descriptions.
        self.files = (*paths, *self.descriptions)

    def _named_files(self, data_dir: str, input_path: Sequence[str]) -> list[Path]:
        split = self.options.hugging_face_split
        if split:
            raise _split_error(f"got {split!r}, expected none: input_path specifies the files")
        return named_files(_NAME, data_dir, input_path)

    def _open_saved(self, directory: Path) -> list[Path]:
        """Returns the Arrow files of a saved dataset."""
        split = self.options.hugging_face_split
        with _load_error_scope(directory):
            saved = _import_datasets().load_from_disk(os.fspath(directory), keep_in_memory=False)
        if isinstance(saved, dict):
            defaults = self.options.default_splits or ("train",)
            part = split or next((name for name in defaults if name in saved), "")
            if split and part not in saved:
                raise _split_error(unknown_name_message("part", split, [*saved]))
            if not part:
                raise _split_error(
                    f"{directory} has no part {format_choices(defaults)}; set it to one of "
                    f"{', '.join(saved)}"
                )
            saved, directory = saved[part], directory / part
        elif split:
            raise _split_error(
                f"got {split!r}, but {directory} is one dataset, not a DatasetDict\n"
                "remove the setting; to split a dataset, set task.split"
            )
        self.features = saved.features
        self.descriptions = (directory / "dataset_info.json",)
        return [Path(file["filename"]) for file in saved.cache_files]

    def read_schema(self, path: Path) -> pyarrow.Schema:
        """Returns the names and the types of the columns of a file."""
        return self.tables[path].schema

    def blocks(self, names: Sequence[str]) -> Iterator[Block]:
        """Yields the rows of some columns, in order."""
        for path in self.tables:
            yield from self.read_blocks(path, names)

    def read_blocks(self, path: Path, names: Sequence[str]) -> Iterator[Block]:
        """Yields the rows of a file."""
        first = 1
        for batch in self.tables[path].select(names).to_batches(BLOCK_ROWS):
            columns = {}
            for name in names:
                array = batch.column(name)
                check_array(path, first, name, array)
                if name in self.classes:
                    array = _to_classes(path, first, name, array, self.classes[name])
                columns[name] = array
            yield Block(columns, str(path), first)
            first += batch.num_rows


def _split_error(problem: str) -> DataError:
    return DataError(
        f"{_NAME}: hugging_face_split: {problem}", field="hugging_face_split", code="unknown-part"
    )


def _import_datasets() -> ModuleType:
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"{_NAME}: cannot import the package datasets: {first_line(error)}\n"
            "install it: pip install 'orbit-runner[hugging_face]'",
            field="source",
            code="missing-package",
        ) from None
    module: ModuleType = datasets
    return module


@contextlib.contextmanager
def _load_error_scope(path: Path) -> Iterator[None]:
    """Turns an error of `datasets` about files into a `DataError` that names the path."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        is_missing = isinstance(error, FileNotFoundError)
        raise DataError(
            f"{path}: datasets cannot read it: {first_line(error)}\n{_HINT}",
            field="data_dir",
            code="missing-file" if is_missing else "damaged-file",
        ) from None


def _map_file(path: Path) -> pyarrow.Table:
    """Returns the rows of an Arrow file, whose buffers are the mapped file if they can be."""
    import pyarrow
    from pyarrow import ipc

    with read_error_scope(path, "Arrow"):
        if not os.path.getsize(path):
            raise pyarrow.ArrowInvalid("it is empty")
        source = pyarrow.memory_map(os.fspath(path))
        is_file = source.read(len(_FILE_FORMAT)) == _FILE_FORMAT
        source.seek(0)
        reader = ipc.open_file(source) if is_file else ipc.open_stream(source)
        table = reader.read_all()
        _ = table.schema.names  # Raises an error for names that are not UTF-8.
    return table


def _to_classes(
    path: Path, first: int, name: str, array: pyarrow.Array, classes: Sequence[str]
) -> pyarrow.Array:
    """Returns the names of the classes of an Arrow array of their numbers."""
    import pyarrow
    from pyarrow import compute

    numbers = array.cast(pyarrow.int64())
    # A label of -1 is unknown, as in the test sets of competitions.
    known = compute.greater_equal(numbers, 0)
    numbers = compute.if_else(known, numbers, pyarrow.scalar(None, pyarrow.int64()))
    largest = compute.max(numbers).as_py()
    if largest is not None and largest >= len(classes):
        row = first + compute.index(numbers, largest).as_py()
        raise DataError(
            f"{path}, row {row}: column {name!r}: got class {largest}, expected 0 to "
            f"{len(classes) - 1}",
            field="data_dir",
            code="bad-record",
        )
    return pyarrow.array(classes, pyarrow.string()).take(numbers)


@dataclasses.dataclass(frozen=True, eq=False)
class ArrowStore(ImageStore):
    """Images in Arrow files, which are mapped into memory.

    Attributes:
        images: The encoded images of all rows.
        numbers: The class of each row, int32 [rows].
        table: The rows of all columns.
        places: The rows of the files.
        files: The Arrow files.
        descriptions: The files that describe them.
    """

    images: pyarrow.ChunkedArray
    numbers: np.ndarray
    table: HuggingFaceTable
    places: Places
    files: tuple[Path, ...]
    descriptions: tuple[Path, ...] = ()

    stored = "in Arrow files"
    graph_reader = "orbit_runner.data.images.readers:MappedImageReader"

    def read(self, rows: Sequence[int]) -> Iterator[bytes]:
        """Yields encoded images."""
        return (self.images[row].as_py() for row in rows)

    def data_files(self, rows: np.ndarray) -> list[DataFile]:
        """Returns descriptions of the files."""
        return describe_files((*self.files, *self.descriptions), content_digest)

    def labels(self, rows: np.ndarray) -> np.ndarray:
        """Returns the classes of some rows."""
        return self.numbers[rows]

    def split_column(self, name: str, kind: str, rows: np.ndarray) -> Column:
        """Returns a column of the images, to split them by."""
        if name not in self.table.kinds:
            raise DataError(
                unknown_name_message("column", name, [*self.table.kinds]), code="unknown-column"
            )
        return read_table(self.table, {name: kind}).columns[name].take(rows)

    def join(self, stores: Sequence[ArrowStore]) -> ArrowStore:
        """Returns the images of several stores."""
        import pyarrow

        return ArrowStore(
            pyarrow.chunked_array([array for store in stores for array in store.images.chunks]),
            numbers=np.concatenate([store.numbers for store in stores]),
            table=self.table,
            places=self.places.join([store.places for store in stores]),
            files=tuple(path for store in stores for path in store.files),
            descriptions=tuple(path for store in stores for path in store.descriptions),
        )


def load(
    *,
    data_dir: str = "",
    input_path: Sequence[str] = (),
    hugging_face_split: str = "",
    default_splits: Sequence[str] = ("train",),
    image_column: str = "",
    label_column: str = "",
) -> StoredImages[ArrowStore]:
    """Returns the images of a dataset that `dataset.save_to_disk` wrote, or of Arrow files.

    The first four arguments are those of `HuggingFaceTable`.

    Args:
        data_dir: The directory of the dataset.
        input_path: Arrow files to read instead.
        hugging_face_split: The part of a `DatasetDict`.
        default_splits: The parts of which the first that exists is read by default.
        image_column: The column with JPEG or PNG files; by default the only `Image`.
        label_column: The column with the class, a `ClassLabel`, a number from 0, or a text; by
            default the only `ClassLabel`, or the column `label`.

    Raises:
        DataError: A file, a part or a column is missing, or a row has no image or no class.
    """
    options = TableOptions(
        hugging_face_split=hugging_face_split, default_splits=tuple(default_splits)
    )
    table = HuggingFaceTable(data_dir=data_dir, input_path=input_path, options=options)
    columns = [n for n, feature in table.features.items() if type(feature).__name__ == "Image"]
    image = _choose_column(table, "image_column", image_column, columns, "one Image")
    label = _choose_column(
        table, "label_column", label_column, [*table.classes] or ["label"], "one ClassLabel"
    )
    listed = TablePart.of_source(read_table(table, {label: CATEGORY}))
    numbers, labels = _class_numbers(table, listed, label)
    store = ArrowStore(
        _images_of(table, image),
        numbers,
        table,
        listed.places,
        tuple(table.tables),
        table.descriptions,
    )
    return StoredImages(
        name=_NAME,
        store=store,
        places=store.places,
        image_shape=store.shape(0),
        labels=labels,
        num_classes=len(labels) if labels else int(numbers.max()) + 1,
    )


def _choose_column(
    table: HuggingFaceTable, setting: str, given: str, candidates: Sequence[str], expected: str
) -> str:
    """Returns the column that a setting names, or else the only candidate."""
    path, rows = next(iter(table.tables.items()))
    known = rows.schema.names
    name = given or (candidates[0] if len(candidates) == 1 else "")
    if name in known:
        return name
    problem = f"got columns {', '.join(known)}, expected {expected}; set {setting}"
    if given:
        problem = unknown_name_message("column", given, known)
    raise DataError(f"{path}: {problem}", field=setting, code="unknown-column")


def _images_of(table: HuggingFaceTable, column: str) -> pyarrow.ChunkedArray:
    """Returns the encoded images of all files."""
    import pyarrow

    arrays = []
    for path, rows in table.tables.items():
        first = 1
        for array in rows.column(column).chunks:
            # The offsets are copied, the images are not.
            arrays.append(_bytes_of(path, column, first, array).cast(pyarrow.large_binary()))
            first += len(array)
    return pyarrow.chunked_array(arrays, pyarrow.large_binary())


def _bytes_of(path: Path, column: str, first: int, array: pyarrow.Array) -> pyarrow.Array:
    """Returns the encoded images in a column. Raises `DataError` if a row has none."""
    from pyarrow import types

    array.validate()
    is_struct = types.is_struct(array.type) and array.type.get_field_index("bytes") >= 0
    encoded = array.field("bytes") if is_struct else array
    if not (types.is_binary(encoded.type) or types.is_large_binary(encoded.type)):
        raise DataError(
            f"{path}: column {column!r} is {array.type}, expected bytes of JPEG or PNG files\n"
            f"{_EMBED}",
            field="image_column",
            code="bad-record",
        )
    check_array(path, first, column, encoded)
    missing = encoded.is_null().to_numpy(zero_copy_only=False)
    missing = missing | array.is_null().to_numpy(zero_copy_only=False)
    if missing.any():
        row = int(missing.argmax())
        value = array[row].as_py()
        name = value.get("path") if isinstance(value, Mapping) else None
        got = f"has no bytes, only the path {name!r}\n{_EMBED}" if name else "has no image"
        raise DataError(
            f"{path}, row {first + row}: column {column!r} {got}",
            field="image_column",
            code="bad-record",
        )
    return encoded


def _class_numbers(
    table: HuggingFaceTable, listed: TablePart, name: str
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Returns the class of each row, int32 [n], and the names of the classes if there are any."""
    from pyarrow import types

    column = listed.column(name)
    missing = column.is_missing()
    if missing.any():
        raise DataError(
            f"{listed.location(int(missing.argmax()))}: column {name!r} has no class; leave "
            "such rows out of the dataset",
            field="label_column",
            code="bad-record",
        )
    names = table.classes.get(name)
    kind = next(iter(table.tables.values())).schema.field(name).type
    if names is None and not types.is_integer(kind):
        names = column.vocabulary
    places = {text: place for place, text in enumerate(names or ())}
    codes = [places[text] if names else int(text) for text in column.vocabulary]
    numbers = np.array(codes, np.int64)[column.values]
    wrong = (numbers < 0) | (numbers >= 2**31)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{listed.location(row)}: column {name!r}: got class {numbers[row]}, expected 0 or "
            "more",
            field="label_column",
            code="bad-record",
        )
    return numbers.astype(np.int32), names
