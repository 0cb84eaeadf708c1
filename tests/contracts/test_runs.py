"""What every data source promises to a run: the order of its batches, and exact resumes."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.tasks.adapter import adapt, build_task
from orbit_runner.tasks.base import drop_padding
from orbit_runner.train.inputs.distribute import own_batches
from tests.support.batches import batches_of
from tests.support.samples import (
    config_of_section,
    is_stored,
    members,
    sample_config,
    write_sample,
)
from tests.support.toy import run_and_resume

_MEMBERS = [*members()]
# Each source with the first task that reads it. What the other tasks read is in golden batches.
_ONCE = {member.source.target: member for member in reversed(_MEMBERS)}
# Sources whose sections read the same files, and give an example the same features in both.
_SAME_IN_BOTH = [
    member
    for member in _MEMBERS
    if is_stored(member) and member.task.name not in ("translation", "recommendation")
]


def _rows(batch):
    """Returns the features and labels of each row of a batch, as the bytes of its tensors."""
    parts = [np.asarray(part) for part in tf.nest.flatten(batch[:2])]
    return [
        b"".join(np.asarray(value).tobytes() for value in row) for row in zip(*parts, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("member", _SAME_IN_BOTH, ids=lambda member: member.name)
def test_batches_have_the_examples_of_the_order(member, tmp_path):
    written = write_sample(member, tmp_path / "data")
    for excluded in ([], [2, 5]):
        config = config_of_section(member, written, train_data__exclude=str(excluded))
        section = resolve_data_config(config.task.train_data, config.runtime)
        order = config.data.training_examples(section, None).order
        task = build_task(config, str(tmp_path / "run"))
        evaluated = own_batches(adapt(task), config.runtime, config.task.validation_data)
        rows = [row for batch in evaluated for row in _rows(drop_padding(task, batch)[0])]
        numbers = {row: number for number, row in enumerate(rows)}

        assert len(numbers) == len(rows) == order.size + len(excluded)
        for start in (0, 7):
            for step, batch in enumerate(batches_of(config, start + 1, 2), start):
                examples = [numbers[row] for row in _rows(batch)]
                assert examples == order.rows(step).examples.tolist()
                assert not {*examples} & {*excluded}


@pytest.mark.slow
@pytest.mark.parametrize("member", _ONCE.values(), ids=lambda member: member.name)
def test_run_is_resumed_without_excluded_examples(member, tmp_path):
    config = sample_config(member, tmp_path / "data", train_data__exclude="[2, 5]")
    logs = run_and_resume(config, tmp_path, "mirrored2", at=5).logs
    assert logs["validation_examples"] > 0
