"""How loops grow, shrink and end, how workers divide them, and that a signal ends them."""

import signal

import pytest

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.train.loops.loop_pieces import LoopLength
from orbit_runner.train.parameter_servers import split_loop
from orbit_runner.train.schedule import Plan
from orbit_runner.train.stop_requests import StopRequests
from tests.support.digits import cnn_config
from tests.support.problems import raises
from tests.support.toy import records, run


def _plan(train_steps=100, summary_interval=7):
    return Plan(
        train_steps=train_steps,
        steps_per_epoch=0.0,
        summary_interval=summary_interval,
        checkpoint_interval=30,
        validation_interval=20,
    )


_LONG = _plan(train_steps=10**7, summary_interval=10**7)


def _fast(plan, most_steps, most_records=1):
    """Returns the lengths of loops whose steps take no time."""
    length = LoopLength(plan, lambda: (1, 0.0), most_steps=most_steps, most_records=most_records)
    for _ in range(3):
        length(0)
    return length


@pytest.mark.parametrize(
    ("most_steps", "step", "length"),
    [(3, 0, 3), (100, 0, 7), (100, 8, 6), (100, 98, 2), (100, 100, 1), (3, 120, 1)],
)
def test_loop_ends_at_the_next_record(most_steps, step, length):
    assert _fast(_plan(), most_steps)(step) == length


@pytest.mark.parametrize(("step", "length"), [(0, 98), (8, 97), (98, 70)])
def test_loop_over_several_records_ends_at_the_last_one(step, length):
    most_steps = 75 if step == 98 else 100
    assert _fast(_plan(train_steps=10_000), most_steps, most_records=1000)(step) == length


def _lengths(seconds_a_step, **limits):
    last = 0, 0.0
    length, step, lengths = LoopLength(_LONG, lambda: last, **limits), 0, []
    for seconds in seconds_a_step:
        lengths.append(length(step))
        step += lengths[-1]
        last = lengths[-1], lengths[-1] * seconds
    return lengths


@pytest.mark.parametrize(
    ("limits", "lengths"),
    [
        ({}, [1, 1, 8, 64, 512, 4096, 10_000, 10_000]),
        ({"most_steps": 100}, [1, 1, 8, 64, 100, 100, 100, 100]),
        ({"grace_period": 0.06}, [1, 1, 8, 64, 100, 100, 100, 100]),
        ({"grace_period": 30.0}, [1, 1, 8, 64, 512, 4096, 10_000, 10_000]),
    ],
)
def test_loops_grow_until_one_takes_a_second(limits, lengths):
    assert _lengths([3.0, *[1e-4] * 7], **limits) == lengths


def test_loops_shrink_when_steps_are_slow():
    assert _lengths([0.01, 0.01, 0.01, 0.25, 0.25, 5.0, 5.0]) == [1, 8, 64, 100, 4, 4, 1]


@pytest.mark.parametrize(
    ("steps", "workers", "lengths"),
    [
        (1, 4, [1]),
        (7, 2, [4, 3]),
        (40, 4, [10] * 4),
        (100, 2, [10] * 10),
        (1001, 2, [63] * 9 + [62] * 7),
        (10_000, 3, [417] * 16 + [416] * 8),
    ],
)
def test_workers_share_the_steps_of_a_loop_in_equal_pieces(steps, workers, lengths):
    assert split_loop(steps, workers) == lengths
    assert sum(lengths) == steps


_ONE_LOOP = {
    "trainer__steps_per_loop": 40,
    "trainer__train_steps": 40,
    "trainer__summary_interval": 5,
    "trainer__checkpoint_interval": 40,
    "trainer__validation_interval": 40,
}
_ALWAYS_ONE_STEP = {"runtime__grace_period": 1e-6}


def _losses(folder):
    return [(record["step"], record["training_loss"]) for record in records(folder, "train")]


@pytest.mark.slow
def test_short_loops_and_a_signal_do_not_change_the_final_weights(tmp_path, monkeypatch):
    uninterrupted, _ = run(cnn_config(**_ONE_LOOP), tmp_path / "whole")
    config = cnn_config(**_ONE_LOOP, **_ALWAYS_ONE_STEP)
    steps, _ = run(config, tmp_path / "steps")
    assert weights_fingerprint(steps) == weights_fingerprint(uninterrupted)
    assert _losses(tmp_path / "steps") == _losses(tmp_path / "whole")
    assert len(_losses(tmp_path / "whole")) == 40 // 5
    next_loop_length, calls = StopRequests.next_loop_length, list[int]()

    def interrupt(requests, steps, *arguments):
        calls.append(steps)
        if len(calls) == 8:
            signal.raise_signal(signal.SIGTERM)
        return next_loop_length(requests, steps, *arguments)

    monkeypatch.setattr(StopRequests, "next_loop_length", interrupt)
    with raises("interrupted"):
        run(config, tmp_path / "stopped")
    resumed, _ = run(config, tmp_path / "stopped")

    assert weights_fingerprint(resumed) == weights_fingerprint(uninterrupted)
