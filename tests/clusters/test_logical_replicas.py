"""Runs with logical replicas: the same weights with any number of processes and devices."""

from pathlib import Path

import pytest

from tests.clusters.members import EXPERIMENT, MULTI_WORKER, alone, cluster, content, finish

_COMMON = (
    *EXPERIMENT,
    "--runtime.logical_replicas=4",
    "--task.model.dropout_rate=0.3",
    "--trainer.checkpoint_interval=5",
)
_ONE = "--runtime.distribution_strategy=one_device"
_MIRRORED = ("--runtime.distribution_strategy=mirrored", "--runtime.num_virtual_devices=4")


def _workers(folder: Path, count: int, *flags: str) -> None:
    with cluster(folder, *_COMMON, MULTI_WORKER, *flags, worker=count) as members:
        assert finish(members) == dict.fromkeys(members, 0), members["worker0"].text


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.matrix)])
def test_workers_have_the_weights_and_state_of_one_device(count: int, tmp_path: Path) -> None:
    alone(tmp_path / "one", *_COMMON, _ONE, "--train_steps=10")
    _workers(tmp_path / "workers", count, "--train_steps=10")

    assert content(tmp_path / "workers") == content(tmp_path / "one")


@pytest.mark.slow
def test_run_continues_with_workers_and_on_the_devices_of_one_process(tmp_path: Path) -> None:
    alone(tmp_path / "whole", *_COMMON, _ONE, "--train_steps=15")
    alone(tmp_path / "parts", *_COMMON, *_MIRRORED, "--train_steps=5")
    _workers(tmp_path / "parts", 2, "--train_steps=10")
    alone(tmp_path / "parts", *_COMMON, _ONE, "--train_steps=15")

    assert content(tmp_path / "parts") == content(tmp_path / "whole")
