"""Images that TensorFlow Datasets has prepared, read by their index without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orbit_runner.data.array_record import source as array_records
from orbit_runner.data.array_record.files import ArrayRecordFiles
from orbit_runner.data.array_record.source import ArrayRecordSource
from orbit_runner.data.dataset import Reader
from orbit_runner.data.images.dataset import ImageUse
from orbit_runner.data.tfds.description import (
    ARRAY_RECORD,
    PreparedSplit,
    kind_of_feature,
    read_split,
    version_folder,
)
from orbit_runner.data.tfrecord.framing import index_files
from orbit_runner.data.tfrecord.source import RecordSource, first_shape
from orbit_runner.errors import DataError

_KEYS = ("image", "label")
_CLASSES = ("Image", "ClassLabel")


def load(
    *,
    tfds_name: str,
    split: str = "",
    default_splits: Sequence[str] = ("train",),
    data_dir: str = "",
    any_size: bool = False,
) -> RecordSource | ArrayRecordSource:
    """Returns the records of a dataset that TensorFlow Datasets has prepared.

    The directory of the dataset contains `dataset_info.json`, with the splits and their files, and
    `features.json`. The examples must have the features `image` (a JPEG or PNG file) and `label`,
    or other names for the only `Image` and the only `ClassLabel`.

    `tfds_name` is, for example, `imagenet2012`, `name/config` or `name:5.1.0`; by default, the
    newest version found is used. `split` is a split or a part of one, such as `train[:90%]`,
    `train[1000:2000]` or `train[-5%:]`; if it is empty, the first split in `default_splits` that
    exists is used. `data_dir` defaults to `TFDS_DATA_DIR` or `~/tensorflow_datasets`. If `any_size`
    is True, the first image need not be readable, because all images are resized.

    Raises `DataError` if the dataset is not prepared, has files of another format than TFRecord and
    ArrayRecord, or lacks the split.
    """
    name = f"tfds {tfds_name}"
    prepared = read_split(version_folder(tfds_name, data_dir), split, default_splits)
    keys = _find_keys(prepared)
    labels = prepared.class_names(keys[1])
    if prepared.file_format == ARRAY_RECORD:
        records = ArrayRecordFiles(prepared.files)
        prepared.check_records(sum(records.counts))
        return ArrayRecordSource(
            name,
            records,
            array_records.first_shape(name, records, keys, any_size),
            image_key=keys[0],
            label_key=keys[1],
            labels=labels,
            part=prepared.part,
        )
    indexes = index_files(prepared.files)
    prepared.check_records(sum(index.records for index in indexes))
    return RecordSource(
        name,
        prepared.files,
        tuple(indexes),
        first_shape(name, prepared.files, indexes, keys, any_size),
        image_key=keys[0],
        label_key=keys[1],
        labels=labels,
        part=prepared.part,
    )


def _find_keys(prepared: PreparedSplit) -> tuple[str, str]:
    """Returns the features of the image and of the label."""
    features = prepared.features
    keys = []
    for key, kind in zip(_KEYS, _CLASSES, strict=True):
        named = [name for name, feature in features.items() if kind_of_feature(feature) == kind]
        if key in features:
            named = [key]
        if len(named) != 1:
            raise DataError(
                f"{prepared.folder}: got features {', '.join(features)}, expected image and "
                "label, or one Image and one ClassLabel",
                field="tfds_name",
                code="bad-data",
            )
        keys += named
    return keys[0], keys[1]


def _arguments(section: Any, use: ImageUse) -> dict[str, object]:
    return {
        "tfds_name": section.tfds_name,
        "split": section.tfds_split,
        # With `task.split`, both sections read parts of the same images.
        "default_splits": (
            ("train",) if section.is_training or use.is_split else ("validation", "test")
        ),
        "data_dir": section.tfds_data_dir,
        "any_size": use.input_size is not None,
    }


IMAGES = Reader(load, _arguments)
