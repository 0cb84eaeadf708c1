"""The search for the first step that differs, on counters instead of networks."""

import pytest

from orbit_runner.repeat.why import SidePair, is_same


def _report(**tensors):
    return {"tensors": {name.replace("_", ":", 1): digest for name, digest in tensors.items()}}


class _Counters(SidePair):
    """Two runs whose weights differ from a step on."""

    def __init__(self, first, start):
        self._first, self.step, self.kept = first, start, start
        self.trained = 0

    def ask(self, command, **arguments):
        if command == "keep":
            self.kept = self.step
            return [{}, {}]
        step = arguments["step"]
        if step < self.step:
            self.step = self.kept
        self.trained += step - self.step
        self.step = step
        return [_report(weights_w="a"), _report(weights_w="b" if step >= self._first else "a")]


@pytest.mark.parametrize("start", [0, 100])
@pytest.mark.parametrize("first", [1, 2, 3, 50, 63, 64])
def test_first_step_is_found_and_the_state_before_it_is_kept(first, start):
    pair = _Counters(start + first, start)
    assert pair.find_first_step(start, start + 64) == start + first
    assert pair.kept == start + first - 1
    assert pair.trained <= 2 * 64


def test_difference_in_the_first_step_needs_one_step():
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
def test_runs_are_the_same_if_their_common_variables_are(left, right, same):
    assert is_same(_report(**left), _report(**right)) is same
