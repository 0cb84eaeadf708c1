"""`run_experiment` and `OrbitExperimentRunner` in place of Model Garden's: the same results."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.core import task_factory, train_utils
from official.core import train_lib as official_train_lib
from official.utils.testing import mock_task

from orbit_runner import train_lib
from orbit_runner.train.callbacks.base import Callback
from tests.support.garden import mock_bias
from tests.support.problems import raises
from tests.support.toy import Notes, toy_config, toy_task

SETTINGS = {
    "trainer": {
        "checkpoint_interval": 10,
        "steps_per_loop": 10,
        "summary_interval": 10,
        "train_steps": 20,
        "validation_steps": 5,
        "validation_interval": 10,
        "best_checkpoint_export_subdir": "best",
        "best_checkpoint_eval_metric": "validation_loss",
        "best_checkpoint_metric_comp": "lower",
        "optimizer_config": {
            "optimizer": {"type": "sgd"},
            "learning_rate": {"type": "constant"},
        },
    },
    "runtime": {"distribution_strategy": "off"},
}


def parsed():
    options = train_utils.ParseConfigOptions("mock", [], params_override=json.dumps(SETTINGS))
    return train_utils.parse_configuration(options, lock_return=False, print_return=False)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("mode", "post"),
    [("train_and_eval", False), ("train_and_eval", True), ("train_and_post_eval", False)],
)
def test_results_equal_those_of_model_garden(mode, post, tmp_path):
    params, results = parsed(), []
    for index, run in enumerate([official_train_lib.run_experiment, train_lib.run_experiment]):
        task = task_factory.get_task(params.task)
        model, logs = run(
            distribution_strategy=None,
            task=task,
            mode=mode,
            params=params,
            model_dir=str(tmp_path / str(index)),
            run_post_eval=post,
        )
        results.append((mock_bias(model), logs))
    (expected, expected_logs), (weight, logs) = results
    assert weight == expected
    # Model Garden returns the last evaluation only if it is asked to evaluate at the end.
    assert bool(expected_logs) is (post or mode == "train_and_post_eval")
    for name in {*expected_logs} - {"best_validation_loss", "steps_per_second"}:
        assert float(logs[name]) == float(expected_logs[name])
    assert float(logs["validation_loss"]) == pytest.approx(-1.0)


class Seeds(Callback):
    """Stores the seed of a run, and whether the runner decided that ops are deterministic."""

    found: tuple[int, bool] | None = None

    def on_run_begin(self, run):
        self.found = (run.config.runtime.seed, run.config.runtime.deterministic)


def test_seed_and_determinism_are_those_of_the_calling_program(tmp_path):
    params, seeds = parsed(), Seeds()
    task = task_factory.get_task(params.task)
    try:
        tf.random.set_seed(1234)
        train_lib.run_experiment(None, task, "train", params, str(tmp_path), callbacks=[seeds])
    finally:
        tf.random.set_seed(0)
    assert seeds.found == (1234, False)


def test_experiment_runner_runs_the_same_experiment(tmp_path):
    config = toy_config()
    runner = train_lib.OrbitExperimentRunner(
        None, toy_task(config), "train_and_post_eval", config, model_dir=str(tmp_path / "a")
    )
    model, logs = runner.run()
    other, others = train_lib.run_experiment(
        None, toy_task(config), "train", config, str(tmp_path / "b"), True
    )
    np.testing.assert_array_equal(model.get_weights()[0], other.get_weights()[0])
    assert logs["validation_loss"] == others["validation_loss"]


def test_part_that_a_subclass_builds_is_rejected():
    with raises("not-supported"):

        class OwnTrainer(train_lib.OrbitExperimentRunner):
            def _build_trainer(self, task, train, evaluate):
                pass


def test_custom_trainer_is_rejected(tmp_path):
    config = toy_config()
    with raises("not-supported", "trainer"):
        train_lib.run_experiment(
            None,
            toy_task(config),
            "train",
            config,
            str(tmp_path),
            trainer=object(),
        )


def test_unknown_argument_is_rejected_at_once():
    with pytest.raises(TypeError, match="modle_dir"):
        train_lib.OrbitExperimentRunner(None, None, "train", None, "a", modle_dir="b")


@pytest.mark.parametrize(
    ("mode", "folder", "code", "path"),
    [("trian", "a", "not-allowed", "--mode"), ("train", None, "not-set", "--model_dir")],
)
def test_wrong_mode_or_missing_model_dir_is_rejected(mode, folder, code, path, tmp_path):
    model_dir = folder and str(tmp_path / folder)
    with raises(code, path):
        train_lib.run_experiment(None, None, mode, parsed(), model_dir)


@pytest.mark.slow
def test_driver_runs_here_with_only_one_import_changed(tmp_path):
    spec = find_spec("official")
    driver = Path((spec.submodule_search_locations or [""])[0]) / "vision/train.py"
    text = driver.read_text(encoding="utf-8")
    assert "from official.core import train_lib\n" in text
    text = text.replace(
        "from official.core import train_lib\n", "from orbit_runner import train_lib\n"
    )
    script, override = tmp_path / "train.py", tmp_path / "override.yaml"
    script.write_text(f"from official.utils.testing import mock_task\n{text}")
    override.write_text(json.dumps(SETTINGS))
    run = tmp_path / "run"
    flags = ("--experiment=mock", "--mode=train_and_eval", f"--model_dir={run}", "--logtostderr")
    subprocess.run(
        [sys.executable, str(script), *flags, f"--params_override={override}"],
        check=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
    )
    reader = tf.train.load_checkpoint(str(run / "checkpoints/ckpt-20"))
    name = "model/network/layer_with_weights-0/bias/.ATTRIBUTES/VARIABLE_VALUE"
    assert float(reader.get_tensor(name)[0]) == pytest.approx(-1.0)
    assert (run / "params.yaml").exists()
    assert (run / "operative_config.train_and_eval.gin").exists()


def _train(runner, params, model_dir):
    tf_keras.backend.clear_session()
    task = task_factory.get_task(params.task)
    model, _ = runner(None, task, "train", params, str(model_dir))
    return mock_bias(model)


@pytest.mark.slow
def test_empty_init_checkpoint_directory_starts_from_scratch(tmp_path):
    (tmp_path / "empty").mkdir()
    params = parsed()
    params.task.init_checkpoint = str(tmp_path / "empty")
    notes = Notes()
    with notes.listening_scope():
        weights = _train(train_lib.run_experiment, params, tmp_path / "a")
    assert weights == _train(official_train_lib.run_experiment, params, tmp_path / "b")
    assert any("there is no checkpoint in the directory" in note for note in notes.notes)
    params.task.init_checkpoint = str(tmp_path / "missing")
    with raises("no-checkpoint", "task.init_checkpoint"):
        _train(train_lib.run_experiment, params, tmp_path / "c")


@pytest.mark.slow
def test_task_that_requires_an_init_checkpoint_is_rejected_without_one(tmp_path):
    class Strict(mock_task.MockTask):
        def initialize(self, model):
            path = tf.train.latest_checkpoint(self.task_config.init_checkpoint)
            tf.train.Checkpoint(model=model).read(path).assert_existing_objects_matched()

    params = parsed()
    params.task.init_checkpoint = str(tmp_path)
    with raises("no-checkpoint", "task.init_checkpoint"):
        train_lib.run_experiment(None, Strict(params.task), "train", params, str(tmp_path / "run"))
