"""Signals at random moments of loops of 1,000 steps: exit codes, time to exit, equal weights."""

from __future__ import annotations

import queue
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.faults.harness import final_state
from tests.support import warm_runner

pytestmark = pytest.mark.slow

_LOOP = 1000
_GRACE_SECONDS, _PATIENCE_SECONDS = 30.0, 600.0
_RUN = [
    *("--experiment=digits", "--task.model.filters=[8, 16]", "--task.model.dense_units=32"),
    *("--trainer.train_epochs=0", f"--trainer.steps_per_loop={_LOOP}"),
    # By default, it follows the number of steps, which differs between the runs.
    f"--trainer.optimizer_config.learning_rate.cosine.decay_steps={_LOOP}",
    *(f"--trainer.{name}_interval={_LOOP}" for name in ("checkpoint", "validation", "summary")),
]
_ENDLESS = 10**6
_SIGNALS = [signal.SIGTERM, signal.SIGINT]
if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as with `nohup`
    _SIGNALS.append(signal.SIGHUP)
# In the test suite, and with `make soak SUITE=faults`.
_MOMENTS, _ALL_MOMENTS = 3, 60


def _start(directory: Path, steps: int) -> warm_runner.WarmProcess:
    flags = ["--progress=plain", f"--train_steps={steps}", f"--model_dir={directory}"]
    return warm_runner.start(*_RUN, *flags, stdout=subprocess.DEVNULL)


def _interrupted(directory: Path, number: int, rng: random.Random) -> float:
    """Sends a signal at a random moment of training. Returns the seconds until the exit."""
    process = _start(directory, _ENDLESS)
    lines: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(target=lambda: [lines.put(line) for line in process.stderr or ()])
    reader.start()
    output: list[str] = []
    while not (output and "training from step" in output[-1]):
        output.append(lines.get(timeout=_PATIENCE_SECONDS))
    time.sleep(rng.uniform(0.0, 3.0))
    process.send_signal(number)
    start = time.monotonic()
    try:
        code = process.wait(_PATIENCE_SECONDS)
    finally:
        process.kill()
    seconds = time.monotonic() - start
    reader.join()
    output += [lines.get() for _ in range(lines.qsize())]
    assert code == 128 + number, "".join(output)
    assert f"{signal.Signals(number).name}: saved at step" in output[-3]
    assert output[-1].startswith("  continue  runner ")
    return seconds


def _finished(directory: Path, steps: int) -> None:
    process = _start(directory, steps)
    _, output = process.communicate()
    assert process.returncode == 0, output


@pytest.mark.promise(
    "faults",
    "a signal during a loop of 1,000 steps saves and exits within the grace period, with the "
    "documented code; the resumed run has the same weights",
)
def test_signal_during_a_long_loop_saves_within_the_grace_period(points, record, tmp_path):
    rng, moments = random.Random(23), min(points, _ALL_MOMENTS) or _MOMENTS
    parts, uninterrupted = tmp_path / "parts", tmp_path / "whole"
    seconds = [
        _interrupted(parts, _SIGNALS[index % len(_SIGNALS)], rng) for index in range(moments)
    ]
    steps = [int(path.stem[5:]) for path in (parts / "checkpoints").glob("ckpt-*.index")]
    # The last step may be any: it does not change the weights of those before it.
    end = -(-(max(steps) + 1) // _LOOP) * _LOOP
    _finished(parts, end)
    _finished(uninterrupted, end)
    record("signals", moments=moments, loop=_LOOP, longest_seconds=round(max(seconds), 2))
    if points:  # The test suite runs beside other processes.
        assert max(seconds) < _GRACE_SECONDS
    assert final_state(parts, end) == final_state(uninterrupted, end)
