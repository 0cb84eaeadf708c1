"""Finds validation examples that are also training examples. Does not import TensorFlow.

Each example gets a key, and examples with equal keys are the same: files and records by where they
are, and by their contents where these are quick to read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from orbit_runner.data.dataset import Dataset

Describe = Callable[[int], str]


@dataclasses.dataclass(frozen=True)
class SharedExamples:
    """Validation examples that are also training examples.

    Attributes:
        count: Their number.
        size: The number of validation examples.
        unit: What an example is, in the plural: `images`.
        places: Where one of them is in the validation data and in the training data; "" if unknown.
        advice: How to separate the sections.
        by_features: Whether only the features were compared, but not the labels.
    """

    count: int
    size: int
    unit: str
    places: tuple[str, str] = ("", "")
    advice: str = ""
    by_features: bool = False

    def __str__(self) -> str:
        """Returns the sentence that a run and an inspection show."""
        mine, other = self.places
        such = f", such as {mine}" if mine else ""
        if other and other != mine:
            such += f", which is {other}"
        advice = f"; {self.advice}" if self.advice and self.count == self.size else ""
        are = "have the features of" if self.by_features else "are also"
        return (
            f"{self.count:,} of {self.size:,} validation {self.unit} {are} training "
            f"{self.unit}{such}; the results of evaluations may be better than on new data{advice}"
        )


def compare_keys(
    train: np.ndarray,
    validation: np.ndarray,
    unit: str,
    describe: tuple[Describe, Describe] = (lambda row: "", lambda row: ""),
    advice: str = "",
    *,
    by_features: bool = False,
) -> SharedExamples | None:
    """Returns the examples whose keys are among those of the training data, or None.

    Args:
        train: The keys of the training examples, [n].
        validation: The keys of the validation examples, [m].
        unit: What an example is, in the plural.
        describe: Functions that return the place of a training and of a validation example.
        advice: How to separate the sections.
        by_features: Whether the keys are those of the features, without the labels.
    """
    shared = np.flatnonzero(np.isin(validation, train))
    if not len(shared):
        return None
    row = int(shared[0])
    other = int((train == validation[row]).argmax())
    places = (describe[1](row), describe[0](other))
    return SharedExamples(len(shared), len(validation), unit, places, advice, by_features)


def shared_stored(
    train: Dataset | None,
    validation: Dataset | None,
    advice: str = "",
    excluded: np.ndarray | None = None,
    labels: Sequence[str] = ("label",),
    unit: str = "images",
) -> SharedExamples | None:
    """Returns the examples of the validation data that are training examples, or None.

    `excluded`, int64 [k], are training examples that are left out. `labels` names the arrays that
    are not compared.
    """
    if train is None or validation is None:
        return None
    if (train.file_bytes() is None) != (validation.file_bytes() is None):
        return None  # Examples in memory have other keys than those in files.
    keys = [train.content_keys(labels, validation), validation.content_keys(labels, train)]
    if any(of_dataset is None for of_dataset in keys):
        keys = [dataset.place_keys() for dataset in (train, validation)]
    left, right = keys
    if left is None or right is None:
        if train is not validation:
            return None  # Too large to compare.
        left = right = np.arange(train.size)
    used = np.delete(np.arange(train.size), [] if excluded is None else excluded)
    places = (lambda row: train.location(int(used[row])), validation.location)
    return compare_keys(left[used], right, unit, places, advice, by_features=unit != "images")
