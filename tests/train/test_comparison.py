"""Which value of a metric is better, and the errors for unknown metrics."""

import pytest

from orbit_runner.errors import SettingError
from orbit_runner.train.callbacks.best_checkpoint import Comparison, require_metric
from tests.support.problems import raises

NAN = float("nan")


@pytest.mark.parametrize(
    ("higher", "value", "than", "by", "better"),
    [
        (True, 2.0, 1.0, 0.0, True),
        (True, 1.0, 1.0, 0.0, False),
        (True, 1.05, 1.0, 0.1, False),
        (True, 1.2, 1.0, 0.1, True),
        (False, 1.0, 2.0, 0.0, True),
        (False, 2.0, 1.0, 0.0, False),
        (False, 0.95, 1.0, 0.1, False),
        (False, 0.8, 1.0, 0.1, True),
        (True, 1.0, NAN, 0.0, True),
        (False, 1.0, NAN, 5.0, True),
        (True, NAN, 1.0, 0.0, False),
        (True, NAN, NAN, 0.0, False),
    ],
)
def test_is_better_respects_direction_margin_and_nan(
    higher: bool, value: float, than: float, by: float, better: bool
) -> None:
    assert Comparison("m", higher).is_better(value, than, by) is better


def test_metric_is_found_in_nested_results() -> None:
    logs = {"loss": 1.0, "per_class": {"cat": 0.5}}
    assert Comparison("loss", False).value(logs) == 1.0
    assert Comparison("per_class|cat", True).value(logs) == 0.5


@pytest.mark.parametrize("name", ["accurracy", "per_class|dog", "loss|x"])
def test_missing_metric_in_results_is_an_error(name: str) -> None:
    with raises("unknown-name"):
        Comparison(name, True).value({"loss": 1.0, "accuracy": 2.0, "per_class": {"cat": 0.5}})


def test_error_for_an_unknown_metric_suggests_the_nearest_name() -> None:
    require_metric("accuracy", ["accuracy"], "trainer.x")
    with pytest.raises(SettingError) as caught:
        require_metric("acuracy", ["validation_loss", "accuracy"], "trainer.x")
    assert caught.value.path == "trainer.x"
    assert "did you mean 'accuracy'" in str(caught.value)
