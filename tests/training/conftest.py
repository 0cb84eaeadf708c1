"""The strategies that a single process can run here, on virtual CPUs."""

import gc
from collections.abc import Iterator

import pytest
import tensorflow as tf

from tests.training.toy import make_strategy

STRATEGIES = ("off", "one_device", "mirrored2", "mirrored4")


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> tf.distribute.Strategy:
    return make_strategy(request.param)


@pytest.fixture(autouse=True)
def no_old_iterators(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lets distributed iterators go young: TensorFlow may block for as long as one has lived."""
    yield
    if "mirrored" in request.node.name:
        gc.collect()
