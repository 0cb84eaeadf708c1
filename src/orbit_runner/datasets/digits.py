"""The handwritten digits of scikit-learn, which need no download."""

from __future__ import annotations

import gzip
import importlib.util
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.files import check_split
from orbit_runner.data.source import ArraySource
from orbit_runner.errors import DataError

_SIDE = 8
_SIZE = 1797
_HINT = "reinstall scikit-learn: pip install --force-reinstall scikit-learn"
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
    for field, value in (("data_dir", data_dir), ("input_path", list(input_path))):
        if value:
            raise DataError(
                f"digits: got {field} {value!r}, expected none: the data comes with scikit-learn",
                field=field,
            )
    path = _find_file()
    table = _read_table(path)
    is_test = np.arange(len(table)) % 5 == 4
    chosen = table[{"train": ~is_test, "test": is_test, "all": slice(None)}[split]]
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
    )


def _find_file() -> Path:
    # Importing scikit-learn takes a second; finding it does not.
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise DataError("digits: scikit-learn is not installed; run `pip install scikit-learn`")
    return Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"


def _read_table(path: Path) -> np.ndarray:
    try:
        with gzip.open(path, "rt") as lines:
            table = np.loadtxt(lines, delimiter=",", dtype=np.float64)
    except FileNotFoundError:
        raise DataError(f"digits: {path} not found; {_HINT}") from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"digits: {path} cannot be read ({error}); {_HINT}") from None
    if table.shape != (_SIZE, _SIDE**2 + 1):
        raise DataError(f"digits: {path}: got shape {table.shape}, expected (1797, 65); {_HINT}")
    return table
