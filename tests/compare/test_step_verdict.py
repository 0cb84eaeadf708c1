"""Whether a replayed step is the one that the run took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orbit_runner.compare.histories import judge_step
from orbit_runner.errors import Diverged
from orbit_runner.run_directory.run_reader import Fingerprints, RunReader

_NOTHING = "the run has no comparable checkpoint or record near that step"


def _history(
    weights: dict[int, str], losses: dict[int, float | None] | None = None, **values: Any
) -> RunReader:
    prints = {step: Fingerprints(name, f"state {name}") for step, name in weights.items()}
    run = RunReader(Path("nowhere"))
    vars(run).update({"fingerprints": prints, "losses": losses or {}, "attempts": (), **values})
    return run


def _judge(original: RunReader, replay: RunReader, **changes: Any) -> tuple[str, str]:
    arguments = {"step": 23, "after": 20, "end": 30, "summary_interval": 5, **changes}
    judgment = judge_step(original, replay, **arguments)
    return judgment.verdict, judgment.reason


@pytest.mark.parametrize(
    ("original", "replay", "expected"),
    [
        (_history({20: "a", 30: "b"}), _history({20: "a", 30: "b"}),
         ("own", "the weights of step 30 have the fingerprint of the run")),
        (_history({20: "a", 30: "b"}), _history({20: "a", 30: "c"}),
         ("differs", "the weights of step 30 are not those of its checkpoint")),
        (_history({20: "a", 30: "b"}, {25: 1.0}), _history({20: "a", 30: "b"}, {25: 2.0}),
         ("differs", "the loss in the record of step 25: 1 → 2")),
        (_history({20: "a"}, {25: None}), _history({20: "a"}, {25: None}),
         ("own", "the record of step 25 has the loss of the run")),
        # A record that began before the replay is over other steps.
        (_history({20: "a"}, {25: 1.0}), _history({20: "a"}, {25: 2.0}),
         ("unknown", _NOTHING)),
        (_history({20: "a"}), _history({20: "a", 23: "b"}),
         ("unknown", _NOTHING)),
        (_history({20: "a", 900: "b"}), _history({20: "a"}),
         ("unknown", _NOTHING)),
    ],
)  # fmt: skip
def test_verdict_is_that_of_the_next_checkpoint_or_record(original, replay, expected):
    interval = 25 if original.losses.get(25) == 1.0 and expected[0] == "unknown" else 5
    assert _judge(original, replay, summary_interval=interval) == expected


def test_replay_with_an_error_differs_unless_the_run_ended_with_the_same():
    error = Diverged("the loss is nan at step 24", advice="check the data")
    for outcome, verdict in ((f"Diverged: {error}", "own"), ("Diverged: other", "differs")):
        original = _history({20: "a"}, attempts=({"outcome": outcome},))
        assert _judge(original, _history({20: "a"}), error=error)[0] == verdict
    assert _judge(_history({20: "a"}), _history({20: "a"}), error=error)[0] == "differs"
