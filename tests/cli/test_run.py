"""`runner run` as a process: signals, the run directory, and the terminal output."""

import json
import os
import pty
import re
import select

import pytest

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schedule_length import follow_run
from tests.conftest import FINISHED_RUN
from tests.support import warm_runner

MLP = ["--experiment=digits_mlp", "--task.model.dropout_rate=0", "--trainer.summary_interval=10"]


@pytest.fixture
def results(finished_run):
    """What the finished run printed to standard output."""
    text = (finished_run.parent / "results.json").read_text()
    return dict(json.loads(text, parse_constant=pytest.fail))


@pytest.mark.promise("commands", "progress goes to standard error, results to standard output")
def test_stdout_is_exactly_one_json_object(results):
    assert results["experiment"] == "digits_mlp"
    assert results["mode"] == "train_and_eval"
    assert results["step"] == 30
    assert results["metrics"]["validation_examples"] == 359
    assert results["best"]["best_ckpt_global_step"] == 30
    assert len(results["history"]["accuracy"]) == 1
    assert results["parameters"] == 8 * (64 + 1) + 10 * (8 + 1)
    assert results["model_dir"] == "run"


def test_run_directory_has_the_records_of_training_and_of_the_start(finished_run, results):
    lines = (finished_run / "metrics.jsonl").read_text().splitlines()
    steps: dict[str, list[int]] = {"train": [], "validation": []}
    for record in map(json.loads, lines):
        steps[record["split"]].append(record["step"])
    assert steps == {"train": [5, 10, 15, 20, 25, 30], "validation": [30]}
    for split in steps:
        assert len(list((finished_run / split).glob("events.out.tfevents.*"))) == 1
    assert (finished_run / "checkpoints" / "ckpt-30.index").exists()
    (attempt,) = json.loads((finished_run / "run.json").read_text())["attempts"]
    assert attempt["outcome"] == "done"
    assert attempt["argv"][:2] == ["runner", "--experiment=digits_mlp"]
    assert attempt["seed"] == 17
    assert attempt["replicas"] == 1
    assert attempt["weights"] == results["fingerprint"]
    assert attempt["software"]["tensorflow"].startswith("2.20")
    assert attempt["devices"]["physical_devices"]


def test_written_config_loads_as_the_same_config(finished_run):
    flags = tuple((f"--{path}", path, value) for path, value in FINISHED_RUN.items())
    config = resolve(Request(experiment="digits_mlp", flags=flags)).config
    assert resolve(Request(experiment=str(finished_run))).config == follow_run(config, 30)
    assert (finished_run / "config.yaml").read_text().startswith("# Made by: runner --exp")


def test_eval_mode_reports_the_same_accuracy_as_training(cli, run, results):
    record = (run / "run.json").read_text()
    completed = cli(f"--experiment={run}", f"--model_dir={run}", "--mode=eval")
    assert completed.returncode == 0, completed.stderr
    assert re.search(rf"accuracy +{results['metrics']['accuracy']:.4f}", completed.stdout)
    assert f"sha256 {results['fingerprint']}" in completed.stdout
    assert (run / "run.json").read_text() == record
    assert json.loads((run / "run.eval.json").read_text())["attempts"][0]["mode"] == "eval"


@pytest.mark.slow
def test_gin_bindings_configure_custom_functions(cli, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import dataclasses\n"
        "import gin\n"
        "from orbit_runner.registry import IMAGE_MODELS\n"
        "from orbit_runner.tasks.image_classification.config import ImageModelConfig\n"
        "@gin.configurable\n"
        "def width(units=4):\n"
        "    return units\n"
        "def build(*, input_shape, num_classes, **unused):\n"
        "    import tf_keras\n"
        "    layers = tf_keras.layers\n"
        "    inputs = tf_keras.Input(input_shape, dtype='uint8')\n"
        "    x = layers.Dense(width())(layers.Flatten()(inputs))\n"
        "    return tf_keras.Model(inputs, layers.Dense(num_classes, dtype='float32')(x))\n"
        "IMAGE_MODELS.register('mine', config=ImageModelConfig, target=build)\n"
    )
    completed = cli(
        *MLP[:1],
        "--import=mine",
        "--params_override=task.model={name: mine}",
        "--gin_param=N = 7",
        "--gin_param=width.units = %N",
        "--train_steps=3",
        "--model_dir=a",
        "--json",
    )
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout)["parameters"] == (64 + 1) * 7 + (7 + 1) * 10
    operative = (tmp_path / "a" / "operative_config.gin").read_text()
    assert re.search(r"width\.units = (7|%N)", operative)


@pytest.mark.promise("commands", "progress goes to standard error, results to standard output")
@pytest.mark.slow
def test_terminal_shows_progress_bar_and_stdout_gets_the_table(tmp_path):
    mine, theirs = pty.openpty()
    process = warm_runner.start(
        *MLP,
        "--train_steps=2000",
        "--trainer.steps_per_loop=10",
        "--model_dir=a",
        cwd=tmp_path,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "160"},
    )
    os.close(theirs)
    output = b""
    while True:
        ready, _, _ = select.select([mine], [], [], 0.2)
        try:
            part = os.read(mine, 65536) if ready else b""
        except OSError:
            break
        output += part
        if not part and process.poll() is not None:
            break
    os.close(mine)
    out = process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0
    text = output.decode()
    assert "\x1b[?25l" in text  # the cursor is hidden while a bar is shown
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # and shown again
    assert re.search(r"step [\d,]+/2,000", text)
    assert "━" in text
    assert "evaluation at step 1000: loss" in text
    assert "sha256" not in text
    assert "\x1b" not in out
    assert re.search(r"accuracy +0\.\d{4}", out)
    assert "weights              sha256 " in out
