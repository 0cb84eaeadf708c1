"""The step at which a run diverged is found from the checkpoint before it: `replay --find`."""

import dataclasses
import signal

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.checkpoint.fingerprint import CheckpointContent
from orbit_runner.config.schema.base import field
from orbit_runner.errors import Diverged, Interrupted
from orbit_runner.registry import TASKS
from orbit_runner.repeat.replay import ExamineBadStep, StepExamined
from orbit_runner.run_directory.metric_records import MetricLog
from orbit_runner.step import bad_step as module
from orbit_runner.train.callbacks.base import Callback
from tests.support import faulty_images
from tests.support.digits import digits_config
from tests.support.run_directories import saved_steps
from tests.support.toy import (
    ToyConfig,
    ToyTask,
    make_strategy,
    records,
    run,
    session_of,
    toy_config,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FaultyConfig(ToyConfig):
    """Settings of the toy with a fault."""

    num_examples: int = field(20_000, ge=1, help="size of both sets")
    fault: str = field("feature", help="feature, large, slot, or none")
    bad_examples: list[int] = field((5003,), help="the examples with the fault")


class FaultyToy(ToyTask):
    """The toy on the logarithm of its features."""

    task_config: FaultyConfig

    def build_model(self):
        inputs = tf_keras.Input([3])
        x = tf_keras.layers.Lambda(tf.math.log, name="log")(inputs)
        return tf_keras.Model(inputs, tf_keras.layers.Dense(1, use_bias=False, name="w")(x))

    def arrays(self):
        features, labels = super().arrays()
        features, rows = np.abs(features) + 0.5, list(self.task_config.bad_examples)
        if self.task_config.fault == "large":
            labels[rows] = 1e4
        elif self.task_config.fault == "slot":  # Only the square of the gradient overflows.
            features[rows], labels[rows] = np.exp(80.0), 1e19
        elif self.task_config.fault != "none":
            features[rows] = np.nan
        return features, labels


TASKS.register("faulty_toy", config=FaultyConfig, target=FaultyToy)


def faulty_config(**changes):
    """Returns a config of long loops, in which step 626 is not finite."""
    base = {
        "task__name": "faulty_toy",
        "trainer__train_steps": 1000,
        "trainer__steps_per_loop": 1000,
        "trainer__summary_interval": 1000,
        "trainer__checkpoint_interval": 250,
        "trainer__validation_interval": 300,
        "trainer__validation_steps": 3,
    }
    return toy_config(**{**base, **changes})


def first_bad_step(config, model_dir, strategy):
    """Returns the first step that is not finite, by looking at each step from the first on."""
    run = session_of(config, model_dir, make_strategy(strategy))
    run.checkpoints.restore_or_initialize(run.task)
    with run.strategy.scope():
        while run.step < config.trainer.train_steps:
            loss = run.trainer.train(tf.constant(1))["training_loss"]
            values = [loss, *(weight.numpy() for weight in run.model.weights)]
            if not all(np.isfinite(value).all() for value in values):
                return run.step
    return 0


RATE = "trainer__optimizer_config__learning_rate__constant__learning_rate"
# The mean of the loss exceeds the bound before it overflows.
EXPLODING = {RATE: 10.0, "task__fault": "none", "trainer__loss_upper_bound": ".inf"}
_EVERYTHING = {
    "trainer__optimizer_config__optimizer__sgd__momentum": 0.9,
    RATE: 0.02,
    "trainer__optimizer_config__ema__average_decay": 0.9,
    "trainer__gradient_accumulation_steps": 2,
    "trainer__summary_interval": 50,
}
_LAST = {"task__bad_examples": "[7999]", "trainer__checkpoint_interval": 0}
# The settings, and the step at which the bad example is first; 0 if none is bad.
FAULTS = {
    "image": ({}, 626),
    "rate": (EXPLODING, 0),
    "first step": ({"task__bad_examples": "[3]"}, 1),
    "after a checkpoint": ({"task__bad_examples": "[2001]"}, 251),
    "last step, one checkpoint": (_LAST, 1000),
    "momentum, average, two pieces, records in the loop": (_EVERYTHING, 626),
}


class BadWeights(ToyTask):
    """The toy with a weight that is NaN."""

    def build_model(self):
        model = super().build_model()
        model.trainable_variables[0].assign([[0.0], [float("nan")], [0.0]])
        return model


TASKS.register("bad_weights", config=ToyConfig, target=BadWeights)


def _diverged(config, directory, **arguments):
    with pytest.raises(Diverged) as caught:
        run(config, directory, **arguments)
    assert caught.value.exit_code == 3
    return caught.value


def _search(config, directory, callbacks=(), ends=StepExamined, **arguments):
    """Searches the step at which a run diverged, until the search ends the run."""
    search = ExamineBadStep(MetricLog(directory / "metrics.jsonl").divergence())
    with pytest.raises(ends):
        run(config, directory, callbacks=[*callbacks, search], **arguments)
    return search


def _find(config, directory, **arguments):
    """Returns the bad step of a run that diverged, and its examination."""
    search = _search(config, directory, **arguments)
    assert search.bad_step is not None
    assert search.examination is not None, search.obstacle
    return search.bad_step, search.examination


@pytest.mark.promise(
    "commands",
    "`runner replay --find` finds the step, the layer and the example that made a run diverge",
)
@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize("fault", FAULTS)
def test_step_is_found_and_its_interval_is_named(fault, strategy, tmp_path):
    settings, step = FAULTS[fault]
    config = faulty_config(**settings)
    step = step or first_bad_step(config, tmp_path / "steps", strategy)
    tf.random.normal([3])  # The generators move on, and the initial state is the same.

    error = _diverged(config, tmp_path / "a", strategy=strategy)

    saved = saved_steps(tmp_path / "a")
    first = max(saved, default=0) + 1
    assert first <= step <= error.step
    steps = f"step {first}" if first == error.step else f"one of steps {first} to {error.step}"
    assert f"the first step that is not finite is {steps}\n" in str(error)
    assert f"replay {tmp_path / 'a'} --find" in str(error)
    for number in saved:
        content = CheckpointContent(tmp_path / "a" / "checkpoints" / f"ckpt-{number}")
        assert content.summary().non_finite == ()
    event = records(tmp_path / "a", "event")[-1]
    assert (event["event"], event["step"]) == ("diverged", error.step)

    bad_step, examination = _find(config, tmp_path / "a", strategy=strategy)
    assert bad_step.step == examination.step == step
    assert "the loss is " in str(bad_step)
    assert not examination.is_finite


_LONG = {
    "task__num_examples": 16_000,
    "trainer__train_steps": 1000,
    "trainer__steps_per_loop": 1000,
    "trainer__summary_interval": 1000,
    "trainer__checkpoint_interval": 400,
}


@pytest.mark.promise(
    "commands",
    "`runner replay --find` finds the step, the layer and the example that made a run diverge",
)
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["image", "rate"])
def test_step_layer_and_example_are_found(fault, tmp_path):
    """For other faults, `test_examine_step` tests which layer is named."""
    example, changes = 9_999, {**_LONG, **faulty_images.MIRRORED}
    config = faulty_images.faulty_config(fault, **changes, task__bad_example=example)
    _diverged(config, tmp_path, mode="train", strategy="mirrored2")
    bad_step, examination = _find(config, tmp_path, mode="train", strategy="mirrored2")
    if fault == "rate":  # The first update is finite, but the outputs after it overflow.
        assert bad_step.step == 2
        assert examination.first_bad.layer == "hidden"
        assert len(examination.culprits) == faulty_images.BATCH // 2
        return
    assert bad_step.step == example // faulty_images.BATCH + 1
    assert examination.first_bad.layer == "conv"
    assert [culprit.row for culprit in examination.culprits] == [example % faulty_images.BATCH]


@pytest.mark.slow
def test_step_of_batches_that_are_made_in_the_graph(tmp_path):
    strategy = "mirrored2"
    config = digits_config(
        trainer__optimizer_config__learning_rate__type="exponential",
        trainer__optimizer_config__learning_rate__exponential__initial_learning_rate=0.001,
        trainer__optimizer_config__learning_rate__exponential__decay_steps=1,
        trainer__optimizer_config__learning_rate__exponential__decay_rate=10.0,
        trainer__loss_upper_bound=".inf",
        trainer__steps_per_loop=60,
        trainer__summary_interval=60,
    )
    step = first_bad_step(config, tmp_path / "steps", strategy)
    _diverged(config, tmp_path / "a", strategy=strategy)
    bad_step, _ = _find(config, tmp_path / "a", strategy=strategy)
    assert bad_step.step == step > 2


@pytest.mark.slow
def test_step_is_found_under_logical_replicas(tmp_path):
    config = faulty_config(runtime__logical_replicas=2)
    _diverged(config, tmp_path, strategy="mirrored2")
    search = _search(config, tmp_path, strategy="mirrored2")
    assert search.bad_step is not None
    assert search.bad_step.step == 626
    assert "logical_replicas" in search.obstacle


@pytest.mark.slow
def test_weights_that_are_not_finite_with_a_finite_loss(tmp_path):
    # A NaN feature in front of a ReLU: the loss stays finite, the gradient does not.
    config = toy_config(task__relu=True, task__nan_from=12)
    error = _diverged(config, tmp_path)
    assert "the weights of step 15 are not finite, and no checkpoint was saved (w/kernel" in str(
        error
    )
    assert "one of steps 11 to 15" in str(error)
    bad_step, examination = _find(config, tmp_path)
    assert str(bad_step).endswith("w/kernel: 3 of 3 values are not finite")
    assert bad_step.step == examination.step == 13


@pytest.mark.slow
def test_slots_that_are_not_finite(tmp_path):
    """The square of a gradient overflows in the slots of Adam; loss and weights stay finite."""
    config = faulty_config(
        task__fault="slot",
        trainer__optimizer_config__optimizer__type="adam",
        trainer__loss_upper_bound=".inf",
    )
    error = _diverged(config, tmp_path)
    assert error.step == 750
    bad_step, _ = _find(config, tmp_path)
    assert bad_step.step == 626
    assert np.isfinite(bad_step.loss)


@pytest.mark.slow
def test_exact_step_of_a_loss_above_its_bound(tmp_path):
    config = faulty_config(
        task__fault="large", trainer__loss_upper_bound=1e4, trainer__summary_interval=100
    )
    error = _diverged(config, tmp_path)
    assert str(error).startswith("training diverged: the mean loss of steps 601 to 700 is ")
    assert "allowed: at most 10000" in str(error)
    assert "not finite" not in str(error)

    bad_step, examination = _find(config, tmp_path)
    assert (bad_step.step, examination.step) == (626, 626)
    assert bad_step.loss > 1e4
    assert examination.is_finite
    assert examination.examples[0].row == 5003 % 8


@pytest.mark.parametrize("trials", [0, 2])
def test_initial_weights_that_are_not_finite(trials, tmp_path):
    config = toy_config(task__name="bad_weights", trainer__recovery_max_trials=trials)
    error = _diverged(config, tmp_path)
    assert saved_steps(tmp_path) == []
    if trials:
        assert "the weights of step 0 are not finite" in str(error)
        assert "--find" in str(error)
    bad_step, examination = _find(config, tmp_path)
    assert str(bad_step) == "w/kernel: 1 of 3 values are not finite"
    assert (bad_step.step, examination.step) == (0, 1)


@pytest.mark.slow
def test_step_after_recoveries_has_their_order_of_examples(tmp_path):
    config = faulty_config(trainer__recovery_max_trials=1)
    error = _diverged(config, tmp_path)
    assert "as often as trainer.recovery_max_trials allows, 1" in str(error)
    divergence = MetricLog(tmp_path / "metrics.jsonl").divergence()
    assert divergence.recoveries == 1
    bad_step, _ = _find(config, tmp_path)
    assert bad_step.step == 626


def test_weights_that_a_callback_changed_are_not_found(tmp_path):
    class Breaks(Callback):
        """Changes a weight outside of the steps, so that they cannot be trained again."""

        def on_loop_end(self, run, logs):
            if run.step == 500:
                run.model.weights[0].assign(np.full([3, 1], np.nan))

    config = faulty_config(task__fault="none")
    _diverged(config, tmp_path, callbacks=[Breaks()])
    assert _search(config, tmp_path).bad_step is None


@pytest.fixture(scope="module")
def diverged_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diverged")
    _diverged(faulty_config(), folder)
    return folder


@pytest.mark.slow
def test_search_saves_nothing_and_calls_no_callback(diverged_run):
    calls = []

    class Sees(Callback):
        def on_loop_end(self, run, logs):
            calls.append(run.step)

    _find(faulty_config(), diverged_run, callbacks=(Sees(),))
    assert calls == []
    assert saved_steps(diverged_run) == [250, 500]


@pytest.mark.slow
def test_search_can_be_interrupted(diverged_run, monkeypatch):
    isqrt = module.math.isqrt

    def interrupted(number):
        signal.raise_signal(signal.SIGTERM)
        return isqrt(number)

    with monkeypatch.context() as patch:
        patch.setattr(module.math, "isqrt", interrupted)
        _search(faulty_config(), diverged_run, ends=Interrupted)
    assert saved_steps(diverged_run) == [250, 500]
