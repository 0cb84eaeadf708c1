"""The files, splits and features of a dataset that TensorFlow Datasets has prepared.

Reads `dataset_info.json` and `features.json` without that package and without TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.data.files import read_json_object
from orbit_runner.errors import DataError, first_line

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

TFRECORD, ARRAY_RECORD = "tfrecord", "array_record"
_NAME = re.compile(r"(?P<name>\w+)(/(?P<config>[\w.\-]+))?(:(?P<version>[\d.*]+))?")
_SLICE = re.compile(r"(?P<name>\w+)(\[(?P<start>-?\d+%?)?:(?P<stop>-?\d+%?)?\])?")


@dataclasses.dataclass(frozen=True)
class PreparedSplit:
    """A split of a prepared dataset, or a part of one.

    Attributes:
        folder: The directory of the version.
        file_format: `tfrecord` or `array_record`.
        files: The files of the whole split, in order.
        records: The number of records of the whole split.
        part: The first record that is used, and the one after the last; None for all.
    """

    folder: Path
    file_format: str
    files: tuple[Path, ...]
    records: int
    part: tuple[int, int] | None

    def check_records(self, count: int) -> None:
        """Raises `DataError` unless the files have the described number of records."""
        if count != self.records:
            raise DataError(
                f"tfds: got {count:,} records in {self.folder}, expected {self.records:,} "
                "according to its dataset_info.json",
                field="tfds_data_dir",
                code="damaged-file",
            )


def version_folder(name: str, data_dir: str = "") -> Path:
    """Returns the directory of the newest prepared version of a dataset.

    `name` is `name`, `name/config` or `name:version`. `data_dir` defaults to `TFDS_DATA_DIR` or
    `~/tensorflow_datasets`. Raises `DataError` if the dataset is not prepared.
    """
    asked = _NAME.fullmatch(name)
    if asked is None:
        raise DataError(
            f"tfds: got {name!r}, expected name, name/config or name:version",
            field="tfds_name",
            code="wrong-type",
        )
    given = data_dir or os.environ.get("TFDS_DATA_DIR", "") or "~/tensorflow_datasets"
    above = Path(given).expanduser() / asked["name"] / (asked["config"] or "")
    pattern = re.compile((asked["version"] or "*").replace(".", r"\.").replace("*", r"[\d.]+"))
    versions = [path for path in _version_folders(above) if pattern.fullmatch(path.name)]
    if not versions:
        raise DataError(
            f"tfds: no prepared dataset {name} in {Path(given).expanduser()}"
            f"{_format_versions(above)}; prepare it with TensorFlow Datasets: tfds build {name} "
            f"--data_dir={given}",
            field="tfds_name" if Path(given).expanduser().is_dir() else "tfds_data_dir",
            code="missing-file",
        )
    return max(versions, key=lambda path: [int(part) for part in path.name.split(".") if part])


def _version_folders(above: Path) -> list[Path]:
    if not above.is_dir():
        return []
    return sorted(p for p in above.iterdir() if (p / "dataset_info.json").is_file())


def _format_versions(above: Path) -> str:
    if not above.is_dir():
        return ""
    there = sorted(p.name for p in above.iterdir() if p.is_dir())
    return f" (found: {', '.join(there)})" if there else ""


def read_split(
    directory: Path, split: str, default_splits: Sequence[str] = ("train",)
) -> PreparedSplit:
    """Returns a split of a version, such as `train` or `train[:90%]`.

    If `split` is empty, it is the first split in `default_splits` that exists. Raises `DataError`
    if there is no such split, or if a file is missing or of another format.
    """
    path = directory / "dataset_info.json"
    with description_error_scope(path):
        info = read_description(path)
        splits = {str(each["name"]): each for each in info.get("splits", [])}
    split = split or next((each for each in default_splits if each in splits), default_splits[0])
    asked = _SLICE.fullmatch(split)
    if asked is None or asked["name"] not in splits:
        raise DataError(
            f"tfds: got split {split!r}, expected {', '.join(sorted(splits)) or '(none)'}, or a "
            "slice such as train[:90%] or train[1000:2000]",
            field="tfds_split",
            code="unknown-part",
        )
    with description_error_scope(path):
        kind = _file_format(directory, info)
        files, records = _split_files(directory, info, splits[asked["name"]], kind)
    return PreparedSplit(directory, kind, files, records, _parse_slice(asked, records))


@contextlib.contextmanager
def description_error_scope(path: Path) -> Iterator[None]:
    """Converts errors in reading a description into a `DataError` that names the file."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        reason = first_line(error)[:80]
        raise DataError(
            f"{path}: is not in the format of TensorFlow Datasets "
            f"({type(error).__name__}: {reason})",
            field="tfds_data_dir",
            code="damaged-file",
        ) from None


def read_description(path: Path) -> JsonObject:
    """Returns the JSON object in a file; raises `DataError` if there is none."""
    return read_json_object(path, "tfds_data_dir")


def read_features(directory: Path) -> dict[str, JsonObject]:
    """Returns the descriptions in `features.json` by name; inner names follow after a slash.

    Raises `DataError` if the file cannot be read.
    """
    path = directory / "features.json"
    with description_error_scope(path):
        return dict(_flat_features(read_description(path), ""))


def _flat_features(description: JsonObject, prefix: str) -> Iterator[tuple[str, JsonObject]]:
    for name, feature in description.get("featuresDict", {}).get("features", {}).items():
        if "featuresDict" in feature:
            yield from _flat_features(feature, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", feature


def class_names(directory: Path, feature: str, description: JsonObject) -> tuple[str, ...] | None:
    """Returns the names of the classes of a feature, or None if they are unknown.

    `description` is that of the feature in `features.json`. Raises `DataError` if it has another
    number of classes.
    """
    path = directory / f"{feature.replace('/', '-')}.labels.txt"
    if not path.is_file():
        return None
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: cannot be read ({error})", field="tfds_data_dir", code="unreadable-file"
        ) from None
    names = tuple(line.strip() for line in lines if line.strip())
    count = str((description.get("classLabel") or {}).get("numClasses", len(names)))
    if count != str(len(names)):
        raise DataError(
            f"{path}: got {len(names):,} names, expected {count} according to features.json",
            field="tfds_data_dir",
            code="bad-data",
        )
    return names or None


def _file_format(directory: Path, info: JsonObject) -> str:
    kind = str(info.get("fileFormat", TFRECORD))
    if kind not in (TFRECORD, ARRAY_RECORD):
        raise DataError(
            f"tfds: got files of format {kind} in {directory}, expected {TFRECORD} or "
            f"{ARRAY_RECORD}; prepare the dataset with --file_format={TFRECORD}",
            field="tfds_name",
            code="not-supported",
        )
    return kind


def _split_files(
    directory: Path, info: JsonObject, split: JsonObject, kind: str
) -> tuple[tuple[Path, ...], int]:
    """Returns the files of a split, and the number of their records."""
    lengths = [int(length) for length in split.get("shardLengths", [])]
    template = split.get("filepathTemplate") or "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    total = f"{len(lengths):05}"
    paths = []
    for index in (f"{number:05}" for number in range(len(lengths))):
        named = template.replace("{SHARD_X_OF_Y}", f"{index}-of-{total}")
        named = named.replace("{SHARD_INDEX}", index).replace("{NUM_SHARDS}", total)
        named = named.replace("{DATASET}", info["name"]).replace("{SPLIT}", split["name"])
        paths.append(directory / named.replace("{FILEFORMAT}", kind))
    missing = next((path for path in paths if not os.path.isfile(path)), None)
    if missing is not None:
        raise DataError(f"{missing}: file not found", field="tfds_data_dir", code="missing-file")
    return tuple(paths), sum(lengths)


def _parse_slice(asked: re.Match[str], size: int) -> tuple[int, int] | None:
    if asked["start"] is None and asked["stop"] is None:
        return None
    start = 0 if asked["start"] is None else _parse_boundary(asked["start"], size)
    stop = size if asked["stop"] is None else _parse_boundary(asked["stop"], size)
    if start >= stop:
        raise DataError(
            f"tfds: got split {asked[0]!r}, which contains none of the {size:,} records",
            field="tfds_split",
            code="unknown-part",
        )
    return start, stop


def _parse_boundary(text: str, size: int) -> int:
    """Returns the number of a record; percentages are rounded as in TensorFlow Datasets."""
    number = int(text.rstrip("%"))
    boundary = round(number * size / 100.0) if text.endswith("%") else number
    return min(max(boundary + size if number < 0 else boundary, 0), size)
