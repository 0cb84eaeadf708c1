"""Reads the files of TensorFlow Datasets without that package; does not import TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.data.tfrecord.index_cache import index_files
from orbit_runner.data.tfrecord.source import RecordSource, first_shape
from orbit_runner.errors import DataError, first_line

_KEYS = ("image", "label")
_NAME = re.compile(r"(?P<name>\w+)(/(?P<config>[\w.\-]+))?(:(?P<version>[\d.*]+))?")
_SLICE = re.compile(r"(?P<name>\w+)(\[(?P<start>-?\d+%?)?:(?P<stop>-?\d+%?)?\])?")


@dataclasses.dataclass(frozen=True)
class _Split:
    name: str
    files: tuple[Path, ...]
    records: int


def load(
    *,
    tfds_name: str,
    split: str = "",
    usual: Sequence[str] = ("train",),
    data_dir: str = "",
    any_size: bool = False,
) -> RecordSource:
    """Returns the records of a dataset that TensorFlow Datasets has prepared.

    The directory of the dataset contains `dataset_info.json`, with the splits and their files, and
    `features.json`. The examples must have the features `image` (a JPEG or PNG file) and `label`.

    `tfds_name` is, for example, `imagenet2012`, `name/config` or `name:5.1.0`; by default, the
    newest version found is used. `split` is a split or a part of one, such as `train[:90%]`,
    `train[1000:2000]` or `train[-5%:]`; if it is empty, the first split in `usual` that exists is
    used. `data_dir` defaults to `TFDS_DATA_DIR` or `~/tensorflow_datasets`. If `any_size` is True,
    the first image need not be readable, because all images are resized.

    Raises `DataError` if the dataset is not prepared, is not in TFRecord files, or lacks the split.
    """
    folder = _version_folder(tfds_name, data_dir)
    with _description_error_scope(folder / "dataset_info.json"):
        info = _json(folder / "dataset_info.json")
        splits = {str(each["name"]): each for each in info.get("splits", [])}
    with _description_error_scope(folder / "features.json"):
        _check_features(folder)
    split = split or next((each for each in usual if each in splits), usual[0])
    asked = _SLICE.fullmatch(split)
    if asked is None or asked["name"] not in splits:
        raise DataError(
            f"tfds: got split {split!r}, expected {', '.join(sorted(splits)) or '(none)'}, or a "
            "slice such as train[:90%] or train[1000:2000]",
            field="tfds_split",
        )
    with _description_error_scope(folder / "dataset_info.json"):
        found = _files(folder, info, splits[asked["name"]])
    indexes = index_files(found.files)
    size = sum(index.records for index in indexes)
    if size != found.records:
        raise DataError(
            f"tfds: got {size:,} records in {folder}, expected {found.records:,} according "
            "to its dataset_info.json",
            field="tfds_data_dir",
        )
    return RecordSource(
        f"tfds {tfds_name}",
        found.files,
        tuple(indexes),
        first_shape(f"tfds {tfds_name}", found.files, indexes, _KEYS, any_size),
        image_key="image",
        label_key="label",
        labels=_labels(folder),
        part=_part(asked, size),
    )


def _version_folder(name: str, data_dir: str) -> Path:
    asked = _NAME.fullmatch(name)
    if asked is None:
        raise DataError(
            f"tfds: got {name!r}, expected name, name/config or name:version", field="tfds_name"
        )
    given = data_dir or os.environ.get("TFDS_DATA_DIR", "") or "~/tensorflow_datasets"
    above = Path(given).expanduser() / asked["name"] / (asked["config"] or "")
    pattern = re.compile((asked["version"] or "*").replace(".", r"\.").replace("*", r"[\d.]+"))
    found = [path for path in _folders(above) if pattern.fullmatch(path.name)]
    if not found:
        raise DataError(
            f"tfds: no prepared dataset {name} in {Path(given).expanduser()}{_nearby(above)}; "
            f"prepare it with TensorFlow Datasets: tfds build {name} --data_dir={given}",
            field="tfds_name" if Path(given).expanduser().is_dir() else "tfds_data_dir",
        )
    return max(found, key=lambda path: [int(part) for part in path.name.split(".") if part])


def _folders(above: Path) -> list[Path]:
    if not above.is_dir():
        return []
    return sorted(p for p in above.iterdir() if (p / "dataset_info.json").is_file())


def _nearby(above: Path) -> str:
    if not above.is_dir():
        return ""
    there = sorted(p.name for p in above.iterdir() if p.is_dir())
    return f" (found: {', '.join(there)})" if there else ""


@contextlib.contextmanager
def _description_error_scope(path: Path) -> Iterator[None]:
    """Converts errors in reading a description into a `DataError` that names the file."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        said = first_line(error)[:80]
        raise DataError(
            f"{path}: is not in the format of TensorFlow Datasets ({type(error).__name__}: {said})",
            field="tfds_data_dir",
        ) from None


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error})", field="tfds_data_dir") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: is not a JSON object", field="tfds_data_dir")
    return found


def _check_features(folder: Path) -> None:
    path = folder / "features.json"
    if not path.is_file():
        return
    features = _json(path).get("featuresDict", {}).get("features", {})
    if not set(_KEYS) <= set(features):
        raise DataError(
            f"{path}: got features {', '.join(sorted(features)) or '(none)'}, expected image and "
            "label",
            field="tfds_name",
        )


def _files(folder: Path, info: Mapping[str, Any], split: Mapping[str, Any]) -> _Split:
    kind = info.get("fileFormat", "tfrecord")
    if kind != "tfrecord":
        raise DataError(
            f"tfds: got files of format {kind} in {folder}, expected tfrecord; prepare the "
            "dataset with --file_format=tfrecord",
            field="tfds_name",
        )
    lengths = [int(length) for length in split.get("shardLengths", [])]
    template = split.get("filepathTemplate") or "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    of, paths = f"{len(lengths):05}", []
    for index in (f"{number:05}" for number in range(len(lengths))):
        named = template.replace("{SHARD_X_OF_Y}", f"{index}-of-{of}")
        named = named.replace("{SHARD_INDEX}", index).replace("{NUM_SHARDS}", of)
        named = named.replace("{DATASET}", info["name"]).replace("{SPLIT}", split["name"])
        paths.append(folder / named.replace("{FILEFORMAT}", kind))
    missing = next((path for path in paths if not os.path.isfile(path)), None)
    if missing is not None:
        raise DataError(f"{missing}: file not found", field="tfds_data_dir")
    return _Split(split["name"], tuple(paths), sum(lengths))


def _labels(folder: Path) -> tuple[str, ...] | None:
    path = folder / "label.labels.txt"
    if not path.is_file():
        return None
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})", field="tfds_data_dir") from None
    return tuple(line.strip() for line in lines if line.strip()) or None


def _part(asked: re.Match[str], size: int) -> tuple[int, int] | None:
    if asked["start"] is None and asked["stop"] is None:
        return None
    start = 0 if asked["start"] is None else _boundary(asked["start"], size)
    stop = size if asked["stop"] is None else _boundary(asked["stop"], size)
    if start >= stop:
        raise DataError(
            f"tfds: got split {asked[0]!r}, which contains none of the {size:,} records",
            field="tfds_split",
        )
    return start, stop


def _boundary(text: str, size: int) -> int:
    """Returns the number of a record; percentages are rounded as in TensorFlow Datasets."""
    number = int(text.rstrip("%"))
    found = round(number * size / 100.0) if text.endswith("%") else number
    return min(max(found + size if number < 0 else found, 0), size)
