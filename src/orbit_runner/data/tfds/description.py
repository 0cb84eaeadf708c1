"""The files, splits and features of a dataset that TensorFlow Datasets has prepared.

That package reads the descriptions. It does not import TensorFlow for what is used here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.errors import DataError, first_line

TFRECORD, ARRAY_RECORD = "tfrecord", "array_record"
_NAME = re.compile(r"(?P<name>\w+)(/(?P<config>[\w.\-]+))?(:(?P<version>[\d.*]+))?")


@dataclasses.dataclass(frozen=True)
class PreparedSplit:
    """A split of a prepared dataset, or a part of one.

    Attributes:
        folder: The directory of the version.
        file_format: `tfrecord` or `array_record`.
        files: The files of the whole split, in order.
        records: The number of records of the whole split.
        part: The first record that is used, and the one after the last; None for all.
        features: The features of `tensorflow_datasets` by name; inner names follow after a slash.
    """

    folder: Path
    file_format: str
    files: tuple[Path, ...]
    records: int
    part: tuple[int, int] | None
    features: Mapping[str, Any]

    def check_records(self, count: int) -> None:
        """Raises `DataError` unless the files have the described number of records."""
        if count != self.records:
            raise DataError(
                f"tfds: got {count:,} records in {self.folder}, expected {self.records:,} "
                "according to its dataset_info.json",
                field="tfds_data_dir",
                code="damaged-file",
            )

    def class_names(self, name: str) -> tuple[str, ...] | None:
        """Returns the names of the classes of a feature, or None if they are unknown.

        Raises `DataError` if their file is damaged, which the package ignores.
        """
        feature = self.features[name]
        if kind_of_feature(feature) != "ClassLabel":
            return None
        path = Path(feature.get_names_filepath(os.fspath(self.folder), name))
        if not path.is_file():
            return None
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        names = tuple(line.strip() for line in lines if line.strip())
        if len(names) != feature.num_classes or names != tuple(feature.names):
            raise DataError(
                f"{path}: expected the names of {feature.num_classes:,} classes, one on each line, "
                "according to features.json",
                field="tfds_data_dir",
                code="damaged-file",
            )
        return names


def kind_of_feature(feature: object) -> str:
    """Returns the name of the class of a feature, such as `Image`."""
    return type(feature).__name__


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
    import tensorflow_datasets

    with _description_error_scope(directory):
        info = tensorflow_datasets.builder_from_directory(os.fspath(directory)).info
        splits = dict(info.splits.items())
        shards = {key: [Path(path) for path in each.filepaths] for key, each in splits.items()}
        if not any(shards.values()):
            raise ValueError("no split has files")
    split = split or next((each for each in default_splits if each in splits), default_splits[0])
    name, part = _parse_split(split, splits)
    kind = info.file_format.value if info.file_format else TFRECORD
    if kind not in (TFRECORD, ARRAY_RECORD):
        raise DataError(
            f"tfds: got files of format {kind} in {directory}, expected {TFRECORD} or "
            f"{ARRAY_RECORD}; prepare the dataset with --file_format={TFRECORD}",
            field="tfds_name",
            code="not-supported",
        )
    missing = next((path for path in shards[name] if not os.path.isfile(path)), None)
    if missing is not None:
        raise DataError(f"{missing}: file not found", field="tfds_data_dir", code="missing-file")
    features = dict(_flat_features(info.features, ""))
    records = splits[name].num_examples
    return PreparedSplit(directory, kind, tuple(shards[name]), records, part, features)


@contextlib.contextmanager
def _description_error_scope(directory: Path) -> Iterator[None]:
    """Converts errors of the package into a `DataError`; all are about the descriptions."""
    try:
        yield
    except Exception as error:
        raise DataError(
            f"{directory}: TensorFlow Datasets cannot read dataset_info.json and features.json "
            f"({type(error).__name__}: {first_line(error)[:200]})",
            field="tfds_data_dir",
            code="damaged-file",
        ) from None


def _parse_split(split: str, splits: Mapping[str, Any]) -> tuple[str, tuple[int, int] | None]:
    """Returns the name of a split and the interval of its records, None for all."""
    from tensorflow_datasets.core import ReadInstruction

    try:
        (asked,) = ReadInstruction.from_spec(split).to_absolute(splits)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise DataError(
            f"tfds: got split {split!r}, expected {', '.join(sorted(splits))}, or a slice such as "
            f"train[:90%] or train[1000:2000]: {first_line(error)}",
            field="tfds_split",
            code="unknown-part",
        ) from None
    if asked.from_ is None and asked.to is None:
        return asked.splitname, None
    size = splits[asked.splitname].num_examples
    start, stop = asked.from_ or 0, size if asked.to is None else asked.to
    if start >= stop:
        raise DataError(
            f"tfds: got split {split!r}, which contains none of the {size:,} records",
            field="tfds_split",
            code="unknown-part",
        )
    return asked.splitname, (start, stop)


def _flat_features(features: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yields the features in the order of features.json, in which names are sorted."""
    for name, feature in sorted(features.items()):
        if kind_of_feature(feature) == "FeaturesDict":
            yield from _flat_features(feature, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", feature
