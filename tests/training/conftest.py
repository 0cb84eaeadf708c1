"""The strategies that a single process can run here, on virtual CPUs."""

import pytest
import tensorflow as tf

from tests.training.toy import make_strategy

STRATEGIES = ("off", "one_device", "mirrored2", "mirrored4")


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> tf.distribute.Strategy:
    return make_strategy(request.param)
