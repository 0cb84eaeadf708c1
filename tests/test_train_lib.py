"""`run_experiment`: modes, strategies, what the weights depend on, use with Model Garden."""

import types
from pathlib import Path
from typing import Any

import numpy as np
import orbit
import pytest
import tensorflow as tf
import tf_keras
from official.core import base_task, config_definitions
from official.core import train_lib as official_train_lib
from official.modeling import optimization as official_optimization

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.registry import TASKS
from orbit_runner.train_lib import prepare, run_experiment
from tests.support.digits import cnn_config, digits_config
from tests.support.toy import Notes, make_strategy, records, run, toy_config


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("mode", "post", "evaluated_at", "has_logs"),
    [
        ("train", False, [], False),
        ("train", True, [20], True),
        ("train_and_eval", False, [5, 10, 15, 20], True),
        ("train_and_eval", True, [5, 10, 15, 20, 20], True),
        ("train_and_post_eval", False, [20], True),
        ("train_and_post_eval", True, [20], True),
    ],
)
def test_mode_determines_the_steps_that_are_evaluated(mode, post, evaluated_at, has_logs, tmp_path):
    notes = Notes()
    model, logs = run(toy_config(), tmp_path, mode, notes=notes, run_post_eval=post)
    assert [step for step, _ in notes.evaluations] == evaluated_at
    assert ("validation_loss" in logs) is has_logs
    assert isinstance(model, tf_keras.Model)
    assert [record["step"] for record in records(tmp_path, "validation")] == evaluated_at
    _, second_logs = run(toy_config(), tmp_path, "eval")
    assert not has_logs or second_logs["validation_loss"] == logs["validation_loss"]


@pytest.mark.slow
def test_eager_steps_give_the_same_weights(tmp_path):
    graph, _ = run(toy_config(), tmp_path / "a")
    other, _ = run(toy_config(runtime__run_eagerly=True), tmp_path / "b")
    np.testing.assert_allclose(other.get_weights()[0], graph.get_weights()[0], rtol=1e-6)


def test_actions_are_called_after_each_loop_and_evaluation(tmp_path):
    heard: list[tuple[str, float]] = []
    run(
        toy_config(trainer__steps_per_loop=1),
        tmp_path,
        train_actions=[lambda logs: heard.append(("train", float(logs["training_loss"])))],
        eval_actions=[lambda logs: heard.append(("eval", float(logs["validation_loss"])))],
    )
    assert [kind for kind, _ in heard] == [*["train"] * 5, "eval"] * 4


def test_custom_summary_managers_receive_the_summaries(tmp_path):
    class Kept(orbit.utils.SummaryManagerInterface):
        def __init__(self) -> None:
            self.written: list[Any] = []

        def flush(self) -> None:
            pass

        def summary_writer(self, relative_path: str = "") -> Any:
            return tf.summary.create_noop_writer()

        def write_summaries(self, summary_dict: Any) -> None:
            self.written.append(summary_dict)

    train, validation = Kept(), Kept()
    config = toy_config(trainer__steps_per_loop=1)
    run(config, tmp_path, summary_manager=train, eval_summary_manager=validation)
    assert (len(train.written), len(validation.written)) == (20, 4)
    assert "training_loss" in train.written[0]
    assert "validation_loss" in validation.written[0]


def test_prepare_builds_the_configured_strategy_and_task(tmp_path):
    config = digits_config(
        runtime__distribution_strategy="mirrored", runtime__num_virtual_devices=2
    )
    strategy, task = prepare(config, str(tmp_path))
    assert strategy.num_replicas_in_sync == 2
    assert task.logging_dir == str(tmp_path)


def _fingerprint(config: ExperimentConfig, folder: Path, **kwargs: Any) -> str:
    model, _ = run(config, folder, **kwargs)
    return weights_fingerprint(model)


DROPOUT = {"task__model__dropout_rate": 0.3}


@pytest.mark.slow
def test_weights_do_not_depend_on_loop_and_save_intervals(tmp_path):
    config = cnn_config(trainer__train_steps=30, **DROPOUT)
    expected = _fingerprint(config, tmp_path / "whole")
    looks: list[dict[str, Any]] = [
        {"steps_per_loop": 1, "checkpoint_interval": 4},
        {"steps_per_loop": 7, "summary_interval": 3, "validation_interval": 8},
    ]
    for index, look in enumerate(looks):
        other = config.replace(trainer=config.trainer.replace(**look))
        assert _fingerprint(other, tmp_path / str(index)) == expected, look
    other = tmp_path / "asynchronous"
    assert _fingerprint(config, other, mode="train", enable_async_checkpointing=True) == expected


@pytest.mark.slow
def test_weights_do_not_depend_on_input_pipeline_tuning(tmp_path):
    settings = {"trainer__train_steps": 20, **DROPOUT}
    expected = _fingerprint(cnn_config(**settings), tmp_path / "whole")
    settings["task__train_data__on_device"] = False
    for index, feeding in enumerate(
        (
            {
                "task__train_data__prefetch_buffer_size": 0,
                "runtime__dataset_num_private_threads": 1,
                "task__train_data__ram_budget": 1,
            },
            {
                "task__train_data__prefetch_buffer_size": 7,
                "runtime__dataset_num_private_threads": 3,
                "task__train_data__autotune_algorithm": "MAX_PARALLELISM",
            },
        )
    ):
        other = cnn_config(**settings, **feeding)
        assert _fingerprint(other, tmp_path / str(index)) == expected, feeding


@pytest.mark.sample(1)
@pytest.mark.parametrize("pieces", [1, 4])
def test_mirrored_replicas_give_the_weights_of_one_device(pieces, tmp_path):
    config = toy_config(trainer__gradient_accumulation_steps=pieces)
    one_device, logs = run(config, tmp_path / "one")
    two, other = run(config, tmp_path / "two", strategy="mirrored2")
    for a, b in zip(one_device.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(logs["validation_loss"], other["validation_loss"], rtol=1e-4)


@pytest.mark.slow
def test_xla_gives_the_same_weights(tmp_path):
    config = digits_config(trainer__train_steps=10)
    plain, _ = run(config, tmp_path / "a", strategy="mirrored2")
    config = digits_config(trainer__train_steps=10, runtime__enable_xla=True)
    compiled, _ = run(config, tmp_path / "b", strategy="mirrored2")
    for a, b in zip(plain.get_weights(), compiled.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


class GardenTask(base_task.Task):
    """A task as Model Garden's users write them: pairs, plain Keras metrics, no base of ours."""

    def build_model(self) -> tf_keras.Model:
        inputs = tf_keras.Input([4])
        return tf_keras.Model(inputs, tf_keras.layers.Dense(3)(inputs))

    def build_inputs(self, params: Any, input_context: Any = None) -> tf.data.Dataset:
        size = params.global_batch_size
        size = input_context.get_per_replica_batch_size(size) if input_context else size
        features = np.random.default_rng(0).normal(size=(22, 4)).astype(np.float32)
        dataset = tf.data.Dataset.from_tensor_slices((features, features.argmax(1) % 3))
        if params.is_training:
            return dataset.repeat().batch(size, drop_remainder=True)
        if input_context:
            pipelines = input_context.num_input_pipelines
            dataset = dataset.shard(pipelines, input_context.input_pipeline_id)
        return dataset.batch(size)

    def build_losses(self, labels: Any, model_outputs: Any, aux_losses: Any = None) -> tf.Tensor:
        return tf.reduce_mean(
            tf_keras.losses.sparse_categorical_crossentropy(labels, model_outputs, from_logits=True)
        )

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        return [
            tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            tf_keras.metrics.SparseCategoricalCrossentropy(name="entropy", from_logits=True),
        ]


@pytest.mark.slow
def test_model_garden_task_runs_in_this_runner(tmp_path):
    config = toy_config(
        trainer__train_steps=40,
        trainer__validation_interval=20,
        trainer__best_checkpoint_export_subdir="best",
        trainer__best_checkpoint_eval_metric="accuracy",
    )
    strategy = make_strategy("mirrored2")
    with strategy.scope():
        task = GardenTask(config.task)
    notes = Notes()
    arguments: Any = (config, str(tmp_path))
    _, logs = run_experiment(strategy, task, "train_and_eval", *arguments, callbacks=[notes])
    first, last = notes.evaluations[0][1], notes.evaluations[-1][1]
    assert last["entropy"] < first["entropy"]
    # 22 examples in batches of 8: the last one is partially filled and has no weights.
    assert logs["validation_examples"] == 22
    np.testing.assert_allclose(logs["validation_loss"], logs["entropy"], rtol=1e-5)
    assert (tmp_path / "best" / "info.json").exists()
    _, second_logs = run_experiment(strategy, task, "eval", *arguments)
    assert second_logs["accuracy"] == logs["accuracy"]


def _official_trainer() -> config_definitions.TrainerConfig:
    return config_definitions.TrainerConfig(
        train_steps=60,
        validation_interval=30,
        validation_steps=3,
        steps_per_loop=30,
        summary_interval=30,
        checkpoint_interval=30,
        optimizer_config=official_optimization.OptimizationConfig(
            {
                "optimizer": {"type": "adam"},
                "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.003}},
            }
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ours"),
    [("mirrored2", True), ("one_device", False)],
    ids=["our config", "official trainer and runtime"],
)
def test_our_task_runs_in_model_garden(name, ours, tmp_path):
    config = digits_config(
        trainer__validation_steps=3, trainer__steps_per_loop=30, trainer__summary_interval=30
    )
    params: Any = config
    if not ours:
        # Its `TaskConfig` cannot hold our data sections, and its runner reads attributes only.
        params = types.SimpleNamespace(
            task=config.task,
            trainer=_official_trainer(),
            runtime=config_definitions.RuntimeConfig(distribution_strategy="one_device"),
        )
    strategy = make_strategy(name)
    with strategy.scope():
        task = TASKS.get("image_classification").load()(config.task)
    model, logs = official_train_lib.run_experiment(
        strategy, task, "train_and_eval", params, str(tmp_path), run_post_eval=True
    )
    assert logs["accuracy"] > 0.7
    assert isinstance(model, tf_keras.Model)
