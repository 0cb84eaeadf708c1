"""`OrbitExperimentRunner` and `run_experiment` in place of Model Garden's: the same results."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gin
import numpy as np
import orbit
import pytest
import tensorflow as tf
from official.core import base_trainer, task_factory
from official.core import train_lib as official_train_lib
from official.utils.testing import mock_task  # noqa: F401 - registers the experiment `mock`

from orbit_runner import train_lib, train_utils
from orbit_runner.model_garden.driver.params import to_runner_config
from orbit_runner.train.callbacks.base import Callback
from tests.support.garden import mock_bias
from tests.support.problems import raises
from tests.support.toy import toy_config, toy_task

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


def parsed(**kwargs: Any) -> Any:
    options = train_utils.ParseConfigOptions(
        **{
            "experiment": "mock",
            "config_file": [],
            "params_override": json.dumps(SETTINGS),
            **kwargs,
        }
    )
    return train_utils.parse_configuration(options, print_return=False)


def made(cls: Any, model_dir: Path, mode: str = "train_and_eval", **kwargs: Any) -> Any:
    params = parsed()
    task = task_factory.get_task(params.task, logging_dir=str(model_dir))
    arguments: dict[str, Any] = {"run_post_eval": True, **kwargs}
    return cls(tf.distribute.get_strategy(), task, mode, params, str(model_dir), **arguments)


def numbers(logs: Any) -> dict[str, float]:
    return {name: float(value) for name, value in logs.items() if name != "steps_per_second"}


RESULTS = {"acc": 0.0, "best_validation_loss": -1.0, "counter": 5.0, "loss": -5.0}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("mode", "post"),
    [
        ("train_and_eval", False),
        ("train_and_eval", True),
        ("train_and_post_eval", False),
        ("eval", True),
    ],
)
def test_results_equal_those_of_model_garden(mode: str, post: bool, tmp_path: Path) -> None:
    params, found = parsed(), []
    for index, run in enumerate([official_train_lib.run_experiment, train_lib.run_experiment]):
        task = task_factory.get_task(params.task)
        model, logs = run(None, task, mode, params, str(tmp_path / str(index)), post)
        found.append((mock_bias(model), numbers(logs)))
    (expected, expected_logs), (weight, logs) = found
    assert weight == expected
    assert logs == expected_logs
    assert bool(logs) is (post or mode == "train_and_post_eval")


class Kept(train_lib.OrbitExperimentRunner):
    """Overrides nothing."""


class LoggingTrainer(base_trainer.Trainer):
    def train_loop_end(self) -> Any:
        return {**super().train_loop_end(), "mine": 7.0}


class OwnTrainer(train_lib.OrbitExperimentRunner):
    def _build_trainer(self, task: Any, train: bool, evaluate: bool) -> Any:
        with self.strategy.scope():
            return train_utils.create_trainer(
                self.params,
                task,
                train=train,
                evaluate=evaluate,
                checkpoint_exporter=self._build_best_checkpoint_exporter(),
                trainer_cls=LoggingTrainer,
            )


class OwnManager(train_lib.OrbitExperimentRunner):
    def _maybe_build_checkpoint_manager(self) -> Any:
        return tf.train.CheckpointManager(
            self.trainer.checkpoint,
            directory=f"{self.model_dir}/mine",
            max_to_keep=1,
            step_counter=self.trainer.global_step,
            checkpoint_interval=self.params.trainer.checkpoint_interval,
            init_fn=self.trainer.initialize,
        )


class OwnExporter(train_lib.OrbitExperimentRunner):
    def _build_best_checkpoint_exporter(self) -> Any:
        return train_utils.BestCheckpointExporter(
            f"{self.model_dir}/exported", "validation_loss", "lower"
        )


class OwnController(train_lib.OrbitExperimentRunner):
    def _build_controller(self, trainer: Any, evaluator: Any, **kwargs: Any) -> Any:
        return orbit.Controller(
            strategy=self.strategy,
            trainer=trainer,
            evaluator=evaluator,
            global_step=self.trainer.global_step,
            steps_per_loop=5,
            checkpoint_manager=self.checkpoint_manager,
        )


class WithAction(train_lib.OrbitExperimentRunner):
    heard: tuple[float, ...] = ()

    def _build_controller(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["train_actions"] = [self._hear]
        return super()._build_controller(*args, **kwargs)

    def _hear(self, logs: Any) -> None:
        self.heard += (float(logs["training_loss"]),)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("cls", "newest", "best"),
    [
        (Kept, "checkpoints/ckpt-20", "best/best-20"),
        (OwnTrainer, "ckpt-20", "best/best_ckpt-"),
        (OwnManager, "mine/ckpt-20", "best/best-20"),
        (OwnExporter, "checkpoints/ckpt-20", "exported/best_ckpt-"),
        (OwnController, "checkpoints/ckpt-20", "best/best-20"),
        (WithAction, "checkpoints/ckpt-20", "best/best-20"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_overridden_parts_of_a_subclass_are_used(
    cls: Any, newest: str, best: str, tmp_path: Path
) -> None:
    runner = made(cls, tmp_path)
    model, logs = runner.run()
    assert mock_bias(model) == pytest.approx(-1.0)
    assert numbers(logs) == pytest.approx({**RESULTS, "validation_loss": -1.0})
    assert runner.checkpoint_manager.latest_checkpoint == str(tmp_path / newest)
    assert runner.checkpoint_manager.checkpoints[-1] == str(tmp_path / newest)
    kept = tf.train.latest_checkpoint(str((tmp_path / best).parent))
    assert kept.startswith(str(tmp_path / best))
    if cls is WithAction:
        assert len(runner.heard) == 2
    again = made(cls, tmp_path, "eval")
    assert int(again.trainer.global_step.numpy()) == 20
    assert mock_bias(again.trainer.model) == pytest.approx(-1.0)
    assert again.controller.evaluator is not None
    assert again.controller.trainer is None


class Results(Callback):
    """Stores what callbacks get."""

    def __init__(self) -> None:
        self.loops: list[Any] = []
        self.evaluations: list[Any] = []

    def on_loop_end(self, run: Any, logs: Any) -> None:
        self.loops.append(dict(logs))

    def on_evaluate(self, run: Any, logs: Any) -> None:
        self.evaluations.append(dict(logs))


def test_callbacks_get_the_results_of_a_custom_trainer(tmp_path: Path) -> None:
    results = Results()
    made(OwnTrainer, tmp_path, callbacks=[results]).run()

    assert results.loops[-1]["mine"] == 7.0
    assert results.loops[-1]["steps_per_second"] > 0
    assert results.evaluations[-1]["validation_loss"] == pytest.approx(-1.0)
    assert results.evaluations[-1]["acc"] == 0.0


def test_runner_exposes_the_attributes_that_subclasses_use(tmp_path: Path) -> None:
    runner = made(Kept, tmp_path)
    trainer, manager = runner.trainer, runner.checkpoint_manager
    assert (runner.model_dir, runner.params.task) == (str(tmp_path), trainer.config.task)
    assert trainer.strategy is runner.strategy
    assert float(trainer.optimizer.learning_rate) == pytest.approx(0.1)
    assert [metric.name for metric in trainer.train_metrics] == ["acc"]
    assert [metric.name for metric in trainer.validation_metrics] == ["acc"]
    assert trainer.train_loss.name == "training_loss"
    assert trainer.validation_loss.name == "validation_loss"
    assert isinstance(trainer.checkpoint, tf.train.Checkpoint)
    assert manager.checkpoint is trainer.checkpoint is trainer.checkpoint
    assert (manager.latest_checkpoint, manager.checkpoints) == (None, [])
    assert manager.checkpoint_interval == 10
    assert manager.save() is None
    saved = manager.save(check_interval=False)
    manager.sync()
    assert saved == manager.latest_checkpoint == str(tmp_path / "checkpoints/ckpt-0")
    trainer.initialize()
    runner.run()


def test_subclass_that_builds_no_checkpoint_manager_is_rejected(tmp_path: Path) -> None:
    class Without(train_lib.OrbitExperimentRunner):
        def _maybe_build_checkpoint_manager(self) -> Any:
            return None

    with raises("missing-method"):
        made(Without, tmp_path)


def test_run_experiment_accepts_a_custom_trainer(tmp_path: Path) -> None:
    params, heard = parsed(), []
    task = task_factory.get_task(params.task)
    data = [params.task.train_data, params.task.validation_data]
    sets = [orbit.utils.make_distributed_dataset(tf.distribute.get_strategy(), task.build_inputs, d)
            for d in data]  # fmt: skip
    model = task.build_model()
    optimizer = task.create_optimizer(params.trainer.optimizer_config, params.runtime)
    trainer = LoggingTrainer(
        params, task, model, optimizer, train_dataset=sets[0], validation_dataset=sets[1]
    )
    trained, logs = train_lib.run_experiment(
        distribution_strategy=tf.distribute.get_strategy(),
        task=task,
        mode="train_and_eval",
        params=params,
        model_dir=str(tmp_path),
        trainer=trainer,
        train_actions=[lambda logs: heard.append(float(logs["mine"]))],
    )
    assert trained is model
    assert mock_bias(model) == pytest.approx(-1.0)
    assert (logs, heard) == ({}, [7.0, 7.0])
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-20")


def test_gin_binding_selects_the_trainer(tmp_path: Path) -> None:
    gin.external_configurable(LoggingTrainer, module="of_a_test")
    heard: list[float] = []
    try:
        gin.parse_config("create_trainer.trainer_cls = @of_a_test.LoggingTrainer")
        action = [lambda logs: heard.append(float(logs["mine"]))]
        made(Kept, tmp_path, "train", run_post_eval=False, train_actions=action).run()
    finally:
        gin.clear_config()
    assert heard == [7.0, 7.0]


def test_custom_trainer_requires_numeric_step_settings(tmp_path: Path) -> None:
    config = toy_config()
    with raises("not-supported", "trainer.steps_per_loop"):
        OwnTrainer(None, toy_task(config), "train", config, str(tmp_path))
    epochs = toy_config(trainer__train_steps=0, trainer__steps_per_loop=5)
    with raises("not-supported", "trainer.train_steps"):
        OwnTrainer(None, toy_task(epochs), "train", epochs, str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [("fine_tuning", "{freeze: [w]}"), ("skip_steps", "[3]"), ("on_nonfinite", "skip")],
)
def test_setting_that_custom_trainers_do_not_support(name: str, value: str, tmp_path: Path) -> None:
    config = toy_config(trainer__steps_per_loop=5, **{f"trainer__{name}": value})
    with raises("not-supported", f"trainer.{name}"):
        OwnTrainer(None, toy_task(config), "train", config, str(tmp_path))


def test_directory_stays_locked_until_the_run_ends(tmp_path: Path) -> None:
    runner = made(Kept, tmp_path, "train", run_post_eval=False)
    with (tmp_path / ".lock").open() as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        runner.run()
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("mode", "folder", "code", "path"),
    [("trian", "a", "not-allowed", "--mode"), ("train", None, "not-set", "--model_dir")],
)
def test_wrong_mode_or_missing_model_dir_is_rejected(
    mode: str, folder: str | None, code: str, path: str
) -> None:
    params = parsed()
    with raises(code, path):
        train_lib.OrbitExperimentRunner(None, None, mode, params, folder)  # type: ignore[arg-type]


@pytest.mark.slow
def test_experiment_runner_runs_our_own_experiments(tmp_path: Path) -> None:
    config = toy_config()
    one = train_lib.OrbitExperimentRunner(
        None, toy_task(config), "train_and_post_eval", config, str(tmp_path / "a")
    )
    model, logs = one.run()
    other, others = train_lib.run_experiment(
        None, toy_task(config), "train", config, str(tmp_path / "b"), True
    )
    np.testing.assert_array_equal(model.get_weights()[0], other.get_weights()[0])
    assert logs["validation_loss"] == others["validation_loss"]


def test_seed_of_the_driver_is_used_unless_configured() -> None:
    params = parsed()
    try:
        tf.random.set_seed(1234)
        assert to_runner_config(params).runtime.seed == 1234
        assert to_runner_config(parsed(params_override="runtime.seed=5")).runtime.seed == 5
    finally:
        tf.random.set_seed(0)


def test_settings_unknown_to_model_garden_reach_the_run() -> None:
    params = parsed(params_override="trainer.early_stopping.patience=3,runtime.seed=9")
    config = to_runner_config(params)
    assert config.trainer.early_stopping is not None
    assert config.trainer.early_stopping.patience == 3
    assert (config.runtime.seed, config.official) == (9, "mock")


@pytest.mark.slow
def test_driver_runs_here_with_only_its_imports_changed(tmp_path: Path) -> None:
    spec = find_spec("official")
    assert spec is not None
    driver = Path((spec.submodule_search_locations or [""])[0]) / "vision/train.py"
    text = driver.read_text(encoding="utf-8")
    for module in ("train_lib", "train_utils"):
        assert f"from official.core import {module}\n" in text
        text = text.replace(
            f"from official.core import {module}\n", f"from orbit_runner import {module}\n"
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
