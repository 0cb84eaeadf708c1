"""The Arrow files and features of a dataset that `dataset.save_to_disk` wrote.

Reads the directory without the package `datasets` and without TensorFlow. The files are mapped into
memory, so that only the pages that are used are read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.data.files import data_folder, named_files, read_json_object
from orbit_runner.data.tables.arrow_types import read_error_scope
from orbit_runner.errors import DataError, format_choices, unknown_name_message

if TYPE_CHECKING:
    import pyarrow

    from orbit_runner.utils.types import JsonObject

NAME = "hugging_face"
_HINT = (
    "set data_dir to a directory that dataset.save_to_disk wrote, or input_path to Arrow files or "
    "patterns"
)
# The first bytes of Arrow's file format, and of its stream format.
_FILE_FORMAT = b"ARROW1"
FILE_STARTS = (_FILE_FORMAT, b"\xff\xff\xff\xff")
_OTHER_FORMATS = {
    b"FEA1": "it is a file of version 1 of Feather; write version 2",
    b"PAR1": "it is a Parquet file; source parquet reads it as a table, and "
    "datasets.load_dataset('parquet', data_files=…).save_to_disk(…) writes Arrow files",
}
# Versions of `datasets` differ in the name.
_INDICES = ("_indices_files", "_indices_data_files")


@dataclasses.dataclass(frozen=True)
class SavedDataset:
    """The files of a dataset.

    Attributes:
        files: The Arrow files, in the order of their rows.
        features: The description of each feature by name; empty if there are none.
        descriptions: The files with these descriptions, besides the Arrow files.
    """

    files: tuple[Path, ...]
    features: Mapping[str, JsonObject]
    descriptions: tuple[Path, ...] = ()

    def class_names(self, name: str) -> tuple[str, ...] | None:
        """Returns the names of the classes of a feature, None if it is not a `ClassLabel`."""
        feature = self.features.get(name, {})
        names = feature.get("names")
        if feature.get("_type") != "ClassLabel" or not isinstance(names, list):
            return None
        return tuple(map(str, names)) or None


def open_dataset(
    data_dir: str,
    input_path: Sequence[str] = (),
    split: str = "",
    default_splits: Sequence[str] = ("train",),
) -> SavedDataset:
    """Returns the files of a saved dataset.

    Args:
        data_dir: The directory of a dataset, or of a `DatasetDict`.
        input_path: Arrow files or patterns to read instead, relative to `data_dir`.
        split: The part of a `DatasetDict`. If it is empty, it is the first part in `default_splits`
            that exists.
        default_splits: See `split`.

    Raises:
        DataError: There is no such dataset, or no such part; a file is missing or damaged.
    """
    if input_path:
        if split:
            raise DataError(
                f"{NAME}: got hugging_face_split {split!r}, expected none: input_path specifies "
                "the files",
                field="hugging_face_split",
                code="unknown-part",
            )
        files = tuple(named_files(NAME, data_dir, input_path))
        return SavedDataset(files, _features_of_schema(files[0]))
    directory = data_folder(NAME, data_dir, _HINT)
    if (directory / "dataset_dict.json").is_file():
        directory /= _choose_split(directory / "dataset_dict.json", split, default_splits)
    elif split:
        raise DataError(
            f"{NAME}: got hugging_face_split {split!r}, but {directory} is one dataset, not a "
            "DatasetDict\nremove the setting; to split a dataset, set task.split",
            field="hugging_face_split",
            code="unknown-part",
        )
    state = directory / "state.json"
    if not state.is_file():
        raise DataError(f"{NAME}: {directory} has no state.json; {_HINT}", code="missing-file")
    files = _data_files(state)
    info = directory / "dataset_info.json"
    if not info.is_file():
        return SavedDataset(files, _features_of_schema(files[0]), (state,))
    return SavedDataset(files, _parse_features(info, read_json_object(info, "data_dir")), (info,))


def _choose_split(path: Path, split: str, default_splits: Sequence[str]) -> str:
    names = read_json_object(path, "data_dir").get("splits")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise DataError(
            f"{path}: got splits {names!r}, expected their names",
            field="data_dir",
            code="damaged-file",
        )
    chosen = split or next((name for name in default_splits if name in names), "")
    if chosen in names:
        return chosen
    if not split:
        wanted = format_choices(default_splits)
        raise DataError(
            f"{path}: has no part {wanted}; set hugging_face_split to one of {', '.join(names)}",
            field="hugging_face_split",
            code="unknown-part",
        )
    raise DataError(
        unknown_name_message("part", split, names), field="hugging_face_split", code="unknown-part"
    )


def _data_files(path: Path) -> tuple[Path, ...]:
    state = read_json_object(path, "data_dir")
    if any(state.get(name) for name in _INDICES):
        raise DataError(
            f"{path}: the rows are in the order of an indices mapping, which is not supported\n"
            "save them in their order: dataset.flatten_indices().save_to_disk(…)",
            field="data_dir",
            code="not-supported",
        )
    try:
        files = tuple(path.parent / str(entry["filename"]) for entry in state["_data_files"])
    except (KeyError, TypeError):
        raise DataError(
            f"{path}: has no list of Arrow files, `_data_files`",
            field="data_dir",
            code="damaged-file",
        ) from None
    if not files:
        raise DataError(f"{path}: there are no rows", field="data_dir", code="empty-data")
    missing = next((file for file in files if not os.path.isfile(file)), None)
    if missing is not None:
        raise DataError(f"{missing}: file not found", field="data_dir", code="missing-file")
    return files


def _features_of_schema(path: Path) -> dict[str, JsonObject]:
    """Returns the features in the metadata of an Arrow file, which other programs do not write."""
    metadata = read_schema(path).metadata or {}
    try:
        content = json.loads(metadata.get(b"huggingface", b"{}"))
    except (ValueError, RecursionError):
        return {}
    info = content.get("info") if isinstance(content, dict) else None
    return _parse_features(path, info) if isinstance(info, dict) else {}


def _parse_features(path: Path, info: JsonObject) -> dict[str, JsonObject]:
    features = info.get("features") or {}
    if not isinstance(features, dict):
        raise DataError(
            f"{path}: got features {features!r:.80}, expected them by name", code="damaged-file"
        )
    # Lists of features are lists.
    return {name: f if isinstance(f, dict) else {} for name, f in features.items()}


@contextlib.contextmanager
def map_file(path: Path) -> Iterator[pyarrow.MemoryMappedFile]:
    """Maps an Arrow file into memory; errors in a `with` block become a `DataError`."""
    import pyarrow

    with read_error_scope(path, "Arrow"):
        if not os.path.getsize(path):
            raise pyarrow.ArrowInvalid("it is empty")
        with pyarrow.memory_map(os.fspath(path)) as source:
            yield source


def read_schema(path: Path) -> pyarrow.Schema:
    """Returns the schema of an Arrow file. Raises `DataError` if it cannot be read."""
    with map_file(path) as source:
        schema = _open(source).schema
        _ = schema.names  # Raises an error for names that are not UTF-8.
    return schema


def read_batches(
    source: pyarrow.MemoryMappedFile, names: Sequence[str] = ()
) -> Iterator[pyarrow.RecordBatch]:
    """Yields the rows of an Arrow file, in the batches in which it has them.

    With `names`, batches have only these columns, which may be copies of those in the file. Without
    them, the buffers of all columns are those of the mapped file, unless it is compressed.
    """
    schema = _open(source).schema
    reader = _open(source, [schema.get_field_index(name) for name in names])
    if hasattr(reader, "num_record_batches"):
        yield from map(reader.get_batch, range(reader.num_record_batches))
    else:
        yield from reader


def _open(
    source: pyarrow.MemoryMappedFile, fields: Sequence[int] = ()
) -> pyarrow.RecordBatchStreamReader | pyarrow.RecordBatchFileReader:
    import pyarrow
    from pyarrow import ipc

    source.seek(0)
    head = source.read(len(_FILE_FORMAT))
    source.seek(0)
    if head[:4] in _OTHER_FORMATS:
        raise pyarrow.ArrowInvalid(_OTHER_FORMATS[head[:4]])
    options = ipc.IpcReadOptions(included_fields=list(fields))
    if head == _FILE_FORMAT:
        return ipc.open_file(source, options=options)
    return ipc.open_stream(source, options=options)
