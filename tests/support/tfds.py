"""Writes datasets as TensorFlow Datasets prepares them; imports no TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Description = dict[str, Any]
_FEATURES = "tensorflow_datasets.core.features"

IMAGE: Description = {
    "pythonClassName": f"{_FEATURES}.image_feature.Image",
    "image": {"shape": {"dimensions": ["-1", "-1", "3"]}, "dtype": "uint8"},
}
TEXT: Description = {"pythonClassName": f"{_FEATURES}.text_feature.Text", "text": {}}


def scalar(dtype: str, *sizes: int) -> Description:
    """Returns the description of a tensor."""
    shape = {"dimensions": [str(size) for size in sizes]} if sizes else {}
    return {
        "pythonClassName": f"{_FEATURES}.tensor_feature.Tensor",
        "tensor": {"shape": shape, "dtype": dtype, "encoding": "none"},
    }


def class_label(count: int) -> Description:
    """Returns the description of a class."""
    return {
        "pythonClassName": f"{_FEATURES}.class_label_feature.ClassLabel",
        "classLabel": {"numClasses": str(count)},
    }


def features_dict(features: Mapping[str, Description]) -> Description:
    """Returns the description of features by name."""
    return {
        "pythonClassName": f"{_FEATURES}.features_dict.FeaturesDict",
        "featuresDict": {"features": dict(features)},
    }


def features_json(features: Mapping[str, Description]) -> str:
    """Returns the contents of `features.json`, whose names are sorted."""
    return json.dumps(features_dict(features), sort_keys=True)


def write_prepared(
    folder: Path,
    name: str,
    splits: Mapping[str, Sequence[Sequence[bytes]]],
    features: Mapping[str, Description],
    labels: Mapping[str, Sequence[str]],
    write: Callable[[Path, Sequence[bytes]], object],
    file_format: str = "tfrecord",
) -> Path:
    """Writes the records of each file of each split, and what describes them.

    Args:
        folder: The directory of datasets.
        name: The name of the dataset.
        splits: The records of the files of each split.
        features: The descriptions of the features.
        labels: The names of the classes of features.
        write: Writes a file.
        file_format: The format of the files.

    Returns:
        The directory of the version.
    """
    place = folder / name / "1.0.0"
    place.mkdir(parents=True)
    entries = []
    for split, files in splits.items():
        for number, records in enumerate(files):
            file = f"{name}-{split}.{file_format}-{number:05}-of-{len(files):05}"
            write(place / file, records)
        lengths = [str(len(records)) for records in files]
        entries.append({"name": split, "shardLengths": lengths, "numBytes": "1"})
    info = {"name": name, "version": "1.0.0", "fileFormat": file_format, "splits": entries}
    (place / "dataset_info.json").write_text(json.dumps(info))
    (place / "features.json").write_text(features_json(features))
    for feature, names in labels.items():
        (place / f"{feature}.labels.txt").write_text("".join(f"{label}\n" for label in names))
    return place
