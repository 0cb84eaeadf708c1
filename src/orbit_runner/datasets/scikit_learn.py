"""Small datasets inside scikit-learn, which need no download, read without importing it.

These are handwritten digits, the breast cancer data (Wisconsin, diagnostic), and the diabetes data
(Efron et al. 2004).
"""

from __future__ import annotations

import gzip
import importlib.util
import zlib
from pathlib import Path

import numpy as np

from orbit_runner.data.images.dataset import ImageArrays
from orbit_runner.data.source import places_of_arrays
from orbit_runner.data.tables.array_tables import array_table
from orbit_runner.data.tables.dataset import TableDataset, TableReader
from orbit_runner.errors import DataError

_DIGITS_SIDE = 8
# Mean and standard deviation over all 1,797 images, in units of 0 to 16.
_DIGITS_MEAN, _DIGITS_STD = (4.884165,), (6.016788,)
_CANCER_MEASURES = (
    "radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity",
    "concave_points", "symmetry", "fractal_dimension",
)  # fmt: skip
_CANCER_FEATURES = tuple(
    f"{kind}_{name}" for kind in ("mean", "error", "worst") for name in _CANCER_MEASURES
)
_CANCER_CLASSES = np.array(["malignant", "benign"])
_DIABETES_FEATURES = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


def load_digits(*, split: str) -> ImageArrays:
    """Returns handwritten digits: `image` uint8 [n, 8, 8, 1] and `label` int32 [n].

    Pixels are 0 to 16. scikit-learn's file of 1,797 examples has no splits. Here, every fifth
    example (number 4, 9, 14, …) is for testing: `split` is `train` (1,438 examples), `test` (359)
    or `all`. Raises `DataError` if the file is missing or invalid.
    """
    path = _packaged_file("digits.csv.gz")
    table = _read_table(path, ",")
    is_test = np.arange(len(table)) % 5 == 4
    is_chosen = {"train": ~is_test, "test": is_test, "all": np.ones_like(is_test)}[split]
    rows = table[is_chosen]
    return ImageArrays(
        name="digits",
        arrays={
            "image": rows[:, :-1].astype(np.uint8).reshape(-1, _DIGITS_SIDE, _DIGITS_SIDE, 1),
            "label": rows[:, -1].astype(np.int32),
        },
        num_classes=10,
        mean=_DIGITS_MEAN,
        std=_DIGITS_STD,
        files=(path,),
        places=places_of_arrays("DATASET", [("digits", len(table))]).select(
            np.flatnonzero(is_chosen)
        ),
    )


def load_breast_cancer() -> TableDataset:
    """Returns 569 tumors: 30 measures of cell nuclei, and `diagnosis`, malignant or benign."""
    path = _packaged_file("breast_cancer.csv")
    table = _read_table(path, ",", head=1)
    columns = dict(zip(_CANCER_FEATURES, table.T[:-1], strict=True))
    columns["diagnosis"] = _CANCER_CLASSES[table[:, -1].astype(int)]
    return array_table("breast_cancer", [(str(path), columns)], [path])


def load_diabetes() -> TableDataset:
    """Returns 442 patients: ten measures in their units, and `progression` after a year."""
    files = [_packaged_file(f"diabetes_{name}.csv.gz") for name in ("data_raw", "target")]
    table = _read_table(files[0], None)
    columns = dict(zip(_DIABETES_FEATURES, table.T, strict=True))
    columns["progression"] = _read_table(files[1], None)
    return array_table("diabetes", [(str(files[0]), columns)], files)


def _packaged_file(name: str) -> Path:
    """Returns the path of a data file of scikit-learn."""
    # Importing scikit-learn takes a second; finding it does not.
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise DataError(
            "scikit-learn is not installed; run `pip install scikit-learn`", code="missing-package"
        )
    return Path(spec.origin).parent / "datasets" / "data" / name


def _read_table(path: Path, delimiter: str | None, *, head: int = 0) -> np.ndarray:
    """Returns the numbers in a text file, plain or gzip, float64, without its first lines.

    Raises `DataError` if it is missing or damaged.
    """
    try:
        open_text = gzip.open if path.suffix == ".gz" else open
        with open_text(path, "rt", encoding="utf-8") as lines:
            return np.loadtxt(lines, delimiter=delimiter, skiprows=head, dtype=np.float64)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); reinstall scikit-learn", code="unreadable-file"
        ) from None


BREAST_CANCER = TableReader(load_breast_cancer)
DIABETES = TableReader(load_diabetes)
