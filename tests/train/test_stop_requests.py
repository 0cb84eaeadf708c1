"""What workers must agree on before any of them continues."""

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_runner.train.callbacks.interrupts import Interrupted
from orbit_runner.train.stop_requests import StopRequests, StopTraining

OTHER = "a callback on another worker requested a stop"


def _requests(*, chief: bool, others: list[int], received: int | None = None) -> StopRequests:
    """The requests of a worker; the other workers add `others` to its values."""

    def sums(values: list[int]) -> list[int]:
        return [int(own) + other for own, other in zip(values, others, strict=True)]

    workers: Any = SimpleNamespace(is_chief=chief, sums=sums)
    signals: Any = SimpleNamespace(received=received)
    return StopRequests(workers, signals, None, lambda text: None)


@pytest.mark.parametrize(("chief", "others"), [(True, [0] * 5), (False, [31, 0, 0, 0, 0])])
def test_loop_length_is_that_of_the_chief(chief: bool, others: list[int]) -> None:
    own = 31 if chief else 12

    assert _requests(chief=chief, others=others).next_loop(own, 7, pytest.fail) == 31


@pytest.mark.parametrize(
    ("received", "others", "code"),
    [
        (signal.SIGTERM, [0, 0, 0, 0, 0], 143),
        (None, [0, 0, 0, 1, 0], 143),
        (None, [0, 0, 1, 0, 0], 130),
        (None, [0, 0, 0, 0, 1], 129),
        (signal.SIGINT, [0, 0, 0, 1, 0], 130),
    ],
)
def test_signal_to_one_worker_makes_all_workers_save_and_exit(
    received: int | None, others: list[int], code: int
) -> None:
    saved: list[int] = []
    requests = _requests(chief=False, others=others, received=received)
    with pytest.raises(Interrupted, match="saved at step 7") as caught:
        requests.next_loop(5, 7, lambda: saved.append(7))

    assert caught.value.exit_code == code
    assert saved == [7]


def test_callback_on_one_worker_stops_all_workers() -> None:
    requests = _requests(chief=False, others=[31, 1, 0, 0, 0])
    with pytest.raises(StopTraining):
        requests.next_loop(5, 7, pytest.fail)
    assert requests.reason == OTHER


@pytest.mark.parametrize(("others", "reason"), [([0], ""), ([1], OTHER)])
def test_workers_agree_to_stop_before_they_evaluate_or_save(others: list[int], reason: str) -> None:
    assert _requests(chief=True, others=others).agree() == reason


@pytest.mark.parametrize(("others", "steps"), [([31, 0], 31), ([31, 1], 0)])
def test_workers_run_the_steps_of_the_chief_and_stop_together(
    others: list[int], steps: int
) -> None:
    assert _requests(chief=False, others=others).next_piece(5) == steps
