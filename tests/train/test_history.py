"""What progress displays read from a run."""

import pytest

from orbit_runner.reporting.progress.history import History
from orbit_runner.tasks.adapter import TaskAdapter
from tests.support.configs import keep_best
from tests.support.toy import run, toy_config


def test_history_of_a_run_has_its_speed_loss_and_best_evaluation(tmp_path):
    history = History()
    best = keep_best("error")
    config = toy_config(trainer__train_steps=4, trainer__summary_interval=1, **best)
    run(config, tmp_path, callbacks=[history])

    assert (history.last_step, history.target) == (4, 4)
    assert history.examples_per_step == config.task.train_data.global_batch_size
    assert history.metrics["training_loss"] > 0
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
