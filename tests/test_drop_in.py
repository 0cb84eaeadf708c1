"""`drop_in` and `multitask_train_lib`: drivers of Model Garden run here unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.core import task_factory
from official.core import train_lib as official_train_lib
from official.core import train_utils as official_train_utils
from official.modeling.hyperparams import params_dict
from official.modeling.multitask import configs, multitask, test_utils
from official.modeling.multitask import train_lib as official_multitask_train_lib
from official.utils.testing import mock_task  # noqa: F401 - registers the experiment `mock`

from orbit_runner import drop_in, multitask_train_lib, train_lib, train_utils

TRAINER: dict[str, Any] = {
    "checkpoint_interval": 10,
    "steps_per_loop": 10,
    "summary_interval": 10,
    "train_steps": 10,
    "validation_steps": 5,
    "validation_interval": 10,
    "optimizer_config": {"optimizer": {"type": "sgd"}, "learning_rate": {"type": "constant"}},
}

_DRIVER = """
from absl import app, flags
from official.common import flags as tfm_flags
from official.utils.testing import mock_task  # noqa: F401 - registers the experiment `mock`
from official.vision import train

from orbit_runner import drop_in

drop_in.install()
tfm_flags.define_flags()
app.run(train.main)
"""


@pytest.mark.slow
def test_script_that_wraps_a_driver_uses_this_runner(tmp_path: Path) -> None:
    script, run = tmp_path / "wrapper.py", tmp_path / "run"
    script.write_text(_DRIVER)
    settings = json.dumps({"trainer": TRAINER, "runtime": {"distribution_strategy": "off"}})
    flags = ("--experiment=mock", "--mode=train", f"--model_dir={run}")
    subprocess.run(
        [sys.executable, str(script), *flags, f"--params_override={settings}"],
        check=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
    )
    assert (run / "checkpoints/ckpt-10.json").exists()
    assert (run / "params.yaml").exists()


def test_drop_in_replacement_ends_with_its_scope(tmp_path: Path) -> None:
    before = official_train_lib.run_experiment
    with drop_in.installed_scope():
        assert official_train_lib.run_experiment is train_lib.run_experiment
        assert official_train_utils.parse_configuration is train_utils.parse_configuration
        options = official_train_utils.ParseConfigOptions("mock", [])
        params = official_train_utils.parse_configuration(options, print_return=False)
        official_train_utils.serialize_config(params, str(tmp_path))
    assert official_train_lib.run_experiment is before
    assert (tmp_path / "params.yaml").exists()


def test_remove_ckpts_removes_checkpoints_of_both_runners(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for name in ("ckpt-1.index", "checkpoint", "checkpoints/ckpt-2.index", "params.yaml"):
        (tmp_path / name).touch()
    train_utils.remove_ckpts(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


def two_tasks() -> Any:
    routines = (
        configs.TaskRoutine(task_name="foo", task_config=test_utils.FooConfig()),
        configs.TaskRoutine(task_name="bar", task_config=test_utils.BarConfig(), task_weight=0.5),
    )
    params = configs.MultiTaskExperimentConfig(task=configs.MultiTaskConfig(task_routines=routines))
    return params_dict.override_params_dict(params, {"trainer": TRAINER}, is_strict=False)


def biases(model: Any) -> list[float]:
    """Returns what is trained: the inputs are zeros."""
    return [float(v.numpy()[0]) for v in model.trainable_variables if v.shape.rank == 1]


@pytest.mark.slow
@pytest.mark.parametrize("built", [True, False])
def test_multitask_training_matches_model_garden(built: bool, tmp_path: Path) -> None:
    found = []
    for name, lib in {"a": official_multitask_train_lib, "b": multitask_train_lib}.items():
        tf_keras.backend.clear_session()
        params, strategy = two_tasks(), tf.distribute.OneDeviceStrategy("cpu:0")
        with strategy.scope():
            task = multitask.MultiTask.from_config(params.task)
            model = test_utils.MockMultiTaskModel()
            if built:
                model.build()
        trained, logs = lib.run_experiment(
            distribution_strategy=strategy,
            task=task,
            model=model,
            mode="train_and_eval",
            params=params,
            model_dir=str(tmp_path / name),
            run_post_eval=True,
        )
        assert trained is model
        found.append((biases(model), logs.keys(), logs["foo"].keys()))
    (expected, *expected_keys), (weights, *keys) = found
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    assert keys == expected_keys
    assert (tmp_path / "b/checkpoints/ckpt-10.json").exists()


@pytest.mark.slow
def test_multitask_evaluation_reports_the_metrics_of_model_garden(tmp_path: Path) -> None:
    settings = {"foo": test_utils.FooConfig(), "bar": test_utils.BarConfig()}
    routines = tuple(
        configs.TaskRoutine(task_name=name, task_config=config, eval_steps=2)
        for name, config in settings.items()
    )
    params = configs.MultiEvalExperimentConfig(task=test_utils.FooConfig(), eval_tasks=routines)
    params = params_dict.override_params_dict(params, {"trainer": TRAINER}, is_strict=False)
    tasks = [task_factory.get_task(config, name=name) for name, config in settings.items()]
    found = []
    for name, lib in {"a": official_multitask_train_lib, "b": multitask_train_lib}.items():
        _, logs = lib.run_experiment_with_multitask_eval(
            distribution_strategy=tf.distribute.OneDeviceStrategy("cpu:0"),
            train_task=task_factory.get_task(params.task),
            eval_tasks=tasks,
            mode="train_and_eval",
            params=params,
            model_dir=str(tmp_path / name),
            run_post_eval=True,
        )
        found.append({task: sorted(results) for task, results in logs.items()})
    assert found[0] == found[1]
    assert (tmp_path / "b/checkpoints/ckpt-10.json").exists()


@pytest.mark.slow
def test_custom_multitask_trainer_is_run_by_model_garden(tmp_path: Path) -> None:
    params, strategy = two_tasks(), tf.distribute.OneDeviceStrategy("cpu:0")
    with strategy.scope():
        task = multitask.MultiTask.from_config(params.task)
        model = test_utils.MockMultiTaskModel()
        trainer = multitask_train_lib.get_trainer(strategy, params, task, model)
    multitask_train_lib.run_experiment(
        distribution_strategy=strategy,
        task=task,
        model=model,
        mode="train",
        params=params,
        model_dir=str(tmp_path),
        trainer=trainer,
    )
    assert int(trainer.global_step.numpy()) == 10
    assert (tmp_path / "ckpt-10.index").exists()
