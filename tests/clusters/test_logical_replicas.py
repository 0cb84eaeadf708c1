"""Runs of Model Garden with logical replicas: the same weights and evaluations with workers."""

import pytest

from tests.clusters.members import ONE_DEVICE, alone, content, records, run_workers


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
