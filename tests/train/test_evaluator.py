"""Every example counts once and equally, whatever the batches and replicas."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.errors import SettingError
from orbit_runner.tasks.class_metrics import metric_problems
from orbit_runner.train.evaluator import all_metrics
from tests.support import problems
from tests.support.problems import raises
from tests.support.toy import GatheringToy, make_strategy, run, session_of, toy_config, toy_task


def _evaluated(strategy, folder, **changes):
    session = session_of(toy_config(**changes), folder, strategy)
    return _evaluate(session)


def _evaluate(session):
    # With this kernel, no two examples have the same loss.
    session.state.model.set_weights([np.array([[0.5], [-0.25], [2.0]], np.float32)])
    with session.strategy.scope():
        return session.evaluator.evaluate(tf.constant(session.validation_steps))


def _by_hand(n, counted=None):
    features, labels = toy_task(toy_config(task__num_examples=n)).arrays()
    off = (features @ np.array([[0.5], [-0.25], [2.0]], np.float32) - labels)[:counted]
    return float(np.mean(off**2)), float(np.mean(np.abs(off)))


@pytest.mark.sample(2)
@pytest.mark.alternating
@pytest.mark.parametrize(
    ("n", "batch"),
    [(16, 8), (20, 8), (21, 8), (3, 8), (1, 4), (40, 4)],
    ids=["even", "half a batch left", "empty replicas", "n < batch", "one example", "many batches"],
)
def test_every_example_counts_once(strategy, n, batch, tmp_path):
    logs = _evaluated(
        strategy,
        tmp_path,
        task__num_examples=n,
        task__validation_data__global_batch_size=batch,
    )
    loss, error = _by_hand(n)
    assert logs["validation_examples"] == n
    np.testing.assert_allclose(logs["validation_loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(logs["error"], error, rtol=1e-5)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("steps", "counted"), [(1, 8), (2, 16), (3, 20), (99, 20)])
def test_validation_steps_limits_the_number_of_batches(steps, counted, tmp_path):
    strategy = make_strategy("one_device")
    logs = _evaluated(strategy, tmp_path, trainer__validation_steps=steps)
    assert logs["validation_examples"] == counted
    np.testing.assert_allclose(logs["validation_loss"], _by_hand(20, counted)[0], rtol=1e-5)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["one_device", "mirrored2"])
@pytest.mark.parametrize("known", ["false", "true"])
def test_dataset_is_read_to_its_end(known, name, tmp_path):
    config = toy_config(task__knows_its_size=known)
    session = session_of(config, tmp_path, make_strategy(name))
    assert session.validation_steps == (-1 if known == "false" else 3)
    for _ in range(2):
        logs = _evaluate(session)
        assert logs["validation_examples"] == 20
        np.testing.assert_allclose(logs["validation_loss"], _by_hand(20)[0], rtol=1e-5)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["off", "one_device", "mirrored2"])
def test_task_can_aggregate_logs_on_the_host(name, tmp_path):
    _, logs = run(toy_config(task__aggregates=True), tmp_path, strategy=name)
    _, labels = toy_task(toy_config()).arrays()
    np.testing.assert_allclose(logs["label_sum"], labels.sum(), rtol=1e-5)
    assert logs["seen_at"] == 20
    assert logs["validation_examples"] == 20


@pytest.mark.parametrize(
    "name",
    ["step", "split", "time", "event", "averaged_steps", "validation_loss", "validation_examples",
     "learning_rate", "steps_per_second", "mfu", "training_accuracy"],
)  # fmt: skip
def test_name_that_records_of_a_run_have_is_refused(name, tmp_path, monkeypatch):
    listed = [{"class_name": "AUC", "config": {"name": name}}]
    problems.check(metric_problems(listed), ("set-twice", "metrics[0]"))
    task = SimpleNamespace(build_metrics=lambda training: [SimpleNamespace(name=name)])
    with raises("set-twice", "task"):
        all_metrics(task, tf.Module(), training=True)
    if name != "step":
        return
    monkeypatch.setattr(GatheringToy, "reduce_aggregated_logs", lambda *_, global_step: {name: 1})
    with raises("set-twice", "task"):
        run(toy_config(task__aggregates=True), tmp_path, strategy="off")


def test_two_metrics_of_one_name_are_refused():
    first, second = (SimpleNamespace(name="accuracy") for _ in range(2))
    task = SimpleNamespace(build_metrics=lambda training: [first, first])
    assert all_metrics(task, tf.Module(), training=True) == [first, first]
    task = SimpleNamespace(build_metrics=lambda training: [first, second])
    with raises("set-twice", "task"):
        all_metrics(task, tf.Module(), training=True)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"trainer__validation_steps": 0}, "trainer.validation_steps"),
        (
            {
                "task__validation_data__drop_remainder": "true",
                "task__validation_data__global_batch_size": 64,
            },
            "task.validation_data.drop_remainder",
        ),
    ],
)
def test_empty_evaluation_is_rejected_before_training(changes, path, tmp_path):
    with pytest.raises(SettingError) as caught:
        session_of(toy_config(**changes), tmp_path, make_strategy("one_device"))
    assert caught.value.path == path
