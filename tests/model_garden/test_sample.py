"""Eight experiments of Model Garden, each of another kind of task, from the config to the end."""

import json

import pytest

from tests.support import warm_runner
from tools.model_garden_sample import CONFIG, EXPERIMENTS, write


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_trains_and_evaluates(name, tmp_path):
    write(name, tmp_path)

    completed = warm_runner.run(
        f"--experiment=official/{name}",
        f"--config_file={CONFIG}",
        "--mode=train_and_eval",
        "--model_dir=run",
        "--json",
        cwd=tmp_path,
    )

    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout)["step"] == 2
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert {(record["step"], record["split"]) for record in map(json.loads, lines)} >= {
        (2, "train"),
        (2, "validation"),
    }
