"""The descriptions of features that TensorFlow Datasets writes beside prepared data."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
