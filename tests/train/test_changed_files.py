"""A second run in the same process trains on the data as they are then."""

import shutil

import numpy as np
import pytest

from tests.support.ratings import ratings_config, write_100k
from tests.support.tables import make_rows, table_config, write_csv
from tests.support.toy import run, weights

_STEPS = {"trainer__train_steps": 4, "trainer__validation_interval": 4}


def _table(folder, count):
    folder.mkdir(exist_ok=True)
    write_csv(folder / "rows.csv", make_rows(count))
    return table_config(folder / "rows.csv", **_STEPS)


def _ratings(folder, count):
    shutil.rmtree(folder, ignore_errors=True)
    write_100k(folder, num_examples=20 * count)
    data = {}
    for section in ("train_data", "validation_data"):
        data[f"task__{section}__source"] = "movielens"
        data[f"task__{section}__data_dir"] = str(folder)
    return ratings_config(**data, **_STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("make", [_table, _ratings])
def test_each_run_reads_its_files(tmp_path, make):
    run(make(tmp_path / "data", 100), tmp_path / "before")

    model, _ = run(make(tmp_path / "data", 60), tmp_path / "after")

    expected, _ = run(make(tmp_path / "other_data", 60), tmp_path / "expected")
    for actual, expected_weights in zip(weights(model), weights(expected), strict=True):
        np.testing.assert_array_equal(actual, expected_weights)
