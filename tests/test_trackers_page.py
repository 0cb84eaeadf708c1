"""The documentation page on trackers: its files are run exactly as printed."""

import csv
import json
import sys

import pytest

from orbit_runner.cli.main import main
from tests.support.docs import files_of, write_files

SHORT = ["--train_steps=40", "--trainer.validation_interval=20", "--trainer.summary_interval=10"]


@pytest.fixture(autouse=True)
def _files_of_the_page(here, monkeypatch):
    write_files("trackers.md", here)
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.delitem(sys.modules, "my_trackers", raising=False)
    monkeypatch.setattr("orbit_runner.trackers.tracking._WAIT", 600.0)


def _weights(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    command = ["run", "--experiment=digits_mlp", *SHORT, "--json", "--quiet", *arguments]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "warning: tracker" not in printed.err
    fingerprint: str = json.loads(printed.out)["fingerprint"]
    assert len(fingerprint) == 64
    return fingerprint


@pytest.mark.slow
def test_weights_are_the_same_with_each_documented_config(capsys, tmp_path):
    without = _weights(capsys, "--params_override=trackers=[]", "--model_dir=without")
    configs = sorted(name for name in files_of("trackers.md") if name.endswith(".yaml"))
    assert configs == ["mlflow.yaml", "own.yaml", "tensorboard.yaml", "wandb.yaml"]

    fingerprints = {
        name: _weights(capsys, f"--config_file={name}", f"--model_dir={name}-run")
        for name in configs
    }

    assert fingerprints == dict.fromkeys(configs, without)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = [(row[0], row[1]) for row in csv.reader(file) if row[2] == "accuracy"]
    assert {step for step, split in rows if split == "validation"} == {"20", "40"}
    assert {step for step, split in rows if split == "train"} == {"10", "20", "30", "40"}
    assert (tmp_path / "mlflow.db").exists()
    assert [*(tmp_path / "wandb.yaml-run/wandb").glob("offline-run-*")]
    event_files = {path.parent.parent.name for path in tmp_path.glob("*/train/events.*")}
    assert event_files == {"mlflow.yaml-run", "tensorboard.yaml-run"}
