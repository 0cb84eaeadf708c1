"""The handwritten digits of scikit-learn, which need no download."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orbit_runner.data.files import check_split
from orbit_runner.data.source import ArraySource
from orbit_runner.datasets.sklearn_files import check_no_paths, packaged_file, read_table

_SIDE = 8
_SIZE = 1797
# Mean and standard deviation over all 1,797 images, in units of 0 to 16.
_MEAN, _STD = (4.884165,), (6.016788,)


def load(*, split: str, data_dir: str = "", input_path: Sequence[str] = ()) -> ArraySource:
    """Returns handwritten digits: `image` uint8 [n, 8, 8, 1] and `label` int32 [n].

    Pixels are 0 to 16. scikit-learn's file of 1,797 examples has no splits. Here, every fifth
    example (number 4, 9, 14, …) is for testing: `split` is `train` (1,438 examples), `test` (359)
    or `all`.

    `data_dir` and `input_path` must be empty, because the file comes with scikit-learn. Raises
    `DataError` if they are not, or if the file is missing or invalid.
    """
    check_split("digits", split)
    check_no_paths("digits", data_dir, input_path)
    path = packaged_file("digits", "digits.csv.gz")
    table = read_table("digits", path, (_SIZE, _SIDE**2 + 1), ",")
    is_test = np.arange(len(table)) % 5 == 4
    is_chosen = {"train": ~is_test, "test": is_test, "all": np.ones_like(is_test)}[split]
    chosen = table[is_chosen]
    return ArraySource(
        name="digits",
        arrays={
            "image": chosen[:, :-1].astype(np.uint8).reshape(-1, _SIDE, _SIDE, 1),
            "label": chosen[:, -1].astype(np.int32),
        },
        num_classes=10,
        mean=_MEAN,
        std=_STD,
        files=(path,),
        parts=(("digits", _SIZE),),
        rows=np.flatnonzero(is_chosen),
    )
