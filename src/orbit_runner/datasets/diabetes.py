"""The diabetes data of scikit-learn (Efron et al. 2004), which need no download."""

from __future__ import annotations

from collections.abc import Sequence

from orbit_runner.data.tables.array_tables import array_reader
from orbit_runner.data.tables.reader import TableOptions, TableReader
from orbit_runner.datasets.sklearn_files import check_no_paths, packaged_file, read_table

_FEATURES = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")
_SIZE = 442


def load(*, data_dir: str, input_path: Sequence[str], options: TableOptions) -> TableReader:
    """Returns 442 patients: ten measures in their units, and `progression` after a year.

    Raises `DataError` if paths are set, or if a file of scikit-learn is missing or invalid.
    """
    check_no_paths("diabetes", data_dir, input_path)
    files = [packaged_file("diabetes", f"diabetes_{n}.csv.gz") for n in ("data_raw", "target")]
    table = read_table("diabetes", files[0], (_SIZE, len(_FEATURES)), None)
    columns = dict(zip(_FEATURES, table.T, strict=True))
    columns["progression"] = read_table("diabetes", files[1], (_SIZE,), None)
    return array_reader("diabetes", [(str(files[0]), columns)], files)
