"""Checkpoints of workers restored under other strategies, and the reverse."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.clusters.members import EXPERIMENT, ONE_DEVICE, alone, content, mirrored, run_workers

_ADAM = (*EXPERIMENT, "--trainer.checkpoint_interval=100", "--resume=override", "--mode=train")


def _copy(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def _workers(folder: Path, *flags: str) -> dict[str, Any]:
    run_workers(folder, *_ADAM, *flags)
    return content(folder)


def _alone(folder: Path, *flags: str) -> dict[str, Any]:
    alone(folder, *_ADAM, *flags)
    return content(folder)


@pytest.fixture(scope="module")
def at_ten(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The state after ten steps on one device, on two replicas and on two workers."""
    folder = tmp_path_factory.mktemp("ten")
    _alone(folder / "one", ONE_DEVICE, "--train_steps=10")
    _alone(folder / "mirrored", *mirrored(2), "--train_steps=10")
    _workers(folder / "workers", "--train_steps=10")
    return {name: folder / name for name in ("one", "mirrored", "workers")}


@pytest.mark.slow
def test_workers_resume_from_one_device_as_replicas_do(
    at_ten: dict[str, Path], tmp_path: Path
) -> None:
    ours = _workers(_copy(at_ten["one"], tmp_path / "workers"), "--train_steps=15")
    theirs = _alone(_copy(at_ten["one"], tmp_path / "two"), *mirrored(2), "--train_steps=15")

    assert ours == theirs


@pytest.mark.matrix
def test_one_device_resumes_from_workers_as_from_replicas(
    at_ten: dict[str, Path], tmp_path: Path
) -> None:
    assert content(at_ten["workers"]) == content(at_ten["mirrored"])
    ours = _alone(_copy(at_ten["workers"], tmp_path / "a"), ONE_DEVICE, "--train_steps=15")
    theirs = _alone(_copy(at_ten["mirrored"], tmp_path / "b"), ONE_DEVICE, "--train_steps=15")

    assert ours == theirs
