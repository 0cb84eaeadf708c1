"""The breast cancer data of scikit-learn (Wisconsin, diagnostic), which need no download."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orbit_runner.data.tables.array_tables import array_reader
from orbit_runner.data.tables.reader import TableOptions, TableReader
from orbit_runner.datasets.sklearn_files import check_no_paths, packaged_file, read_table

_MEASURES = (
    "radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity",
    "concave_points", "symmetry", "fractal_dimension",
)  # fmt: skip
_FEATURES = tuple(f"{kind}_{name}" for kind in ("mean", "error", "worst") for name in _MEASURES)
_CLASSES = np.array(["malignant", "benign"])
_SIZE = 569


def load(*, data_dir: str, input_path: Sequence[str], options: TableOptions) -> TableReader:
    """Returns 569 tumors: 30 measures of cell nuclei, and `diagnosis`, malignant or benign.

    Raises `DataError` if paths are set, or if the file of scikit-learn is missing or invalid.
    """
    check_no_paths("breast_cancer", data_dir, input_path)
    path = packaged_file("breast_cancer", "breast_cancer.csv")
    table = read_table("breast_cancer", path, (_SIZE, len(_FEATURES) + 1), ",", head=1)
    columns = dict(zip(_FEATURES, table.T[:-1], strict=True))
    columns["diagnosis"] = _CLASSES[table[:, -1].astype(int)]
    return array_reader("breast_cancer", [(str(path), columns)], [path])
