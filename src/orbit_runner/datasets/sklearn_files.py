"""Files of small datasets inside scikit-learn, read without importing it."""

from __future__ import annotations

import gzip
import importlib.util
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orbit_runner.errors import DataError

_HINT = "reinstall scikit-learn: pip install --force-reinstall scikit-learn"


def check_no_paths(source: str, data_dir: str, input_path: Sequence[str]) -> None:
    """Raises `DataError` if a path is set."""
    for field, value in (("data_dir", data_dir), ("input_path", list(input_path))):
        if value:
            raise DataError(
                f"{source}: got {field} {value!r}, expected none: the data comes with scikit-learn",
                field=field,
            )


def packaged_file(source: str, name: str) -> Path:
    """Returns the path of a data file of scikit-learn. Raises `DataError` if it is missing."""
    # Importing scikit-learn takes a second; finding it does not.
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise DataError(f"{source}: scikit-learn is not installed; run `pip install scikit-learn`")
    path = Path(spec.origin).parent / "datasets" / "data" / name
    if not path.is_file():
        raise DataError(f"{source}: {path} not found; {_HINT}")
    return path


def read_table(
    source: str, path: Path, shape: tuple[int, ...], delimiter: str | None, *, head: int = 0
) -> np.ndarray:
    """Returns the numbers in a text file, plain or gzip, float64, without its first `head` lines.

    Raises `DataError` if it has another shape than expected.
    """
    try:
        open_text = gzip.open if path.suffix == ".gz" else open
        with open_text(path, "rt", encoding="utf-8") as lines:
            table = np.loadtxt(lines, delimiter=delimiter, skiprows=head, dtype=np.float64)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{source}: {path} cannot be read ({error}); {_HINT}") from None
    if table.shape != shape:
        raise DataError(f"{source}: {path}: got shape {table.shape}, expected {shape}; {_HINT}")
    return table
