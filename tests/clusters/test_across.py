"""A checkpoint of one device, restored by two workers."""

import shutil

import pytest

from tests.clusters.members import EXPERIMENT, ONE_DEVICE, alone, content, mirrored, run_workers

_FLAGS = (*EXPERIMENT, "--trainer.checkpoint_interval=100", "--resume=override", "--mode=train")


@pytest.mark.slow
def test_workers_resume_from_one_device_as_replicas_do(tmp_path):
    alone(tmp_path / "workers", *_FLAGS, ONE_DEVICE, "--train_steps=10")
    shutil.copytree(tmp_path / "workers", tmp_path / "replicas")
    run_workers(tmp_path / "workers", *_FLAGS, "--train_steps=15")
    alone(tmp_path / "replicas", *_FLAGS, *mirrored(2), "--train_steps=15")

    assert content(tmp_path / "workers") == content(tmp_path / "replicas")
