"""Fingerprints of weights and checkpoints."""

import numpy as np
import tensorflow as tf

from orbit_runner.checkpoint import fingerprint as fingerprints


def _variables(first=1.0, name="a", dtype="float32"):
    return [
        tf.Variable(np.array([first, 2.0], dtype), name=name),
        tf.Variable(np.zeros([2, 3], np.int32), name="b"),
    ]


def fingerprint(variables):
    return fingerprints.fingerprint(
        fingerprints.tensor_line(variable.name, variable.numpy()) for variable in variables
    )


def test_equal_variables_have_equal_fingerprints():
    assert fingerprint(_variables()) == fingerprint(_variables())
    assert fingerprint(_variables()) == fingerprint(_variables()[::-1])
    assert len(fingerprint(_variables())) == 64


def test_every_difference_changes_the_fingerprint():
    others = [
        _variables(first=np.nextafter(np.float32(1.0), np.float32(2.0))),
        _variables(name="c"),
        _variables(dtype="float64"),
        _variables(first=0.0),
        _variables(first=-0.0),
        _variables()[:1],
        [_variables()[0], tf.Variable(np.zeros([3, 2], np.int32), name="b")],
        # The same bytes of another type.
        [_variables()[0], tf.Variable(np.zeros([2, 3], np.float32), name="b")],
    ]
    fingerprints = {fingerprint(variables) for variables in [_variables(), *others]}
    assert len(fingerprints) == 1 + len(others)


def test_every_variable_of_a_checkpoint_affects_its_fingerprint(tmp_path):
    parts = {f"part{index}": tf.Variable(float(index)) for index in range(9)}
    checkpoint = tf.train.Checkpoint(**parts)

    def state():
        checkpoint.write(str(tmp_path / "ckpt"))
        return fingerprints.CheckpointContent(tmp_path / "ckpt").summary().state

    digests = {state()}
    for variable in parts.values():
        variable.assign_add(100.0)
        digests.add(state())
    assert len(digests) == 10
    assert state() in digests
