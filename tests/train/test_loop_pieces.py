"""Loops in pieces: a signal stops them within the grace period, and results stay the same."""

import logging
import signal
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.train.loops.loop_pieces import LoopPieces
from orbit_runner.train.stop_requests import StopRequests
from tests.support.digits import cnn_config
from tests.support.problems import raises
from tests.support.toy import records, run

ONE_LOOP = {
    "trainer__steps_per_loop": 40,
    "trainer__train_steps": 40,
    **{f"trainer__{name}_interval": 40 for name in ("summary", "checkpoint", "validation")},
}
ALWAYS_ONE_STEP = {"runtime__grace_period": 1e-6}


def _losses(folder: Path) -> list[tuple[int, float]]:
    return [(record["step"], record["training_loss"]) for record in records(folder, "train")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"trainer__summary_interval": 5},
        {"trainer__summary_interval": 5, "task__train_data__on_device": False},
    ],
    ids=["in the graph", "records in the graph", "pipeline"],
)
def test_signal_stops_a_loop_early_without_changing_the_final_weights(
    changes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole, _ = run(cnn_config(**{**ONE_LOOP, **changes}), tmp_path / "whole")
    config = cnn_config(**{**ONE_LOOP, **ALWAYS_ONE_STEP, **changes})
    pieces, _ = run(config, tmp_path / "pieces")
    assert weights_fingerprint(pieces) == weights_fingerprint(whole)
    assert _losses(tmp_path / "pieces") == _losses(tmp_path / "whole")
    assert len(_losses(tmp_path / "whole")) == 40 // config.trainer.summary_interval
    next_piece_length, calls = StopRequests.next_piece_length, list[int]()

    def interrupt(requests: StopRequests, steps: int) -> int:
        calls.append(steps)
        if len(calls) == 8:
            signal.raise_signal(signal.SIGTERM)
        return next_piece_length(requests, steps)

    monkeypatch.setattr(StopRequests, "next_piece_length", interrupt)
    with raises("interrupted"):
        run(config, tmp_path / "stopped")
    resumed, _ = run(config, tmp_path / "stopped")

    assert weights_fingerprint(resumed) == weights_fingerprint(whole)
    assert "did not update `global_step`" not in caplog.text


def test_warning_of_orbit_is_hidden_only_while_it_is_wrong(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("absl")
    filters = [*log.filters]
    answers = iter([1, 0])
    pieces = LoopPieces(1e-6, lambda steps: next(answers))
    with pieces.expected_stop_scope():
        log.error("before: did not update `global_step` by 2")
        assert [*pieces.lengths(2, lambda steps: steps)] == [1]
        log.error("expected: did not update `global_step` by 2")
    log.error("after: did not update `global_step` by 2")
    shown = [record.message.partition(":")[0] for record in caplog.records]
    assert shown == ["before", "after"]
    assert log.filters == filters
