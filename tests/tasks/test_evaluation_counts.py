"""Each example of an evaluation counts once; metrics on the host are those of the device."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.tasks.metrics import RunningMean
from orbit_runner.tasks.tabular import networks
from orbit_runner.train.evaluator import value_of
from tests.support.evaluations import evaluate
from tests.support.tables import make_rows, table_config, write_csv
from tests.support.toy import make_strategy


@pytest.mark.slow
def test_losses_of_a_network_for_tables_depend_on_its_rows_alone(tmp_path, monkeypatch):
    path = write_csv(tmp_path / "rows.csv", make_rows(100))
    plain, counted = _evaluate_with_number_of_rows(table_config(path), monkeypatch)

    total = int(counted["validation_examples"])
    assert total % 16  # The last batch is partial.
    sizes = np.array([16] * (total // 16) + [total % 16])
    difference = counted["validation_loss"] - plain["validation_loss"]
    np.testing.assert_allclose(difference, (sizes**2).sum() / total, rtol=1e-5)
    assert counted["accuracy"] == plain["accuracy"]


@pytest.mark.slow
def test_row_of_a_table_with_weight_0_is_not_taken_for_padding(tmp_path, monkeypatch):
    rows = [row | {"w": 3 * (number < 96)} for number, row in enumerate(make_rows(100))]
    config = table_config(
        write_csv(tmp_path / "rows.csv", rows),
        task__weight_column="w",
        task__split__fractions="{train: 0.5, validation: 0.5}",
        task__validation_data__global_batch_size=128,
    )
    plain, counted = _evaluate_with_number_of_rows(config, monkeypatch)

    # There is one batch, and its rows are all rows of the table.
    difference = counted["validation_loss"] - plain["validation_loss"]
    assert difference == pytest.approx(counted["validation_examples"], abs=0.01)


def _evaluate_with_number_of_rows(config, monkeypatch):
    """Returns two evaluations; in the second one, the model adds its number of rows to the loss."""
    _, plain = evaluate(config)
    original = networks.mlp

    def with_loss(**settings):
        model = original(**settings)
        model.add_loss(tf.cast(tf.shape(tf.nest.flatten(model.inputs)[0])[0], tf.float32))
        return model

    monkeypatch.setattr(networks, "mlp", with_loss)
    return plain, evaluate(config)[1]


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
def test_mean_read_on_the_host_equals_its_tensor_result(strategy, values, expected):
    place = make_strategy(strategy)
    with place.scope():
        mean = RunningMean("mean")
        for pair in values:
            place.run(mean.update_state, args=tuple(map(tf.constant, pair)))
        mean_value, weight = mean.read()
        result, total = mean.result().numpy(), mean.weight().numpy()
    np.testing.assert_allclose(mean_value, expected, rtol=1e-6)
    assert mean_value.tobytes() == result.tobytes() or (np.isnan(mean_value) and np.isnan(result))
    assert weight == total
    assert value_of(mean).tobytes() == mean_value.tobytes()
