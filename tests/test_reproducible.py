"""Every checked-in experiment, run twice in separate processes."""

import json
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.config.parsing.search_path import experiment_files
from orbit_runner.config.resolve import Request, resolve
from tests.support import warm_runner
from tests.support.small_experiments import overrides, sampled


def _needs_files(name: str) -> bool:
    return resolve(Request(experiment=name)).config.task.train_data.source != "digits"


def _run(name: str, folder: Path, *more: str) -> dict[str, Any]:
    generated = ["--config_file=configs/data/synthetic.yaml"] if _needs_files(name) else []
    steps = ["--trainer.train_epochs=0", "--trainer.train_steps=12"]
    small = ["--task.train_data.global_batch_size=16", "--trainer.checkpoint_interval=5"]
    smaller = [f"--params_override={text}" for text in overrides(name)]
    flags = [*generated, *steps, *small, *smaller, *more]
    completed = warm_runner.run(f"--experiment={name}", "--json", f"--model_dir={folder}", *flags)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


@pytest.mark.promise("weights", "the same config gives the same weights, bit for bit")
@pytest.mark.sample(1)
@pytest.mark.parametrize("name", sampled(sorted(experiment_files())))
def test_the_same_config_gives_the_same_weights(name, tmp_path):
    first, two = (_run(name, tmp_path / folder, "--mode=train") for folder in ("one", "two"))
    assert first["step"] == 12
    assert first["inexact"] == two["inexact"] == []
    assert first["fingerprint"] == two["fingerprint"]
    records = [
        json.loads((tmp_path / folder / "checkpoints" / "ckpt-12.json").read_text())
        for folder in ("one", "two")
    ]
    for key in ("weights", "state", "config", "optimizer"):
        assert records[0][key] == records[1][key]
    assert records[0]["weights"] == first["fingerprint"]
