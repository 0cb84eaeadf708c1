"""Examples that are left out: unknown ones are errors, and epochs are shorter."""

import numpy as np
import pytest

from orbit_runner.serving.loader import make_task
from orbit_runner.step.examples import TrainingOrder
from orbit_runner.tasks.adapter import adapt
from tests.support.digits import digits_config
from tests.support.problems import raises

pytestmark = pytest.mark.usefixtures("own_cache")


def excluding(config, ids):
    """Returns the config without some training examples."""
    data = config.task.train_data.replace(exclude=ids)
    return config.replace(task=config.task.replace(train_data=data))


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([3, 1500], "unknown-example"),
        (["a.png", "b.png"], "unknown-example"),
        ([*range(1438)], "empty-data"),
    ],
)
def test_unknown_examples(ids, code):
    with raises(code, "task.train_data.exclude"):
        TrainingOrder(excluding(digits_config(), ids), None).examples()


def test_task_reports_unknown_examples_as_a_setting():
    config = excluding(digits_config(), [1500])

    with raises("unknown-example", "task.train_data.exclude"):
        make_task(config, None).num_examples(config.task.train_data)
    assert np.array_equal(
        make_task(config, None).excluded_examples(config.task.validation_data), []
    )


def test_epochs_are_shorter():
    config = excluding(digits_config(), [*range(860, 1438)])
    config = config.replace(trainer=config.trainer.replace(train_steps=0, train_epochs=0.5))

    order = TrainingOrder(config, None)

    assert order.last_step() == 7
    task = adapt(make_task(config, None))
    assert task.steps_per_epoch(config.task.train_data) == 860 / 64
    assert task.num_examples(config.task.validation_data) == 359
