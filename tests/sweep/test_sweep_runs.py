"""Real sweeps of a small network: the same results, whatever is killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.run_directory.run_reader import read_runs
from tests.support import warm_runner
from tests.sweep.sweep_files import TEXT, write

SMALL = TEXT.replace("trials: 8", "trials: 3").replace("[20, 40]", "[20]").replace("60", "40")


def start(folder: Path, file: Path, *arguments: str) -> Any:
    command = [sys.executable, "-m", "orbit_runner", "sweep", str(file), f"--model_dir={folder}"]
    return subprocess.Popen(
        [*command, "--json", "--progress=plain", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def sweep(folder: Path, file: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    process = start(folder, file, *arguments)
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err
    return dict(json.loads(out))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished sweep; the file is beside it. Its directory has an odd name."""
    name = "-line\nfeed: [v2] *"
    folder = tmp_path_factory.mktemp("whole") / name
    folder.mkdir()
    sweep(folder / name, write(folder, SMALL), "--jobs=2")
    return folder / name


@pytest.mark.slow
def test_sweep_halves_its_trials(whole):
    record = json.loads((whole / "sweep.json").read_text())

    ends = sorted((trial["status"], trial["runs"][0]["step"]) for trial in record["trials"])
    assert ends == [("finished", 40), ("finished", 40), ("stopped", 20)]
    runs = read_runs([whole])
    assert [run.path.name for run in runs] == ["0000", "0001", "0002"]
    assert [run.status for run in runs] == [trial["status"] for trial in record["trials"]]
    weights = [trial["runs"][0]["weights"] for trial in record["trials"]]
    assert {len(text) for text in weights} == {64}
    assert runs[record["best"]].weights == weights[record["best"]]


@pytest.mark.slow
def test_finished_sweep_trains_nothing_again(whole):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("run.json")}
    text = (whole / "sweep.json").read_text()
    sweep(whole, whole.parent / "s.yaml")

    assert {path: path.stat().st_mtime_ns for path in whole.rglob("run.json")} == before
    assert (whole / "sweep.json").read_text() == text


@pytest.mark.slow
def test_winner_runs_again_with_the_same_weights(whole, tmp_path):
    record = json.loads((whole / "sweep.json").read_text())
    flags = [f"--experiment={whole / 'best.yaml'}", f"--model_dir={tmp_path / 'run'}", "--json"]
    completed = warm_runner.run(*flags, check=True)

    run = record["trials"][record["best"]]["runs"][0]
    assert json.loads(completed.stdout)["fingerprint"] == run["weights"]


@pytest.mark.slow
def test_interrupted_sweep_goes_on(whole, tmp_path):
    file = write(tmp_path, SMALL)
    process = start(tmp_path / "sweep", file, "--jobs=2")
    while not [*tmp_path.glob("sweep/trials/*/metrics.jsonl")] and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 143, err
    sweep(tmp_path / "sweep", file, "--jobs=2")

    assert (tmp_path / "sweep" / "sweep.json").read_bytes() == (whole / "sweep.json").read_bytes()


@pytest.mark.slow
def test_metric_that_no_trial_reports_is_an_error_after_the_first_one(tmp_path):
    file = write(tmp_path, SMALL.replace("metric: accuracy", "metric: acuracy"))
    (problem,) = sweep(tmp_path / "sweep", file, code=2)["errors"]

    assert (problem["code"], problem["path"]) == ("unknown-name", "objective.metric")
    assert problem["origin"] == {"label": str(file), "line": 8}
    assert "unknown metric 'acuracy'; did you mean 'accuracy'?" in problem["message"]
    assert [path.name for path in (tmp_path / "sweep" / "trials").iterdir()] == ["0000"]


@pytest.mark.slow
def test_failed_trial_is_reported_and_the_others_go_on(tmp_path):
    text = SMALL.replace(", halving: {rungs: [20], keep: 0.5}", "").replace(
        "trials: 3", "trials: 2"
    )
    file, trial = write(tmp_path, text), tmp_path / "sweep" / "trials" / "0001"
    process = start(tmp_path / "sweep", file)
    while not (tmp_path / "sweep" / "sweep.yaml").exists() and process.poll() is None:
        time.sleep(0.01)
    # A file in place of the directory of checkpoints: the trial cannot save.
    trial.mkdir(parents=True)
    (trial / "checkpoints").write_text("")
    out, err = process.communicate(timeout=300)

    assert process.returncode == 1, err
    assert [trial["status"] for trial in json.loads(out)["trials"]] == ["finished", "failed"]
    assert "trial 0001 failed; the others continue" in err
    assert "is not a directory" in err
    (trial / "checkpoints").unlink()
    (tmp_path / "sweep" / "failures" / "0001.json").unlink()
    second = sweep(tmp_path / "sweep", file)
    assert [trial["status"] for trial in second["trials"]] == ["finished", "finished"]


@pytest.mark.slow
def test_reproduce_names_the_run_of_a_sweep_that_differs(whole, tmp_path):
    folder = tmp_path / "sweep"
    shutil.copytree(whole, folder)
    results = json.loads((folder / "sweep.json").read_text())
    results["trials"][2]["runs"][0]["status"] = "failed"
    (folder / "sweep.json").write_text(json.dumps(results))
    trail = folder / "trials/0001/checkpoints/fingerprints.jsonl"
    lines = [json.loads(line) for line in trail.read_text().splitlines()]
    lines[0]["weights"] = "0" * 64
    trail.write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = ["reproduce", str(folder), "--json", f"--model_dir={tmp_path / 'again'}"]
    completed = warm_runner.run(*flags)

    assert completed.returncode == 4, completed.stderr
    output = json.loads(completed.stdout)
    assert (output["equal"], output["verdict"]) == (False, "differs: 1 of 2 runs")
    assert [run["equal"] for run in output["runs"]] == [True, False, None]
    assert output["runs"][0]["verdict"].startswith("equal: ")
    assert "the weights at step 20" in output["runs"][1]["verdict"]
    assert output["runs"][2]["verdict"] == "not compared: failed"
    assert (tmp_path / "again/trials/0001/checkpoints").is_dir()
    assert "trials/0000: equal" in completed.stderr
