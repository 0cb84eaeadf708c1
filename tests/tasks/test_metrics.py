"""The metrics of our tasks have the same values on the host as they have as tensors."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.tasks.metrics import RunningMean
from orbit_runner.train.evaluator import value_of
from tests.support.toy import make_strategy


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], 0.0),
        ([(1.0, 3.0), (0.1, 4.0)], 3.4 / 7.0),
        ([(float("nan"), 0.0)], 0.0),
        ([(float("nan"), 1.0)], float("nan")),
        ([(3e38, 2.0)], float("inf")),
    ],
)
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
def test_mean_read_on_the_host_equals_its_tensor_result(
    strategy: str, values: list[tuple[float, float]], expected: float
) -> None:
    place = make_strategy(strategy)
    with place.scope():
        mean = RunningMean("mean")
        for pair in values:
            place.run(mean.update_state, args=tuple(map(tf.constant, pair)))
        found, weight = mean.read()
        result, total = mean.result().numpy(), mean.weight().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.tobytes() == result.tobytes() or (np.isnan(found) and np.isnan(result))
    assert weight == total
    assert value_of(mean).tobytes() == found.tobytes()
