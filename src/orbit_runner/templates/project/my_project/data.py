"""What the task reads. To train on your own table, change this file first.

It does not import TensorFlow, so that an error in the data is reported at once.
"""

import csv
import hashlib

import numpy as np
from orbit_runner import ArraySource, DataError, TaskData, describe_files

FEATURES = ("sepal_length", "sepal_width", "petal_length", "petal_width")
LABEL = "species"
_FILES = ("train_file", "validation_file")
CLASSES = ("setosa", "versicolor", "virginica")
_EXPECTED = f"numbers in {', '.join(FEATURES)}, and {LABEL} one of {', '.join(CLASSES)}"


class MyProjectData(TaskData):
    """The files that the settings name."""

    def problems(self):
        """Yields (setting, message) for files that cannot be read.

        The runner calls it before training, and shows which line set the setting.
        """
        for name in _FILES:
            try:
                read_rows(getattr(self.config, name))
            except DataError as error:
                yield name, str(error)

    def files(self):
        """Returns the files that the task reads, with their digests.

        A run records them. If their contents change, it does not resume, because its
        weights would no longer be those of one dataset.
        """
        paths = {name: getattr(self.config, name) for name in _FILES}
        return {name: describe_files([path], sha256) for name, path in paths.items()}


def read_rows(path):
    """Returns the rows of a CSV file as arrays of numbers, in the order of the file.

    Raises DataError, which the runner shows as a message without a traceback.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, ValueError, csv.Error) as error:
        message = f"cannot read {path}: {error}"
        raise DataError(message, code="unreadable-file") from None
    features, labels = [], []
    for line, row in rows:
        try:
            features.append([float(row[name]) for name in FEATURES])
            labels.append(CLASSES.index(row[LABEL]))
        except (KeyError, TypeError, ValueError):
            raise DataError(
                f"{path}:{line}: got {row}, expected {_EXPECTED}", code="bad-record"
            ) from None
    arrays = {
        "features": np.array(features, np.float32),
        "label": np.array(labels, np.int32),
    }
    return ArraySource(str(path), arrays)


def sha256(path):
    """Returns the digest that the runner compares when a run resumes."""
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
