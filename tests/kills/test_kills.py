"""A run that is killed and restarted ends with the weights of an uninterrupted run.

`make soak SUITE=kills` kills each run twenty times; these tests are a sample.
"""

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kills.harness import MOMENTS, killed, unkilled
from tests.support.tfrecords import write_set

_COMMON = [
    "--trainer.optimizer_config.ema.average_decay=0.99",
    "--trainer.gradient_accumulation_steps=2",
    "--trainer.early_stopping.metric=validation_loss",
    "--trainer.early_stopping.patience=1000",
    "--trainer.max_to_keep=3",
    "--trainer.best_checkpoint_export_subdir=best",
    "--trainer.best_checkpoint_eval_metric=accuracy",
]
_RUNS = {
    "digits": [
        "--experiment=digits",
        "--task.model.filters=[8, 16]",
        "--task.model.dense_units=32",
        "--trainer.train_epochs=0",
        "--trainer.validation_interval=40",
        "--trainer.checkpoint_interval=30",
        *_COMMON,
    ],
    "resnet_cifar": [
        "--experiment=resnet_cifar",
        "--config_file=configs/data/synthetic.yaml",
        "--task.model.depth=8",
        "--task.model.dropout_rate=0.3",
        "--task.train_data.global_batch_size=16",
        "--task.validation_data.global_batch_size=16",
        "--task.train_data.synthetic.num_examples=160",
        "--task.validation_data.synthetic.num_examples=32",
        "--task.train_data.augment=crop_flip",
        "--trainer.validation_interval=25",
        "--trainer.checkpoint_interval=10",
        *_COMMON,
    ],
}
_RUNS["tfrecord"] = [
    *_RUNS["resnet_cifar"],
    "--task.model.num_classes=10",
    "--task.train_data.source=tfrecord",
    "--task.train_data.input_path=train-*",
    "--task.train_data.shuffle_buffer_size=100",
    "--task.validation_data.source=tfrecord",
    "--task.validation_data.input_path=train-00",
]
_STEPS_A_KILL = {"digits": 250, "resnet_cifar": 60, "tfrecord": 150}


# The third has the settings of the second, and a pipeline of files.
_SAMPLE = [("digits", 1), ("tfrecord", 2)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs all cases, each killed `--kills` times, or a sample without that option."""
    kills = metafunc.config.getoption("--kills", default=0)
    if "replicas" not in metafunc.fixturenames:
        metafunc.parametrize("kills", [kills or len(MOMENTS)])
        return
    cases = [(name, replicas) for name in _RUNS for replicas in (1, 2, 4)] if kills else _SAMPLE
    metafunc.parametrize(
        ("name", "replicas", "kills"), [(*case, kills or len(MOMENTS)) for case in cases]
    )


def _replicas(count: int) -> list[str]:
    if count == 1:
        return []
    return ["--distribution_strategy=mirrored", f"--runtime.num_virtual_devices={count}"]


@pytest.mark.promise(
    "faults", "a run that is killed at random moments, again and again, ends with the same weights"
)
@pytest.mark.slow
def test_killed_run_ends_with_the_weights_of_an_uninterrupted_one(name, replicas, kills, tmp_path):
    steps = _STEPS_A_KILL[name] * (kills + 1)
    arguments = [*_RUNS[name], f"--train_steps={steps}", *_replicas(replicas)]
    if name == "tfrecord":
        arguments += [f"--data_dir={tmp_path / 'set'}"]
        (tmp_path / "set").mkdir()
        # About forty steps per epoch: most kills are in the middle of one, some at its end.
        write_set(tmp_path / "set", sizes=(70, 200, 64, 130, 150), shape=(8, 8, 3), classes=10)
    uninterrupted = unkilled(arguments, tmp_path / "whole")
    resumed = killed(itertools.repeat(arguments), tmp_path / "killed", kills, seed=replicas)
    assert len(resumed["deaths"]) == kills
    assert resumed["fingerprint"] == uninterrupted["fingerprint"]
    assert _known(tmp_path / "killed", steps) == _known(tmp_path / "whole", steps)


_LOGICAL = [*_RUNS["digits"], "--runtime.logical_replicas=4"]
_ONE_DEVICE = [*_LOGICAL, "--distribution_strategy=one_device"]


def _on_workers(count: int) -> list[str]:
    launch = ["launch", f"--workers={count}", "--"]
    return [*launch, *_LOGICAL, "--distribution_strategy=multi_worker_mirrored"]


_ON_DEVICES = [
    _ONE_DEVICE,
    [*_LOGICAL, *_replicas(2)],
    [*_LOGICAL, *_replicas(4)],
    _on_workers(2),
    _on_workers(4),
]


@pytest.mark.promise(
    "faults",
    "with `runtime.logical_replicas`, a run that is killed at random moments and restarted on "
    "other devices or workers each time ends with the same weights",
)
@pytest.mark.slow
def test_run_that_is_restarted_on_other_devices_ends_with_equal_weights(kills, tmp_path):
    last = _STEPS_A_KILL["digits"] * (kills + 1)
    steps = f"--train_steps={last}"
    uninterrupted = unkilled([*_ONE_DEVICE, steps], tmp_path / "whole")
    attempts = ([*arguments, steps] for arguments in _on_other_devices_each_time())
    resumed = killed(attempts, tmp_path / "killed", kills, seed=0)
    assert len(resumed["deaths"]) == kills
    assert resumed["fingerprint"] == uninterrupted["fingerprint"]
    assert _known(tmp_path / "killed", last) == _known(tmp_path / "whole", last)


def _on_other_devices_each_time() -> Iterator[list[str]]:
    rng, last = random.Random(0), _ON_DEVICES[0]
    while True:
        yield last
        last = rng.choice([devices for devices in _ON_DEVICES if devices is not last])


def _known(folder: Path, step: int) -> dict[str, Any]:
    """Returns the fingerprint of the whole state, and the best result."""
    record = json.loads((folder / "checkpoints" / f"ckpt-{step}.json").read_text())
    best = json.loads((folder / "best" / "info.json").read_text())
    return {"state": record["state"], "best": best}
