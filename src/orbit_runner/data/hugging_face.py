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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orbit_runner.data.files import data_folder, named_files
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.images.stored import StoredImages
from orbit_runner.data.tables.arrow import (
    BLOCK_ROWS,
    blocks_of_batches,
    check_array,
    kinds_of_schemas,
    read_error_scope,
)
from orbit_runner.data.tables.build import read_table
from orbit_runner.data.tables.cell_texts import normal_text
from orbit_runner.data.tables.columns import CATEGORY, NUMBER, Column, TablePart
from orbit_runner.data.tables.dataset import (
    Block,
    TableDataset,
    TableOptions,
    TableReader,
)
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


class _Saved(NamedTuple):
    """A saved dataset, or Arrow files.

    Attributes:
        tables: The rows of each Arrow file, in order.
        features: The features by name, as in `datasets.Features`; empty if there are none.
        descriptions: The files that describe the Arrow files.
    """

    tables: Mapping[Path, pyarrow.Table]
    features: Mapping[str, Any]
    descriptions: tuple[Path, ...] = ()


def _open(
    data_dir: str, input_path: Sequence[str], split: str, default_splits: Sequence[str]
) -> _Saved:
    """Returns a saved dataset, or Arrow files.

    Args:
        data_dir: The directory of a dataset, or of a `DatasetDict`.
        input_path: Arrow files or patterns to read instead, relative to `data_dir`.
        split: The part of a `DatasetDict`.
        default_splits: The parts of which the first that exists is read by default.

    Raises:
        DataError: There is no such dataset, or no such part; a file is missing or damaged; or the
            package `datasets` is not installed.
    """
    if not input_path:
        return _open_saved(data_folder(_NAME, data_dir, _HINT), split, default_splits)
    if split:
        raise _split_error(f"got {split!r}, expected none: input_path specifies the files")
    tables = {path: _map_file(path) for path in named_files(_NAME, data_dir, input_path)}
    path, table = next(iter(tables.items()))
    if b"huggingface" not in (table.schema.metadata or {}):
        return _Saved(tables, {})
    with _load_error_scope(path):
        return _Saved(tables, _import_datasets().Features.from_arrow_schema(table.schema))


def _open_saved(directory: Path, split: str, default_splits: Sequence[str]) -> _Saved:
    with _load_error_scope(directory):
        saved = _import_datasets().load_from_disk(os.fspath(directory), keep_in_memory=False)
    if isinstance(saved, dict):
        part = split or next((name for name in default_splits if name in saved), "")
        if split and part not in saved:
            raise _split_error(unknown_name_message("part", split, [*saved]))
        if not part:
            raise _split_error(
                f"{directory} has no part {format_choices(default_splits)}; set it to one of "
                f"{', '.join(saved)}"
            )
        saved, directory = saved[part], directory / part
    elif split:
        raise _split_error(f"got {split!r}, but {directory} is one dataset, not a DatasetDict")
    paths = [Path(file["filename"]) for file in saved.cache_files]
    tables = {path: _map_file(path) for path in paths}
    return _Saved(tables, saved.features, (directory / "dataset_info.json",))


def _table_of(saved: _Saved, options: TableOptions) -> TableDataset:
    """Returns the rows. A column of `ClassLabel` is read as the names of classes."""
    kinds = kinds_of_schemas({path: table.schema for path, table in saved.tables.items()})
    # As categories are compared.
    classes = {
        name: tuple(normal_text(text.strip()) for text in feature.names)
        for name, feature in saved.features.items()
        if type(feature).__name__ == "ClassLabel" and kinds.get(name) == NUMBER
    }

    def blocks(names: Sequence[str]) -> Iterator[Block]:
        labels = [name for name in names if name in classes]
        for path, table in saved.tables.items():
            batches = table.select(names).to_batches(BLOCK_ROWS)
            for block in blocks_of_batches(path, batches, names):
                texts = {name: _to_classes(block, name, classes[name]) for name in labels}
                yield dataclasses.replace(block, columns={**block.columns, **texts})

    # The names of classes are in the descriptions.
    files = (*saved.tables, *saved.descriptions)
    kinds |= dict.fromkeys(classes, CATEGORY)
    return TableDataset(_NAME, kinds, blocks, files, options, classes=classes)


def _load_table(
    *,
    data_dir: str,
    input_path: Sequence[str],
    options: TableOptions,
    default_splits: Sequence[str] = ("train",),
) -> TableDataset:
    saved = _open(data_dir, input_path, options.hugging_face_split, default_splits)
    return _table_of(saved, options)


TABLE = TableReader(_load_table, file_start=(_FILE_FORMAT, b"\xff\xff\xff\xff"))


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


def _to_classes(block: Block, name: str, classes: Sequence[str]) -> pyarrow.Array:
    """Returns the names of the classes of a column of their numbers."""
    import pyarrow
    from pyarrow import compute

    numbers = block.columns[name].cast(pyarrow.int64())
    # A label of -1 is unknown, as in the test sets of competitions.
    known = compute.greater_equal(numbers, 0)
    numbers = compute.if_else(known, numbers, pyarrow.scalar(None, pyarrow.int64()))
    largest = compute.max(numbers).as_py()
    if largest is not None and largest >= len(classes):
        row = block.first + compute.index(numbers, largest).as_py()
        raise DataError(
            f"{block.file}, row {row}: column {name!r}: got class {largest}, expected 0 to "
            f"{len(classes) - 1}",
            field="data_dir",
            code="bad-record",
        )
    return pyarrow.array(classes, pyarrow.string()).take(numbers)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ArrowImages(StoredImages):
    """Images in Arrow files, which are mapped into memory.

    Attributes:
        images: The encoded images of all rows.
        table: The rows of all columns.
        descriptions: The files that describe the Arrow files.
    """

    images: pyarrow.ChunkedArray
    table: TableDataset
    descriptions: tuple[Path, ...] = ()

    stored = "in Arrow files"
    graph_reader = "orbit_runner.data.images.readers:MappedImageReader"

    def records(self, numbers: Sequence[int]) -> Iterator[bytes]:
        """Yields encoded images."""
        return (self.images[self.row(number)].as_py() for number in numbers)

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files."""
        return describe_files((*self.files, *self.descriptions), content_digest)

    def split_column(self, name: str, kind: str) -> Column:
        """Returns a column of the images, to split them by."""
        if name not in self.table.kinds:
            problem = unknown_name_message("column", name, [*self.table.kinds])
            raise DataError(f"{self.name}: {problem}", code="unknown-column")
        column = read_table(self.table, {name: kind}).columns[name]
        return column.take(self.places.all_rows())

    def joined_rows(self, datasets: Sequence[ArrowImages]) -> dict[str, Any]:
        """Returns the fields for the rows of several datasets."""
        import pyarrow

        chunks = [array for dataset in datasets for array in dataset.images.chunks]
        return {
            "images": pyarrow.chunked_array(chunks),
            "descriptions": tuple(path for dataset in datasets for path in dataset.descriptions),
        }


def load(
    *,
    data_dir: str = "",
    input_path: Sequence[str] = (),
    hugging_face_split: str = "",
    default_splits: Sequence[str] = ("train",),
    image_column: str = "",
    label_column: str = "",
) -> ArrowImages:
    """Returns the images of a dataset that `dataset.save_to_disk` wrote, or of Arrow files.

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
    saved = _open(data_dir, input_path, hugging_face_split, default_splits)
    table = _table_of(saved, TableOptions(hugging_face_split=hugging_face_split))
    columns = [n for n, feature in saved.features.items() if type(feature).__name__ == "Image"]
    image = _choose_column(saved, "image_column", image_column, columns, "one Image")
    classes = [*table.classes] or ["label"]
    label = _choose_column(saved, "label_column", label_column, classes, "one ClassLabel")
    label_table = read_table(table, {label: CATEGORY})
    kind = next(iter(saved.tables.values())).schema.field(label).type
    numbers, labels = _class_numbers(table.classes.get(label), kind, label_table, label)
    return ArrowImages(
        name=_NAME,
        files=tuple(saved.tables),
        places=label_table.places,
        numbers=numbers,
        labels=labels,
        num_classes=len(labels) if labels else int(numbers.max()) + 1,
        images=_images_of(saved, image),
        table=table,
        descriptions=saved.descriptions,
    ).with_shape()


def _choose_column(
    saved: _Saved, setting: str, configured: str, candidates: Sequence[str], expected: str
) -> str:
    """Returns the column that a setting names, or else the only candidate."""
    path, rows = next(iter(saved.tables.items()))
    known = rows.schema.names
    name = configured or (candidates[0] if len(candidates) == 1 else "")
    if name in known:
        return name
    problem = f"got columns {', '.join(known)}, expected {expected}; set {setting}"
    if configured:
        problem = unknown_name_message("column", configured, known)
    raise DataError(f"{path}: {problem}", field=setting, code="unknown-column")


def _images_of(saved: _Saved, column: str) -> pyarrow.ChunkedArray:
    """Returns the encoded images of all files."""
    import pyarrow

    arrays = []
    for path, rows in saved.tables.items():
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
            f"{path}: column {column!r} is {array.type}, expected bytes of JPEG or PNG files",
            field="image_column",
            code="bad-record",
        )
    check_array(path, first, column, encoded)
    missing = encoded.is_null().to_numpy(zero_copy_only=False)
    missing = missing | array.is_null().to_numpy(zero_copy_only=False)
    if missing.any():
        row = int(missing.argmax())
        raise DataError(
            f"{path}, row {first + row}: column {column!r} has no bytes of an image",
            field="image_column",
            code="bad-record",
        )
    return encoded


def _class_numbers(
    names: tuple[str, ...] | None, kind: pyarrow.DataType, table: TablePart, name: str
) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Returns the class of each row, int32 [n], and the names of the classes if there are any."""
    from pyarrow import types

    column = table.column(name)
    missing = column.is_missing()
    if missing.any():
        raise DataError(
            f"{table.location(int(missing.argmax()))}: column {name!r} has no class; leave "
            "such rows out of the dataset",
            field="label_column",
            code="bad-record",
        )
    if names is None and not types.is_integer(kind):
        names = column.vocabulary
    places = {text: place for place, text in enumerate(names or ())}
    codes = [places[text] if names else int(text) for text in column.vocabulary]
    numbers = np.array(codes, np.int64)[column.values]
    wrong = (numbers < 0) | (numbers >= 2**31)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{table.location(row)}: column {name!r}: got class {numbers[row]}, expected 0 or more",
            field="label_column",
            code="bad-record",
        )
    return numbers.astype(np.int32), names
