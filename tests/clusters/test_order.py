"""Which examples each step gets, for any number of replicas and workers."""

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


def _batches(folder: Path, workers: int) -> list[list[str]]:
    """Joins the parts of each global batch, in the order of workers."""
    parts = []
    for number in range(workers):
        lines = (folder / "run" / f"ids-{number}.txt").read_text().splitlines()
        parts.append([line.split() for line in lines[:_STEPS]])
    return [[*chain(*step)] for step in zip(*parts, strict=True)]


@pytest.fixture(scope="module", autouse=True)
def _importable() -> None:
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(_ROOT), prepend=":")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    folder = tmp_path_factory.mktemp("one")
    alone(folder, *_FLAGS, ONE_DEVICE)
    return _batches(folder, 1)


@pytest.mark.slow
def test_two_epochs_use_each_example_exactly_twice(
    expected: list[list[str]],
) -> None:
    row = [*chain(*expected)]
    assert len(row) == _STEPS * 48 > 2 * 1438
    first, second = row[:1438], row[1438:2876]
    assert sorted(first) == sorted(second)
    assert first != second


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_get_the_batches_of_one_process(
    expected: list[list[str]], tmp_path: Path, workers: int
) -> None:
    run_workers(tmp_path, *_FLAGS, count=workers)

    assert _batches(tmp_path, workers) == expected
    computed = _computed(tmp_path / "run", workers)
    for worker in range(workers):
        lines = (tmp_path / "run" / f"ids-{worker}.txt").read_text().splitlines()
        assert computed[worker] == [line.split() for line in lines[:_STEPS]]


def _computed(run: Path, workers: int) -> list[list[list[str]]]:
    """Returns the images of the batches of each worker: its part of those of `runner batch`."""
    command = ("batch", str(run), f"--step=1:{_STEPS}", "--json")
    steps = json.loads(warm_runner.run(*command, check=True).stdout)
    images = load_digits(split="train").arrays["image"]
    size = steps[0]["batch_size"] // workers
    return [
        [
            [image_id(images[row["example"]]) for row in step["rows"][first : first + size]]
            for step in steps
        ]
        for first in range(0, workers * size, size)
    ]
