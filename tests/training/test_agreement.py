"""What workers have to agree on before any of them goes on."""

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_runner.train.callbacks.interrupts import Interrupted
from orbit_runner.train.run import Session


def _session(*, chief: bool, others: list[int], received: int | None = None) -> Any:
    """A worker whose fellow workers add `others` to what it says."""

    def sums(values: list[int]) -> list[int]:
        return [int(own) + other for own, other in zip(values, others, strict=True)]

    return SimpleNamespace(
        workers=SimpleNamespace(is_chief=chief, sums=sums),
        signals=SimpleNamespace(received=received),
        servers=None,
        step=7,
        save=lambda: saved.append(7),
        _asked_by_server=lambda: None,
    )


saved: list[int] = []


@pytest.mark.parametrize(("chief", "others"), [(True, [0, 0, 0, 0]), (False, [31, 0, 0, 0])])
def test_loops_are_as_long_as_the_chief_says(chief: bool, others: list[int]) -> None:
    own = 31 if chief else 12

    assert Session.leave_if_signalled(_session(chief=chief, others=others), own) == 31


@pytest.mark.parametrize(
    ("received", "others", "code"),
    [
        (signal.SIGTERM, [0, 0, 0, 0], 143),
        (None, [0, 0, 1, 0], 143),
        (None, [0, 1, 0, 0], 130),
        (None, [0, 0, 0, 1], 129),
        (signal.SIGINT, [0, 0, 1, 0], 130),
    ],
)
def test_a_signal_to_one_worker_has_all_of_them_save_and_leave(
    received: int | None, others: list[int], code: int
) -> None:
    saved.clear()
    with pytest.raises(Interrupted, match="saved at step 7") as caught:
        Session.leave_if_signalled(_session(chief=False, others=others, received=received), 5)

    assert caught.value.exit_code == code
    assert saved == [7]
