"""Which examples each step gets, for any number of workers."""

import json
from itertools import chain
from pathlib import Path

import pytest

from orbit_runner.datasets.scikit_learn import load_digits
from tests.clusters.image_ids import image_id
from tests.clusters.members import EXPERIMENT, ONE_DEVICE, alone, run_workers
from tests.support import warm_runner

_STEPS = 60
_FLAGS = (
    *EXPERIMENT, "--import=tests.clusters.ids_task", "--mode=train",
    f"--train_steps={_STEPS}", "--trainer.summary_interval=30",
    "--task.train_data.on_device=false",  # The task records what its pipeline produces.
)  # fmt: skip
_ROOT = Path(__file__).parents[2]


def _batches(folder, workers):
    """Joins the parts of each global batch, in the order of workers."""
    parts = []
    for number in range(workers):
        lines = (folder / "run" / f"ids-{number}.txt").read_text().splitlines()
        parts.append([line.split() for line in lines[:_STEPS]])
    return [[*chain(*step)] for step in zip(*parts, strict=True)]


@pytest.mark.slow
def test_workers_get_the_batches_of_one_process_and_of_runner_batch(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(_ROOT), prepend=":")
    alone(tmp_path / "one", *_FLAGS, ONE_DEVICE)
    run_workers(tmp_path / "three", *_FLAGS, count=3)
    command = ("batch", str(tmp_path / "three" / "run"), f"--step=1:{_STEPS}", "--json")
    steps = json.loads(warm_runner.run(*command, check=True).stdout)
    images = load_digits(split="train").arrays["image"]
    expected = [[image_id(images[row["example"]]) for row in step["rows"]] for step in steps]

    assert _batches(tmp_path / "one", 1) == expected
    assert _batches(tmp_path / "three", 3) == expected
