"""`runner why` on pairs of runs that differ for a known cause."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of
from orbit_runner.cli.main import main
from tests.support.keras_models import classes
from tests.support.problems import fails, output_of

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
task:
  name: keras
  model: {build: tests.support.keras_models:classifier, arguments: {units: 8, dropout: 0.5}}
  loss: {class_name: SparseCategoricalCrossentropy, config: {from_logits: true}}
  train_data: {source: npz, input_path: a.npz, global_batch_size: 16}
  validation_data: {source: npz, input_path: test.npz, global_batch_size: 16}
trainer:
  train_steps: 12
  checkpoint_interval: 4
  summary_interval: 2
  validation_interval: 12
  optimizer_config:
    optimizer: {type: adam}
    learning_rate: {type: constant, constant: {learning_rate: 0.01}}
runtime: {distribution_strategy: one_device, seed: 1, intra_op_threads: 1}
"""
RECORD = 3073  # bytes: the label and the pixels of an image
IMAGES = """
task:
  name: image_classification
  model: {name: mlp, hidden_units: [4]}
  train_data: {source: cifar10, data_dir: set, global_batch_size: 8}
  validation_data: {source: cifar10, data_dir: set, global_batch_size: 8}
trainer:
  train_steps: 6
  checkpoint_interval: 2
  optimizer_config:
    optimizer: {type: sgd}
    learning_rate: {type: constant, constant: {learning_rate: 0.01}}
runtime: {distribution_strategy: one_device, seed: 1, intra_op_threads: 1}
"""
# A network in which threads and oneDNN change the last bits.
DIGITS = (
    "--experiment=digits",
    "--train_steps=4",
    "--trainer.checkpoint_interval=2",
    "--trainer.validation_interval=4",
    "--runtime.intra_op_threads=0",
)
Why = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with the data, the config and the run `a`."""
    directory = tmp_path_factory.mktemp("why")
    x, y = classes()
    for name in ("a", "test"):
        np.savez(directory / f"{name}.npz", x=x.astype(np.float32), y=y)
    (directory / "some.yaml").write_text(CONFIG)
    _train(directory, "a")
    return directory


def _train(folder: Path, name: str, *flags: str) -> None:
    """Trains a run in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["run", "--experiment=some.yaml", f"--model_dir={name}", *flags]) == 0


def _train_apart(folder: Path, name: str, *flags: str, **variables: str) -> None:
    """Trains a run in a process with other environment variables."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "orbit_runner", *flags, f"--model_dir={name}", "--quiet"]
    env = {**os.environ, "PYTHONPATH": path, **variables}
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)


@pytest.fixture
def why(folder, monkeypatch, capsys):
    """Runs the command in the directory of the runs; returns its exit code and its JSON."""
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(["why", *arguments, "--json", "--quiet"])
        return code, json.loads(capsys.readouterr().out)

    return run


SETTINGS: Mapping[str, tuple[str, str, str]] = {
    "seed": (
        "--runtime.seed=2",
        "runtime.seed differs (1 and 2)",
        "the weights dense/kernel at the beginning",
    ),
    "learning_rate": (
        "--trainer.optimizer_config.learning_rate.constant.learning_rate=0.02",
        "trainer.optimizer_config.learning_rate.constant.learning_rate differs (0.01 and 0.02)",
        "the update of dense/kernel at step 1",
    ),
    "order": (
        "--task.train_data.seed=5",
        "task.train_data.seed differs (null and 5)",
        "the examples of the batch at step 1",
    ),
}


@pytest.mark.promise("commands", "`runner why` names the cause of a difference")
@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_changed_setting_is_the_cause(name, folder, why):
    flag, cause, tensor = SETTINGS[name]
    _train(folder, name, flag)

    code, output = why("a", name)

    assert code == 4
    assert output["verdict"] == f"{cause}; first differing tensor: {tensor.removeprefix('the ')}"
    assert output["first_tensor"] == tensor
    assert output["reruns"]["repeats"] == [True, True]
    assert output["reruns"]["notes"] == []
    assert [first_cause["kind"] for first_cause in output["causes"]] == ["settings"]


def _write_images(directory: Path, changed: int | None = None) -> None:
    """Writes 40 images in five files; `changed` is the example with another label."""
    directory.mkdir()
    rows = np.random.default_rng(0).integers(0, 10, (40, RECORD)).astype(np.uint8)
    if changed is not None:
        rows[changed, 0] = (rows[changed, 0] + 1) % 10
    for index in range(5):
        rows[8 * index : 8 * index + 8].tofile(directory / f"data_batch_{index + 1}.bin")
    rows[:8].tofile(directory / "test_batch.bin")


@pytest.mark.promise("commands", "`runner why` names the cause of a difference")
@pytest.mark.slow
def test_changed_label_is_named_with_its_example_and_file(folder, why, monkeypatch):
    (folder / "images.yaml").write_text(IMAGES)
    _write_images(folder / "set")
    _write_images(folder / "other", changed=17)
    for name, data in (("images", "set"), ("label", "other")):
        command = ["--experiment=images.yaml", f"--data_dir={data}", f"--model_dir={name}"]
        assert main(["run", *command]) == 0

    code, output = why("images", "label")

    assert code == 4
    assert re.fullmatch(
        r"train_data: data_batch_3\.bin differs "
        r"\(sha256:\w{12} and sha256:\w{12}\); "
        r"first differing tensor: labels of the batch at step \d",
        output["verdict"],
    )
    assert output["reruns"]["tensor"]["examples"] == [17]
    assert output["reruns"]["tensor"]["differing"] == 1
    # The directory is no cause, because its files are compared.
    assert [cause["kind"] for cause in output["causes"]] == ["data"]


@pytest.mark.slow
def test_file_that_was_replaced_is_named(folder, why):
    x, y = classes()
    np.savez(folder / "replaced.npz", x=x.astype(np.float32), y=y)
    _train(folder, "before", "--task.train_data.input_path=replaced.npz")
    np.savez(folder / "replaced.npz", x=x.astype(np.float32)[::-1], y=y)
    _train(folder, "after", "--task.train_data.input_path=replaced.npz")

    code, output = why("before", "after")

    assert code == 4
    assert re.fullmatch(
        r"train_data: replaced\.npz differs \(sha256:\w{12} and sha256:\w{12}\); "
        r"the weights differ at step 4",
        output["verdict"],
    )
    assert output["problem"].startswith("A cannot be run again: before: the data changed since")


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere, oneDNN may not be there")
def test_environment_of_each_run_is_used_again(folder, why):
    # Without oneDNN, which gives the same weights on some processors.
    for threads in ("1", "2"):
        variables = {"TF_NUM_INTRAOP_THREADS": threads, "TF_ENABLE_ONEDNN_OPTS": "0"}
        _train_apart(folder, f"digits_{threads}", *DIGITS, **variables)

    code, output = why("digits_1", "digits_2")

    assert code == 4
    assert output["reruns"]["repeats"] == [True, True], output["reruns"]["notes"]
    # Which tensor differs first depends on the processor.
    assert "intra-op threads differ (1 and 2); first differing tensor: " in output["verdict"]
    assert re.search(r"(output|gradient) of \w+(/\w+)? at step \d$", output["verdict"])
    assert [cause["kind"] for cause in output["causes"]] == ["numerics"]


def _copy(folder: Path, name: str) -> Path:
    return Path(shutil.copytree(folder / "a", folder / name))


def _change_weights(run: Path, step: int) -> None:
    """Changes the recorded weights of a checkpoint in its record and in the list of all."""
    folder = checkpoints_of(run)
    record = folder.record(step)
    assert record is not None
    other = replace(record, weights="0" * 64, state="1" * 64)
    other.write(folder.path / f"ckpt-{step}.json")
    with (folder.path / "fingerprints.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "weights": other.weights, "state": other.state}))
        file.write("\n")


@pytest.mark.slow
def test_other_numpy_is_named_if_a_rerun_does_not_repeat_the_run(folder, why):
    run = _copy(folder, "numpy")
    record = json.loads((run / "run.json").read_text())
    now = record["attempts"][-1]["software"]["numpy"]
    record["attempts"][-1]["software"]["numpy"] = "1.0.0"
    (run / "run.json").write_text(json.dumps(record))
    _change_weights(run, 12)

    code, output = why("a", "numpy")

    assert code == 4
    assert f"numpy differs ({now} and 1.0.0); the weights differ at step 12" in output["verdict"]
    assert output["verdict"].endswith(", and are equal at step 8")
    assert output["reruns"]["start"] == 8
    assert output["reruns"]["repeats"] == [True, False]
    assert "a rerun of B does not give the weights that B recorded" in output["reruns"]["notes"][0]


@pytest.mark.usefixtures("no_tensorflow")
def test_equal_runs_are_equal_and_only_records_are_read(finished_run, run):
    lines = output_of(["why", str(finished_run), str(run)]).splitlines()
    assert lines[0] == "equal: 3 checkpoints up to step 30"
    assert "  recorded     checkpoints of steps 10, 20, 30 were compared" in lines


@pytest.mark.usefixtures("no_tensorflow")
def test_recorded_flag_does_not_run_again(finished_run, run):
    _change_weights(run, 30)
    arguments = ["why", str(finished_run), str(run), "--recorded", "--json"]
    output = json.loads(output_of(arguments, exit_code=4))
    assert (output["reruns"], output["problem"]) == (None, "")
    assert output["verdict"] == (
        "no recorded difference explains it; the weights differ at step 30, "
        "and are equal at step 20"
    )


def test_directory_without_a_run_is_rejected(finished_run, tmp_path):
    for names in ([finished_run, "nothing"], [tmp_path, finished_run]):
        fails(["why", *map(str, names)], "not-a-run")
