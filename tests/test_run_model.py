"""`orbit_runner.run`: a Keras model and its data, from Python to a run directory."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

import gc
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import yaml
from gin import config as gin_config

import orbit_runner
from orbit_runner.errors import RunnerError
from orbit_runner.tf_internals import disable_op_determinism, is_op_determinism_enabled
from tests.support import keras_models, warm_runner
from tests.support.processes import process

_MODULE = """
import numpy as np, tf_keras

def build(units: int = 8):
    return tf_keras.Sequential([
        tf_keras.layers.Input([4]),
        tf_keras.layers.Dense(units, activation="relu"),
        tf_keras.layers.Dropout(0.3),
        tf_keras.layers.Dense(3),
    ])

def load(count=200):
    x = np.random.default_rng(1).normal(size=(count, 4))
    return x, x[:, :3].argmax(axis=1)
"""
_PROGRAM = """
import json, sys
import orbit_runner
from my_nets import build, load

settings = json.loads(sys.argv[2])
found = orbit_runner.run(
    build, load(), validation_split=0.2, metrics=["accuracy"], learning_rate=0.01, batch_size=16,
    model_dir=sys.argv[1], progress="plain", **{"epochs": 4, **settings},
)
print(json.dumps({
    "metrics": found.metrics, "weights": found.weights, "step": found.step,
    "inexact": found.inexact, "model": type(found.model).__name__,
    "history": len(found.history["accuracy"]),
}))
"""


def _write_project(folder: Path) -> Path:
    (folder / "my_nets.py").write_text(_MODULE)
    (folder / "train.py").write_text(_PROGRAM)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A project in which the program has made the run `run`, and what it printed."""
    folder = _write_project(tmp_path_factory.mktemp("project"))
    return folder, _run(folder, "run", epochs=4)


def _command(run: str, **settings: Any) -> list[str]:
    return [sys.executable, "train.py", run, json.dumps(settings)]


def _run(project: Path, run: str, **settings: Any) -> dict[str, Any]:
    completed = process(*_command(run, **settings), cwd=project)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


@pytest.mark.promise(
    "faults",
    "a program that trains a Keras model is killed, resumes, and ends with the same weights",
)
@pytest.mark.slow
def test_killed_program_resumes_and_ends_with_the_same_weights(tmp_path):
    project = _write_project(tmp_path)
    settings = {"epochs": 100, "overrides": {"trainer.checkpoint_interval": 20}}
    uninterrupted = _run(project, "whole", **settings)

    with subprocess.Popen(
        _command("parts", **settings), cwd=project, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as program:  # fmt: skip
        wait_until = time.monotonic() + 300
        while not list((project / "parts" / "checkpoints").glob("ckpt-*.json")):
            assert program.poll() is None
            assert time.monotonic() < wait_until
            time.sleep(0.02)
        program.send_signal(signal.SIGKILL)
    steps = [int(path.stem.split("-")[1]) for path in project.glob("parts/checkpoints/ckpt-*.json")]
    assert max(steps) < uninterrupted["step"]
    parts = _run(project, "parts", **settings)

    assert (parts["step"], parts["weights"]) == (uninterrupted["step"], uninterrupted["weights"])
    assert parts["inexact"] == []
    attempts = json.loads((project / "parts" / "run.json").read_text())["attempts"]
    assert [attempt.get("outcome") for attempt in attempts] == [None, "done"]


@pytest.mark.slow
def test_run_directory_is_that_of_the_command_line(trained):
    project, results = trained

    assert (results["model"], results["inexact"], results["history"]) == ("Sequential", [], 4)
    assert results["metrics"]["accuracy"] > 0.5
    names = {path.name for path in (project / "run").iterdir()}
    assert {"config.yaml", "run.json", "metrics.jsonl", "data.json", "report.html"} <= names
    config = yaml.safe_load((project / "run" / "config.yaml").read_text())
    model = config["task"]["model"]
    assert (model["build"], model["arguments"]) == ("my_nets:build", {"units": 8})
    (attempt,) = json.loads((project / "run" / "run.json").read_text())["attempts"]
    assert (attempt["outcome"], attempt["weights"]) == ("done", results["weights"])
    assert attempt["argv"][:2] == ["python", "train.py"]


@pytest.mark.slow
def test_same_experiment_of_the_command_line_has_the_same_weights(trained):
    project, results = trained
    config = yaml.safe_load((project / "run" / "config.yaml").read_text())
    for section in ("train_data", "validation_data"):
        config["task"][section] |= {"digest": ""}
    config["task"]["train_data"] |= {"source": "arrays", "function": "my_nets:load"}
    (project / "again.yaml").write_text(yaml.safe_dump(config))
    flags = ["--experiment=again.yaml", "--model_dir=again", "--json"]
    completed = warm_runner.run(*flags, cwd=project)
    assert completed.returncode == 0, completed.stderr

    assert json.loads(completed.stdout)["fingerprint"] == results["weights"]


def _refused(**changes: Any) -> str:
    settings = {"model": keras_models.classifier, "data": keras_models.classes(), **changes}
    model, data = settings.pop("model"), settings.pop("data")
    with pytest.raises(RunnerError) as caught:
        orbit_runner.run(model, data, progress="none", **settings)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": 3}, "model: got int, expected a function"),
        ({"data": np.zeros([3, 4])}, "task.train_data — run(data=…)\n    has no labels y"),
        ({"data": 3}, "data: got "),
        ({"validation_data": (1,)}, "validation_data: got x int64 [], expected an array"),
        ({"loss": "mean_squared_eror"}, "task.loss — run(loss=…)\n    unknown loss"),
        ({"loss": 3}, "loss: got int, expected a name"),
        ({"metrics": ["acuracy"]}, "task.metrics[0] — run(metrics=…)\n    unknown metric"),
        ({"optimizer": "adm"}, "run(optimizer=…)\n    unknown optimizer 'adm'; did you mean 'Adam'?"),
        ({"optimizer": 3}, "optimizer: got int, expected a name, an object"),
        ({"optimizer": {"optimizer": {"type": "sgd"}}, "learning_rate": 0.1},
         "learning_rate: got 0.1, which has no effect"),
        ({"validation": keras_models.classes(), "validation_data": keras_models.classes()},
         "validation: validation_data is set, too; remove one"),
        ({"validation": (1,)}, "validation: got x int64 [], expected an array"),
        ({"callbacks": [3]}, "callbacks[0] — run(callbacks=…)\n    got int, expected an object"),
        ({"epochs": -1}, "trainer.train_epochs — run(epochs=…)\n    got -1"),
        ({"batch_size": 0}, "task.train_data.global_batch_size — run(batch_size=…)\n    got 0"),
        ({"metrics": [3]}, "metrics: got int, expected a name"),
        ({"model_dir": __file__}, "\n  model_dir\n    "),
        ({"overrides": {"runtime.sed": 3}}, "overrides['runtime.sed']\n    unknown setting 'sed'"),
        ({"model": {"build": "tests.support.keras_models:classifier",
                    "arguments": {"unit": 3}}}, "unknown argument 'unit'; did you mean 'units'?"),
        ({"model": "tests.support.keras_models:clasifier"}, "did you mean 'classifier'?"),
        ({"validation_split": 0.5, "validation_data": keras_models.classes()},
         "validation_data.source is set, too"),
    ],
)  # fmt: skip
def test_mistake_is_an_error_that_names_the_argument(tmp_path, changes, message):
    assert message in _refused(**{"model_dir": tmp_path / "run", **changes})
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_traceback_of_a_mistake_has_the_call_and_the_message(tmp_path):
    with pytest.raises(RunnerError) as caught:  # Found while the run is built.
        orbit_runner.run(
            keras_models.classifier,
            keras_models.classes(),
            loss="categorical_crossentropy",
            model_dir=tmp_path,
            progress="none",
        )
    text = "".join(traceback.format_exception(caught.value))

    assert text.count("Traceback") == 1
    assert text.count("  File ") == 2  # this file, and `run`
    head = "ConfigError: 1 problem in the configuration\n  task.loss — run(loss=…)\n"
    assert head in text
    assert "are incompatible" in text


@pytest.mark.slow
def test_advice_names_arguments_instead_of_flags(tmp_path):
    orbit_runner.run(
        keras_models.classifier, keras_models.classes(), model_dir=tmp_path, progress="none"
    )
    message = _refused(model_dir=tmp_path, seed=3)
    assert 'use another model_dir, or resume="override" to resume' in message


def test_notebook_shows_the_message_instead_of_a_traceback():
    assert RunnerError("loss: wrong")._render_traceback_() == ["RunnerError: loss: wrong"]


def _draws() -> tuple[Any, ...]:
    return (
        random.random(),
        float(np.random.rand()),
        float(tf.random.uniform([])),
        tf_keras.initializers.GlorotUniform()([2, 2]).numpy().tobytes(),
    )


def _process_state() -> tuple[Any, ...]:
    return (
        is_op_determinism_enabled(),
        tf.config.functions_run_eagerly(),
        tf_keras.mixed_precision.global_policy().name,
        # TensorFlow read its own variables when it was imported.
        {name: value for name, value in os.environ.items() if not name.startswith("TF")},
        signal.getsignal(signal.SIGTERM),
        logging.getLogger("orbit_runner").handlers[:],
        gc.isenabled(),
        {**gin_config._CONFIG},
    )


@pytest.mark.parametrize("fails", [False, True])
def test_run_restores_the_state_of_the_process(fails, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    tf_keras.utils.set_random_seed(5)
    expected = [_draws(), _draws()]
    tf_keras.utils.set_random_seed(5)
    disable_op_determinism()
    before, first = _process_state(), _draws()

    def train() -> None:
        orbit_runner.run(
            _fail if fails else keras_models.classifier,
            keras_models.classes(),
            epochs=1,
            model_dir="~/runs/here",
            progress="none",
            overrides={"runtime.mixed_precision_dtype": "bfloat16", "gin_bindings": _GIN},
        )

    with pytest.raises(Exception, match="failed on purpose") if fails else nullcontext():
        train()

    assert (tmp_path / "runs" / "here").is_dir()
    assert _process_state() == before
    assert [first, _draws()] == expected


_GIN = ["get_kernel_initializer_of_nothing/macro.value = 3"]


def _fail() -> Any:
    raise ValueError("failed on purpose")


@pytest.mark.slow
def test_seed_that_was_never_set_is_not_set_afterwards():
    program = (
        "import tensorflow as tf\n"
        "from orbit_runner.determinism.numerics import restored_generators_scope, seed_everything\n"
        "with restored_generators_scope():\n"
        "    seed_everything(3)\n"
        "    one = float(tf.random.uniform([]))\n"
        "with restored_generators_scope():\n"
        "    seed_everything(3)\n"
        "    assert float(tf.random.uniform([])) == one\n"
        "from orbit_runner.tf_internals import eager_generator\n"
        "assert eager_generator()[0] is None\n"
        "assert len({float(tf.random.uniform([])) for _ in range(5)}) == 5\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
