"""Variables with a value per replica get the mean of their values after a step."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.state.replica_state import ReplicaState, has_combined_variables
from tests.support.toy import make_strategy


def test_all_variables_but_unchanged_ones_get_the_mean_on_mirrored_replicas():
    strategy = make_strategy("mirrored2")
    with strategy.scope():
        model = tf_keras.Sequential([tf_keras.Input([2]), tf_keras.layers.BatchNormalization()])
        mean, variance = model.non_trainable_variables
        state = ReplicaState(model, strategy)

    @tf.function
    def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        for variable in (mean, variance):
            variable.assign(tf.fill([2], tf.cast(replica, tf.float32)))
        state.average_across_replicas({id(variance)})

    strategy.run(step)
    np.testing.assert_array_equal([value.numpy() for value in mean.values], [[0.5, 0.5]] * 2)
    np.testing.assert_array_equal([value.numpy() for value in variance.values], [[0, 0], [1, 1]])


@pytest.mark.parametrize(("name", "combines"), [("one_device", False), ("mirrored2", True)])
def test_one_device_has_nothing_to_combine_so_it_saves_in_the_background(name, combines):
    strategy = make_strategy(name)
    with strategy.scope():
        model = tf_keras.Sequential([tf_keras.Input([2]), tf_keras.layers.BatchNormalization()])
    checkpoint = tf.train.Checkpoint(model=model)
    assert has_combined_variables(checkpoint) is combines
    ReplicaState(model, strategy)
    assert not has_combined_variables(checkpoint)
