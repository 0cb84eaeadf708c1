"""Images in Arrow files of Hugging Face's `datasets`, read by index; does not import TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.config.schema.data import input_paths
from orbit_runner.data.dataset import Place, Reader
from orbit_runner.data.example_ids import find_row
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.hugging_face.files import NAME, SavedDataset
from orbit_runner.data.hugging_face.tables import HuggingFaceTable, usual_splits
from orbit_runner.data.images.dataset import (
    EncodedImages,
    Headers,
    ImageUse,
    joined_fields,
    spread_numbers,
)
from orbit_runner.data.images.headers import ImageHeader, ImageSurvey, read_header
from orbit_runner.data.tables.cache import read_table
from orbit_runner.data.tables.columns import CATEGORY, Column, TablePart
from orbit_runner.data.tables.dataset import TableOptions
from orbit_runner.data.tfrecord.example import image_shape
from orbit_runner.errors import DataError, unknown_name_message

if TYPE_CHECKING:
    import pyarrow

# Where images are resized, the config sets the channels, and these many show the rest.
_SAMPLED_IMAGES = 256
_EMBED = (
    "the images must be inside of the Arrow files: save the dataset again with a current version "
    "of `datasets`, where their files are"
)


@dataclasses.dataclass(frozen=True, eq=False)
class HuggingFaceImages(EncodedImages):
    """A dataset of images in Arrow files, which are read by index, in any order.

    Attributes:
        images: The encoded images of all rows, in files that are mapped into memory.
        table: The rows of all columns.
        listed: The rows that are used.
        label: The class of each image that is used, int32 [n].
        num_classes: The number of classes.
        files: The Arrow files.
        descriptions: The files that describe them.
    """

    name: str
    images: pyarrow.ChunkedArray
    table: HuggingFaceTable
    listed: TablePart
    label: np.ndarray
    num_classes: int
    image_shape: tuple[int, int, int]
    files: tuple[Path, ...] = ()
    descriptions: tuple[Path, ...] = ()
    labels: tuple[str, ...] | None = None
    # These map pixel values of 0 to 255 to -1 to 1.
    mean: tuple[float, ...] = (127.5,)
    std: tuple[float, ...] = (127.5,)
    # The dataset of a mixture that each image comes from, integers [n]; None if there is only one.
    origins: np.ndarray | None = None
    survey: ImageSurvey | None = None

    stored = "in Arrow files"
    graph_reader = "orbit_runner.data.hugging_face.pipeline:MappedImageReader"
    id_forms = ", or FILE:ROW"

    @property
    def size(self) -> int:
        """The number of images that are used."""
        return len(self.label)

    @property
    def rows(self) -> np.ndarray:
        """The row of each image, counted through all files: int64 [n]."""
        rows = self.listed.rows
        return np.arange(self.listed.source.size) if rows is None else rows

    def read(self, numbers: Sequence[int] | np.ndarray) -> list[bytes]:
        """Returns some encoded images, in the order of `numbers`."""
        chosen = np.asarray(numbers, np.int64)
        rows = self.listed.rows
        chosen = chosen if rows is None else rows[chosen]
        return [self.images[row].as_py() for row in chosen.tolist()]

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files."""
        return describe_files((*self.files, *self.descriptions), content_digest)

    def place(self, number: int) -> Place:
        """Returns the file and the row of an image."""
        return Place({"place": self.example_name(number)}, int(self.label[number]))

    def example_name(self, number: int) -> str:
        """Returns the file and the row of an image, such as `data.arrow, row 3`."""
        return self.listed.row_location(number)

    def find(self, text: str) -> Iterator[int]:
        """Yields the image that a file and a row name."""
        parts = self.listed.source.parts
        yield find_row(text, parts, self.listed.rows, first=1, id_help=self.id_help)

    def encoded_images(self) -> Iterator[bytes]:
        """Yields all images."""
        for number in range(self.size):
            yield from self.read([number])

    def stored_places(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the index of the file of each image, and its row there, int64 [n]."""
        names = {str(path): number for number, path in enumerate(self.files)}
        parts = self.listed.source.parts
        counts = np.array([count for _, count in parts], np.int64)
        firsts = np.cumsum(counts) - counts
        part = np.searchsorted(firsts, self.rows, side="right") - 1
        return np.array([names[name] for name, _ in parts])[part], self.rows - firsts[part]

    def class_numbers(self) -> np.ndarray:
        """Returns the class of each image."""
        return self.label

    def known_classes(self) -> int:
        """Returns the number of classes."""
        return self.num_classes

    def headers(self, *, sampled: bool) -> Headers:
        """Returns how the headers of the images are read."""
        digest = hashlib.sha256(self.rows.tobytes()).hexdigest()
        return Headers(self.files, ["survey", digest, str(sampled)], self._headers(sampled))

    def _headers(self, sampled: bool) -> Iterator[tuple[str, ImageHeader | None]]:
        for number in spread_numbers(self.size, _SAMPLED_IMAGES if sampled else self.size):
            header = None
            with contextlib.suppress(ValueError):  # The pipeline will report it.
                header = read_header(self.read([number])[0])
            yield self.example_name(number), header

    def select(self, rows: np.ndarray) -> HuggingFaceImages:
        """Returns some of the images, as if there were no others."""
        listed = dataclasses.replace(self.listed, rows=self.rows[rows])
        return dataclasses.replace(self, listed=listed, label=self.label[rows])

    def split_column(self, name: str, kind: str) -> Column:
        """Returns a column of the images, to split them by."""
        if name not in self.table.kinds:
            raise DataError(
                unknown_name_message("column", name, [*self.table.kinds]), code="unknown-column"
            )
        return TablePart(read_table(self.table, {name: kind}), self.listed.rows).column(name)

    def join(self, datasets: Sequence[HuggingFaceImages]) -> HuggingFaceImages:
        """Returns the images of several datasets."""
        import pyarrow

        return HuggingFaceImages(
            **joined_fields(datasets),
            images=pyarrow.chunked_array([array for d in datasets for array in d.images.chunks]),
            table=self.table,
            listed=self.listed.join([dataset.listed for dataset in datasets]),
            label=np.concatenate([dataset.label for dataset in datasets]),
            num_classes=max(dataset.num_classes for dataset in datasets),
            files=tuple(path for dataset in datasets for path in dataset.files),
            descriptions=tuple(path for dataset in datasets for path in dataset.descriptions),
        )


def load(
    *,
    data_dir: str = "",
    input_path: Sequence[str] = (),
    split: str = "",
    default_splits: Sequence[str] = ("train",),
    image_column: str = "",
    label_column: str = "",
    any_size: bool = False,
) -> HuggingFaceImages:
    """Returns the images of a dataset that `dataset.save_to_disk` wrote, or of Arrow files.

    Args:
        data_dir: The directory of the dataset, or of a `DatasetDict`.
        input_path: Arrow files or patterns to read instead, relative to `data_dir`.
        split: The part of a `DatasetDict`; by default the first in `default_splits` that exists.
        default_splits: See `split`.
        image_column: The column with JPEG or PNG files; by default the only `Image`.
        label_column: The column with the class, a `ClassLabel`, a number from 0, or a text; by
            default the only `ClassLabel`, or the column `label`.
        any_size: Whether the first image need not be readable, because all images are resized.

    Raises:
        DataError: A file, a part or a column is missing, or a row has no image or no class.
    """
    options = TableOptions(hugging_face_split=split, default_splits=tuple(default_splits))
    table = HuggingFaceTable(data_dir=data_dir, input_path=input_path, options=options)
    image, label = _choose_columns(table, image_column, label_column)
    saved = table.saved
    images = _images_of(saved, image)
    listed = TablePart(read_table(table, {label: CATEGORY}))
    numbers, labels = _class_numbers(table, listed, label)
    return HuggingFaceImages(
        NAME,
        images,
        table,
        listed,
        numbers,
        len(labels) if labels else int(numbers.max()) + 1,
        _first_shape(images, listed, any_size),
        files=saved.files,
        descriptions=saved.descriptions,
        labels=labels,
    )


def _choose_columns(table: HuggingFaceTable, image: str, label: str) -> tuple[str, str]:
    """Returns the columns with the images and with the classes."""
    features = table.saved.features
    path = table.saved.files[0]
    schema = table.saved.tables[0].schema
    images = [name for name, kind in features.items() if type(kind).__name__ == "Image"]
    images = images or [field.name for field in schema if _has_bytes(field.type)]
    chosen = {
        "image_column": (image, images, "one Image"),
        "label_column": (label, [*table.classes] or ["label"], "one ClassLabel"),
    }
    names = []
    for setting, (given, candidates, expected) in chosen.items():
        name = given or (candidates[0] if len(candidates) == 1 else "")
        if given and given not in schema.names:
            raise DataError(
                f"{path}: {unknown_name_message('column', given, schema.names)}",
                field=setting,
                code="unknown-column",
            )
        if not name or name not in schema.names:
            raise DataError(
                f"{path}: got columns {', '.join(schema.names)}, expected {expected}; "
                f"set {setting}",
                field=setting,
                code="unknown-column",
            )
        names.append(name)
    return names[0], names[1]


def _has_bytes(kind: pyarrow.DataType) -> bool:
    from pyarrow import types

    return types.is_struct(kind) and kind.get_field_index("bytes") >= 0


def _images_of(saved: SavedDataset, column: str) -> pyarrow.ChunkedArray:
    """Returns the encoded images of all files."""
    import pyarrow

    arrays = []
    for path, rows in zip(saved.files, saved.tables, strict=True):
        first = 1
        for array in rows.column(column).chunks:
            # The offsets are copied, the images are not.
            arrays.append(_bytes_of(path, column, first, array).cast(pyarrow.large_binary()))
            first += len(array)
    return pyarrow.chunked_array(arrays, pyarrow.large_binary())


def _bytes_of(path: Path, column: str, first: int, array: pyarrow.Array) -> pyarrow.Array:
    """Returns the encoded images in a column. Raises `DataError` if a row has none."""
    import pyarrow
    from pyarrow import types

    where = f"{path}, row {{row}}: column {column!r}"
    array.validate()
    encoded = array.field("bytes") if _has_bytes(array.type) else array
    if not (types.is_binary(encoded.type) or types.is_large_binary(encoded.type)):
        raise DataError(
            f"{path}: column {column!r} is {array.type}, expected bytes of JPEG or PNG files\n"
            f"{_EMBED}",
            field="image_column",
            code="bad-record",
        )
    try:
        encoded.validate(full=True)
    except pyarrow.ArrowInvalid as error:
        raise DataError(
            f"{path}: column {column!r} is damaged: {error}", field="input_path", code="bad-record"
        ) from None
    missing = encoded.is_null().to_numpy(zero_copy_only=False)
    missing = missing | array.is_null().to_numpy(zero_copy_only=False)
    if missing.any():
        row = int(missing.argmax())
        value = array[row].as_py()
        name = value.get("path") if isinstance(value, Mapping) else None
        got = f"has no bytes, only the path {name!r}\n{_EMBED}" if name else "has no image"
        raise DataError(
            f"{where.format(row=first + row)} {got}", field="image_column", code="bad-record"
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
            f"{listed.row_location(int(missing.argmax()))}: column {name!r} has no class; leave "
            "such rows out of the dataset",
            field="label_column",
            code="bad-record",
        )
    names = table.classes.get(name)
    if names is None and not types.is_integer(table.saved.tables[0].schema.field(name).type):
        return column.values.astype(np.int32), column.vocabulary
    codes = [names.index(text) if names else int(text) for text in column.vocabulary]
    numbers = np.array(codes, np.int64)[column.values]
    if numbers.min() < 0 or numbers.max() >= 2**31:
        row = int(((numbers < 0) | (numbers >= 2**31)).argmax())
        raise DataError(
            f"{listed.row_location(row)}: column {name!r}: got class {numbers[row]}, expected 0 or "
            "more",
            field="label_column",
            code="bad-record",
        )
    return numbers.astype(np.int32), names


def _first_shape(
    images: pyarrow.ChunkedArray, listed: TablePart, any_size: bool
) -> tuple[int, int, int]:
    """Returns height, width and channels of the first image; 0, 0, 0 if they may be unknown."""
    try:
        return image_shape(images[0].as_py())
    except ValueError as error:
        if any_size:
            return 0, 0, 0
        raise DataError(
            f"{listed.row_location(0)}: got {error}, expected a PNG or JPEG image",
            field="data_dir",
            code="bad-record",
        ) from None


def _arguments(section: Any, use: ImageUse) -> dict[str, object]:
    if section.split and not use.is_split:
        raise DataError(
            f"{NAME}: got split {section.split!r}, expected none: hugging_face_split chooses a "
            "part of a DatasetDict, and task.split divides a dataset",
            field="split",
            code="unknown-part",
        )
    return {
        "data_dir": section.data_dir,
        "input_path": input_paths(section),
        "split": section.hugging_face_split,
        "default_splits": usual_splits(section, is_split=use.is_split),
        "image_column": section.image_column,
        "label_column": section.label_column,
        "any_size": use.input_size is not None,
    }


IMAGES = Reader(load, _arguments)
