"""The phases of a run, and what progress displays read from it."""

import pytest

from orbit_runner.reporting.progress.history import History
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.utils.log import PlainMessages, log_scope
from tests.support.configs import keep_best
from tests.support.toy import run, toy_config


class Phases(PlainMessages):
    """Collects the names of phases."""

    def __init__(self):
        super().__init__(lambda text: None)
        self.found = []

    def phase(self, text, *, minor=False):
        self.found.append(text)


def _phases(config, folder, history):
    phases = Phases()
    with log_scope(phases):
        run(config, folder, callbacks=[history])
    return phases.found


@pytest.mark.slow
def test_phases_of_a_new_and_a_resumed_run(tmp_path):
    intervals = {"trainer__validation_interval": 2, "trainer__checkpoint_interval": 2}

    first = _phases(toy_config(trainer__train_steps=4, **intervals), tmp_path, History())
    second = _phases(toy_config(trainer__train_steps=6, **intervals), tmp_path, History())

    assert first == [
        "building the model",
        "tracing the first step",
        "training",
        "evaluating at step 2",
        "saving at step 2",
        "training",
        "evaluating at step 4",
        "saving at step 4",
        "saving the last checkpoint",
    ]
    assert second == [
        "building the model",
        f"restoring {tmp_path / 'checkpoints' / 'ckpt-4'}",
        "tracing the first step",
        "training",
        "evaluating at step 6",
        "saving at step 6",
        "saving the last checkpoint",
    ]


def test_history_of_a_run_has_its_speed_loss_and_best_evaluation(tmp_path):
    history = History()
    best = keep_best("error")
    config = toy_config(trainer__train_steps=4, trainer__summary_interval=1, **best)
    run(config, tmp_path, callbacks=[history])

    assert (history.last_step, history.target) == (4, 4)
    assert history.examples_per_step == config.task.train_data.global_batch_size
    assert history.metrics["training_loss"] == history.losses[-1]
    step, metrics = history.evaluations[-1]
    assert history.best == ("error", metrics["error"], step)
    assert history.steps_per_second


class Batches:
    """A task that knows the number of its examples, and of its batches if they differ in size."""

    def __init__(self, examples, steps=None):
        if examples is not None:
            self.num_examples = lambda data: examples
        if steps is not None:
            self.steps_per_epoch = lambda data: steps

    def build_inputs(self, params):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("task", "batch", "examples"),
    [
        (Batches(100), 8, 8.0),
        (Batches(None), 8, 8.0),
        (Batches(100, 40.0), 0, 2.5),
        (Batches(None, 40.0), 0, 0.0),
    ],
)
def test_examples_per_step(task, batch, examples):
    class Data:
        global_batch_size = batch

    assert TaskAdapter(task).examples_per_step(Data) == examples
