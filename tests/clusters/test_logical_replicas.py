"""Runs with logical replicas: the same weights with any number of processes and devices."""

import pytest

from tests.clusters.members import (
    EXPERIMENT,
    ONE_DEVICE,
    alone,
    content,
    mirrored,
    records,
    run_workers,
)

_COMMON = (
    *EXPERIMENT,
    "--runtime.logical_replicas=4",
    "--task.model.dropout_rate=0.3",
    "--trainer.checkpoint_interval=5",
)


@pytest.mark.slow
def test_run_continues_with_workers_and_on_the_devices_of_one_process(tmp_path):
    alone(tmp_path / "whole", *_COMMON, ONE_DEVICE, "--train_steps=15")
    alone(tmp_path / "parts", *_COMMON, *mirrored(4), "--train_steps=5")
    run_workers(tmp_path / "parts", *_COMMON, "--train_steps=10")
    alone(tmp_path / "parts", *_COMMON, ONE_DEVICE, "--train_steps=15")

    assert content(tmp_path / "parts") == content(tmp_path / "whole")


@pytest.mark.slow
def test_evaluation_of_a_model_garden_task_is_equal_with_workers(tmp_path):
    # The last batch has 5 rows: two shards, a part of one, and none.
    flags = (
        "--experiment=official/my_line", "--import=tests.support.official_toys", "--task.size=21",
        "--runtime.logical_replicas=4", "--trainer.validation_interval=3",
        "--trainer.validation_steps=-1",
    )  # fmt: skip
    alone(tmp_path / "one", *flags, ONE_DEVICE)
    run_workers(tmp_path / "workers", *flags)

    assert content(tmp_path / "workers") == content(tmp_path / "one")
    one_device, workers = (records(tmp_path / name, "validation") for name in ("one", "workers"))
    assert [r["validation_examples"] for r in one_device] == [21, 21]
    names = ("step", "validation_loss", "validation_examples", "error")
    assert [[r[name] for name in names] for r in workers] == [
        [r[name] for name in names] for r in one_device
    ]
