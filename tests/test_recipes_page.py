"""docs/recipes.md: every command and program of the page runs, in small form."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.cli.main import main
from tests.support import warm_runner
from tests.support.docs import blocks, files_of, text_of
from tests.support.run_directories import last_attempt

PAGE = text_of("recipes.md")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
MODULES = ("net", "contrast")
# Programs and services that are absent here.
ELSEWHERE = ("rsync", "sbatch", "docker", "curl", "mlflow")
# What makes a recipe small: (text of a command or file, what replaces it).
SMALLER = (
    ("--model_dir=runs/pictures", "--model_dir=runs/pictures --train_steps=60"),
    ("--model_dir=runs/table", "--model_dir=runs/table --train_steps=60"),
    ("--at=450", "--at=60"),
    ("--trainer.train_steps=500", "--trainer.train_steps=65"),
    ("[0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]", "[0.0001, 1.0]"),
)


def commands_of(title: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", SECTIONS[title], re.M | re.S)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    return [line for line in lines if not line.startswith("#")]


def smaller(text: str) -> str:
    for old, new in SMALLER:
        text = text.replace(old, new)
    return text


class Page:
    """The recipes of the page in one directory, each of which runs once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.outputs: dict[str, str] = {}
        self.codes: dict[str, list[int]] = {}

    def follow(self, title: str) -> str:
        """Runs the commands of a recipe, and returns what they printed."""
        if title not in self.outputs:
            output = io.StringIO()
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                self.codes[title] = [self.execute(line) for line in commands_of(title)]
            self.outputs[title] = output.getvalue()
        return self.outputs[title]

    def execute(self, line: str) -> int:
        command, *arguments = shlex.split(smaller(line))
        if command in ELSEWHERE:
            return 0
        if command == "python" and arguments[0] == "-c":
            exec(arguments[1], {})
            return 0
        if command == "python":
            runpy.run_path(arguments[0])
            return 0
        if command != "runner":
            return subprocess.run(["bash", "-c", line], check=True).returncode
        if ">" in arguments:
            *arguments, _, file = arguments
            with open(file, "w") as target, contextlib.redirect_stdout(target):
                return main(arguments)
        # These set what TensorFlow cannot change in this process.
        if arguments[0] == "sweep" or "best.yaml" in arguments[0]:
            completed = warm_runner.run(*arguments)
            print(completed.stdout + completed.stderr)
            return completed.returncode
        return main(arguments)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    directory = tmp_path_factory.mktemp("recipes")
    for name, content in files_of("recipes.md").items():
        (directory / name).write_text(smaller(content), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.syspath_prepend(str(directory))
        patch.setattr("orbit_runner.trackers.tracking._WAIT", 600.0)
        yield Page(directory)
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_pictures_are_trained_predicted_and_continued(page):
    printed = page.follow("Train on a folder of pictures")
    page.follow("Train your own model")
    page.follow("Train longer")

    names = [line.split()[0] for line in printed.splitlines() if "pictures/" in line]
    assert names[-2:] == ["pictures/3/13.png", "pictures/7/17.png"]
    assert _last_step("own") == 400
    assert _last_step("longer") == 65


@pytest.mark.slow
def test_a_table_is_predicted_and_evaluated(page):
    printed = page.follow("Train on a table")

    with open("scored.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 150
    assert {"predicted_target", "probability_target_2"} <= {*rows[0]}
    assert "Largest losses" in printed


@pytest.mark.slow
def test_settings_of_the_fine_tuning_are_correct(page):
    """`test_fine_tuning_page.py` trains with published weights."""
    page.follow("Train on a folder of pictures")
    (line,) = commands_of("Fine-tune a published network")

    assert _are_settings_correct(line)


@pytest.mark.slow
def test_a_sweep_finds_a_rate(page):
    page.follow("Train your own model")
    page.follow("Find a learning rate")

    assert Path("runs/rates/sweep.html").is_file()
    assert _last_step("best") == 300


@pytest.mark.slow
def test_a_run_is_reproduced_moved_and_told_from_another(page):
    page.follow("Train your own model")
    printed = page.follow("Reproduce a run, and see why two runs differ")
    assert page.codes["Reproduce a run, and see why two runs differ"] == [0, 4]
    assert "equal: " in printed

    page.follow("Resume on another machine")
    assert _weights("moved", step=300) == _weights("own", step=300)


@pytest.mark.slow
def test_two_replicas_and_a_cluster(page):
    """`tests/faults/test_workers.py` launches workers."""
    gpus, cpus, launch, _ = commands_of("Train on two GPUs, or on a cluster")
    assert _are_settings_correct(gpus)
    launcher, _, settings = launch.partition(" -- ")
    assert launcher == "runner launch --workers=2"
    assert _are_settings_correct(settings)
    assert page.execute(cpus) == 0
    assert _last_step("two_cpus") == 300


@pytest.mark.slow
def test_the_phone_gets_the_signature_that_its_programs_use(page):
    page.follow("Train on a folder of pictures")
    page.follow("Put a model on a phone")
    from ai_edge_litert.interpreter import Interpreter

    (directory,) = Path("phone").iterdir()
    network = Interpreter(model_path=str(directory / "model.tflite"))
    ((_, signature),) = network.get_signature_list().items()  # `runSignature` without a name
    runner = network.get_signature_runner()
    ((name, details),) = runner.get_input_details().items()
    ((output, returned),) = runner.get_output_details().items()
    kotlin, swift = (blocks("recipes.md", language)[0] for language in ("kotlin", "swift"))

    assert signature == {"inputs": ["image"], "outputs": ["logits"]}
    assert f'mapOf("{name}" to ByteBuffer.wrap(pixels))' in kotlin
    assert f'mapOf("{output}" to logits)' in kotlin
    assert (details["dtype"], details["shape"].tolist()) == (np.uint8, [1, 8, 8, 1])
    assert (returned["dtype"], returned["shape"].tolist()) == (np.float32, [1, 10])
    assert "arrayOf(FloatArray(10))" in kotlin
    assert "8 × 8 bytes" in kotlin
    assert "8 × 8 bytes" in swift
    assert (directory / "labels.txt").read_text().split() == [*"0123456789"]
    assert all(
        len([line for line in text.splitlines() if line.startswith(" ")]) <= 10
        for text in (kotlin, swift)
    )


@pytest.mark.slow
def test_the_server_gets_the_request_that_its_signature_takes(page):
    page.follow("Train on a folder of pictures")
    page.follow("Serve a model")

    (version,) = Path("served/pictures").iterdir()
    (row,) = json.loads(Path("request.json").read_text())["instances"]
    picture = base64.b64decode(row["images"]["b64"])
    default = tf.saved_model.load(str(version)).signatures["serving_default"]
    answer = default(**{name: tf.constant([picture]) for name in row})

    assert version.name.isdigit()
    assert picture == Path("pictures/3/13.png").read_bytes()
    assert {name: value.shape for name, value in answer.items()} == {
        "logits": [1, 10],
        "probabilities": [1, 10],
    }


@pytest.mark.slow
def test_the_black_picture_is_named_and_left_out(page):
    page.follow("Train on a folder of pictures")
    printed = page.follow("Find the picture that broke a run")
    section = SECTIONS["Find the picture that broke a run"]
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.M | re.S)
    outputs = [text for language, text in blocks if not language]

    assert page.codes["Find the picture that broke a run"] == [0, 0, 3, 0, 0]
    assert outputs
    for line in "".join(outputs).splitlines():
        assert line == "…" or line in printed, line
    assert _last_step("without") == 100


@pytest.mark.slow
def test_mlflow_gets_the_model_and_the_report(page):
    page.follow("Use MLflow, with model and report")
    artifacts = {path.name for path in Path("mlruns").rglob("*")}
    assert {"report.html", "saved_model.pb"} <= artifacts


@pytest.mark.slow
def test_the_cell_for_colab_trains(page):
    (cell,) = (
        text for text in blocks("first_run.md", "python") if text.startswith("import orbit_runner")
    )
    program = cell.replace("/content/drive/MyDrive/", "").replace("epochs=5", "epochs=1")
    Path("cell.py").write_text(program)
    result = runpy.run_path("cell.py")["result"]

    assert result.metrics["accuracy"] > 0.3
    assert Path("runs/colab/config.yaml").is_file()


def _are_settings_correct(line: str) -> bool:
    flags = [word for word in shlex.split(line) if word.startswith("--")]
    return main(["show", "--check", *(f for f in flags if not f.startswith("--model_dir="))]) == 0


def _last_step(run: str) -> int:
    return int(last_attempt(Path("runs", run))["step"])


def _weights(run: str, step: int) -> str:
    lines = Path("runs", run, "checkpoints", "fingerprints.jsonl").read_text().splitlines()
    (weights,) = {row["weights"] for row in map(json.loads, lines) if row["step"] == step}
    return str(weights)
