"""The Arrow files and features of a dataset that Hugging Face's `datasets` saved.

The package `datasets` opens it. Its files are mapped into memory, so that only the pages that are
used are read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_runner.data.files import data_folder, named_files
from orbit_runner.data.tables.arrow_types import read_error_scope
from orbit_runner.errors import DataError, first_line, format_choices, unknown_name_message

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow

NAME = "hugging_face"
_HINT = (
    "set data_dir to a directory that dataset.save_to_disk wrote, or input_path to Arrow files or "
    "patterns"
)
# The first bytes of Arrow's file format, and of its stream format.
_FILE_FORMAT = b"ARROW1"
FILE_STARTS = (_FILE_FORMAT, b"\xff\xff\xff\xff")


@dataclasses.dataclass(frozen=True)
class SavedDataset:
    """The files of a dataset.

    Attributes:
        files: The Arrow files, in the order of their rows.
        tables: Their rows.
        features: The features by name, as in `datasets.Features`; empty if there are none.
        descriptions: The files with these descriptions, besides the Arrow files.
    """

    files: tuple[Path, ...]
    tables: tuple[pyarrow.Table, ...]
    features: Mapping[str, Any]
    descriptions: tuple[Path, ...] = ()

    def class_names(self, name: str) -> tuple[str, ...]:
        """Returns the names of the classes of a feature, none if it is not a `ClassLabel`."""
        feature: Any = self.features.get(name)
        return tuple(feature.names) if type(feature).__name__ == "ClassLabel" else ()


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
        DataError: There is no such dataset, or no such part; a file is missing or damaged; or the
            package `datasets` is not installed.
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
        tables = tuple(map(_map_file, files))
        return SavedDataset(files, tables, _features_of_file(files[0], tables[0].schema))
    directory = data_folder(NAME, data_dir, _HINT)
    with _load_error_scope(directory):
        saved = _import_datasets().load_from_disk(os.fspath(directory), keep_in_memory=False)
    if isinstance(saved, dict):
        part = _choose_split(directory, split, default_splits, [*saved])
        saved, directory = saved[part], directory / part
    elif split:
        raise DataError(
            f"{NAME}: got hugging_face_split {split!r}, but {directory} is one dataset, not a "
            "DatasetDict\nremove the setting; to split a dataset, set task.split",
            field="hugging_face_split",
            code="unknown-part",
        )
    files = tuple(Path(file["filename"]) for file in saved.cache_files)
    tables = tuple(map(_map_file, files))
    return SavedDataset(files, tables, saved.features, (directory / "dataset_info.json",))


def _choose_split(
    directory: Path, split: str, default_splits: Sequence[str], names: Sequence[str]
) -> str:
    chosen = split or next((name for name in default_splits if name in names), "")
    if chosen in names:
        return chosen
    message = unknown_name_message("part", split, names)
    if not split:
        message = (
            f"{directory}: has no part {format_choices(default_splits)}; set hugging_face_split to "
            f"one of {', '.join(names)}"
        )
    raise DataError(message, field="hugging_face_split", code="unknown-part")


def _features_of_file(path: Path, schema: pyarrow.Schema) -> Mapping[str, Any]:
    """Returns the features in the metadata of an Arrow file, which other programs do not write."""
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    with _load_error_scope(path):
        features: Mapping[str, Any] = _import_datasets().Features.from_arrow_schema(schema)
    return features


def _import_datasets() -> ModuleType:
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"{NAME}: cannot import the package datasets: {first_line(error)}\n"
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
