"""Checkpoints saved under one strategy and restored under another; replicas stay equal."""

import numpy as np
import pytest

from orbit_runner.checkpoint.fingerprint import CheckpointContent, weights_fingerprint
from tests.support.digits import resnet_config
from tests.support.toy import make_strategy, run, session_of

_OPTIMIZERS = {
    "adam": {"type": "adam"},
    "new adam": {"type": "adam_experimental"},
    "momentum": {"type": "sgd", "sgd__momentum": 0.9},
}


def _resnet(optimizer="momentum", **changes):
    """A residual network with batch norm, an average of the weights and dropout."""
    prefix = "trainer__optimizer_config__optimizer__"
    chosen = {f"{prefix}{key}": value for key, value in _OPTIMIZERS[optimizer].items()}
    average = {"trainer__optimizer_config__ema__average_decay": 0.9}
    short = {"trainer__train_steps": 4, "trainer__validation_interval": 100}
    return resnet_config(task__model__dropout_rate=0.2, **short, **chosen, **average, **changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("frm", "to", "optimizer"),
    [
        ("one_device", "mirrored2", "adam"),
        ("mirrored2", "one_device", "new adam"),
        ("mirrored2", "mirrored4", "momentum"),
    ],
)
def test_everything_is_restored_under_another_strategy(frm, to, optimizer, tmp_path):
    run(_resnet(optimizer), tmp_path / "run", "train", frm)
    before = CheckpointContent(tmp_path / "run" / "checkpoints" / "ckpt-4")
    session = session_of(_resnet(optimizer), tmp_path / "run", make_strategy(to))
    session.restore_or_initialize()
    assert session.step == 4
    assert weights_fingerprint(session.state.model) == before.summary().weights
    checkpoint = session.state.checkpoint()
    checkpoint.write(str(tmp_path / "again"))
    after = CheckpointContent(tmp_path / "again")
    keys = after.state_keys()
    assert keys == before.state_keys()
    assert sum("optimizer" in key for key in keys) > len(session.state.model.trainable_variables)
    for key in keys:
        np.testing.assert_array_equal(after.tensor(key), before.tensor(key), err_msg=key)


@pytest.mark.slow
def test_replicas_have_identical_moving_averages(tmp_path):
    batch = {"task__train_data__global_batch_size": 48}
    model, _ = run(_resnet(**batch), tmp_path, "train", "mirrored3")
    averages = [v for v in model.variables if "moving" in v.name]
    assert len(averages) == 14
    for average in averages:
        first, *others = (part.numpy() for part in average.values)
        assert len(others) == 2
        for other in others:
            assert other.tobytes() == first.tobytes()
        assert average.numpy().tobytes() == first.tobytes()
        start = np.zeros_like(first) if "mean" in average.name else np.ones_like(first)
        assert not np.array_equal(first, start)
