"""The search for the first step that differs, on counters instead of networks."""

import pytest

from orbit_runner.repeat.why import SidePair, StepState, is_same


def _report(step: int, **tensors: str) -> StepState:
    return StepState(
        step, "", {name.replace("_", ":", 1): one for name, one in tensors.items()}, {}
    )


class _Counters(SidePair):
    """Two runs whose weights differ from a step on."""

    def __init__(self, first: int, start: int) -> None:
        self._first, self.step, self._kept = first, start, start
        self.trained = 0

    def advance(self, step: int) -> tuple[StepState, StepState]:
        assert step >= self.step
        self.trained += step - self.step
        self.step = step
        other = "b" if step >= self._first else "a"
        return _report(step, weights_w="a"), _report(step, weights_w=other)

    def keep(self) -> None:
        self._kept = self.step

    def go_back(self) -> None:
        self.step = self._kept


@pytest.mark.parametrize("start", [0, 100])
@pytest.mark.parametrize("first", [1, 2, 3, 50, 63, 64])
def test_first_step_is_found_and_both_runs_are_before_it(first: int, start: int) -> None:
    pair = _Counters(start + first, start)
    assert pair.find_first_step(start, start + 64) == start + first
    assert pair.step == start + first - 1
    assert pair.trained <= 2 * 64


def test_difference_in_the_first_step_needs_one_step() -> None:
    pair = _Counters(1, 0)
    pair.find_first_step(0, 10**6)
    assert pair.trained == 1


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ({"weights_w": "a"}, {"weights_w": "a"}, True),
        ({"weights_w": "a"}, {"weights_w": "b"}, False),
        ({"weights_w": "a"}, {"weights_v": "a"}, False),
        ({"weights_w": "a"}, {"weights_w": "a", "weights_v": "a"}, False),
        ({"weights_w": "a", "slots_m": "a"}, {"weights_w": "a", "slots_m": "b"}, False),
        # Slots of another kind of optimizer.
        ({"weights_w": "a", "slots_m": "a"}, {"weights_w": "a", "slots_n": "b"}, True),
    ],
)
def test_runs_are_the_same_if_their_common_variables_are(
    left: dict[str, str], right: dict[str, str], same: bool
) -> None:
    assert is_same(_report(1, **left), _report(1, **right)) is same
