"""Measures tables of 5 million rows: first start, later starts, resume, rows per second, memory.

Compares this runner with `pandas.read_csv` (or `read_parquet`) and `from_tensor_slices`. Each start
is a new process. `python -m benchmarks.tables --rows=500000` measures fewer rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

_NUMBERS, _CATEGORIES, _BATCH, _SECONDS = 10, 3, 1024, 3.0
_ROWS = 5_000_000


def write_files(folder: Path, rows: int) -> None:
    """Writes the same random rows as CSV and as Parquet."""
    import pyarrow
    from pyarrow import csv, parquet

    random = np.random.default_rng(0)
    columns: dict[str, Any] = {
        f"x{number}": random.standard_normal(rows, np.float32) for number in range(_NUMBERS)
    }
    for number in range(_CATEGORIES):
        texts = np.array([f"text{code}" for code in range(10 ** (number + 1))])
        columns[f"c{number}"] = texts[random.integers(0, len(texts), rows)]
    columns["y"] = np.array(["no", "yes"])[(columns["x0"] > 0).astype(int)]
    table = pyarrow.table(columns)
    csv.write_csv(table, folder / "table.csv")
    parquet.write_table(table, folder / "table.parquet")


def _time_batches(batches: Any) -> tuple[float, float]:
    """Returns the time of the first batch, as a moment, and the rows per second after it."""
    iterator = iter(batches)
    next(iterator)
    first = time.perf_counter()
    for _ in range(20):
        next(iterator)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < _SECONDS:
        for _ in range(20):
            next(iterator)
        count += 20
    return first, count * _BATCH / (time.perf_counter() - start)


def _runner(path: Path, step: int) -> tuple[float, Any]:
    """Returns the moment before the table is opened, and batches of this runner."""
    from orbit_runner.config.resolve import Request, resolve
    from orbit_runner.tasks.tabular.task import TabularTask

    changes = []
    for section in ("train_data", "validation_data"):
        changes += [f"task.{section}.source={path.suffix[1:]}"]
        changes += [f"task.{section}.input_path={path}"]
    changes += [f"task.train_data.global_batch_size={_BATCH}", "task.targets=[y]"]
    changes += ["task.split=null"]
    config: Any = resolve(
        Request(experiment="breast_cancer", params_overrides=tuple(changes))
    ).config
    start = time.perf_counter()
    problems = [*config.data.problems()]
    assert not problems, problems
    task = TabularTask(config.task)
    return start, task.build_inputs(config.task.train_data, start_step=step)


def _pandas(path: Path, step: int) -> tuple[float, Any]:
    """Returns the moment before the table is opened, and batches as in TensorFlow's tutorials."""
    import pandas
    import tensorflow as tf

    start = time.perf_counter()
    frame = pandas.read_csv(path) if path.suffix == ".csv" else pandas.read_parquet(path)
    labels = frame.pop("y").astype("category").cat.codes.to_numpy(np.int32)
    columns = {name: frame[name].to_numpy() for name in frame}
    found = tf.data.Dataset.from_tensor_slices((columns, labels))
    found = found.shuffle(100_000, seed=1).repeat().batch(_BATCH).skip(step)
    return start, found.prefetch(tf.data.AUTOTUNE)


def _measure(contender: str, path: Path, step: int) -> dict[str, float]:
    from orbit_runner.inspection.measure import resident_peak

    start, batches = {"runner": _runner, "pandas": _pandas}[contender](path, step)
    first, speed = _time_batches(batches)
    peak = (resident_peak() or 0) / 2**30
    return {"start": first - start, "rows": speed, "gib": peak}


def _measure_in_process(contender: str, path: Path, step: int, cache: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.tables", "--measure", contender, str(path)]
    done = subprocess.run(
        [*command, str(step)],
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def report(rows: int = _ROWS) -> str:
    """Measures both formats, and returns a table."""
    lines = [
        f"### a table of {rows:,} rows, {_NUMBERS} numbers and {_CATEGORIES} categories",
        "",
        "| | seconds to the first batch | rows per second | peak memory |",
        "|---|---|---|---|",
    ]
    late = 3 * rows // _BATCH + 7
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_files(folder, rows)
        for path in (folder / "table.csv", folder / "table.parquet"):
            size = path.stat().st_size / 2**20
            for name, contender, step in (
                ("first start", "runner", 0),
                ("later start", "runner", 0),
                (f"resume at step {late:,}", "runner", late),
                ("pandas and from_tensor_slices", "pandas", 0),
            ):
                found = _measure_in_process(contender, path, step, folder / "cache")
                lines.append(
                    f"| {path.suffix[1:]}, {size:,.0f} MiB: {name} | {found['start']:.1f} "
                    f"| {found['rows']:,.0f} | {found['gib']:.1f} GiB |"
                )
    return "\n".join([*lines, ""])


def _main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.tables")
    parser.add_argument("--rows", type=int, default=_ROWS)
    parser.add_argument("--measure", nargs=3, metavar=("CONTENDER", "FILE", "STEP"))
    flags = parser.parse_args()
    if flags.measure:
        contender, path, step = flags.measure
        print(json.dumps(_measure(contender, Path(path), int(step))))
        return
    print(report(flags.rows))


if __name__ == "__main__":
    _main()
