"""Reads `.npz` files without running code that they contain. Does not import TensorFlow."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from orbit_runner.errors import DataError, first_line


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a file by name.

    Raises `DataError` if the file is damaged, holds a single array, or holds Python objects, which
    would be unpickled.
    """
    try:
        found = np.load(path, allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            raise ValueError("a single array, expected an archive of numpy.savez")
        with found:
            return {name: found[name] for name in found.files}
    # NumPy and zipfile raise a dozen kinds of errors for damaged files.
    except Exception as error:
        raise DataError(
            f"{path}: cannot be read as .npz: {first_line(error)}", field="input_path"
        ) from None
