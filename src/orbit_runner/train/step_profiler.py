"""Traces a range of training steps with TensorFlow's profiler.

The loop is cut into pieces before the first of these steps and after the last. The graphs are those
of all other steps, so the weights are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.errors import first_line
from orbit_runner.train.loops.loop_pieces import Loop, Stage
from orbit_runner.utils.log import note

_WAITING = "waiting"
_TRACING = "tracing"
_DONE = "done"
_MARKER = "orbit_runner_steps"  # the event around each piece that is traced
# What TensorFlow calls its events: ops of graphs, ops that Python runs, and the two ends of an
# asynchronous op, which have the same number under two names.
_OP = re.compile(r"[^:]+:[A-Za-z_]\w*|EagerLocalExecute: [A-Za-z]\w*")
_ENDS = {"ExecutorState::ProcessAsync::Start": "_p", "ExecutorState::ProcessAsync::Done": "_c"}
_GET_NEXT = "GetNext"  # in the names of tf.data's ops that wait for a batch
_Interval = tuple[int, int]  # in picoseconds


class StepProfiler(Stage):
    """Traces the steps from `first` to `last` once. A failure is a warning, never an error."""

    def __init__(self, first: int, last: int, directory: Path, global_step: tf.Variable) -> None:
        self._first = first
        self._last = last
        self._directory = directory  # TensorBoard's directory of the training
        self._global_step = global_step
        self._state = _WAITING
        self._traced = first - 1  # the last step that was traced

    def piece_length(self, step: int, steps: int) -> int:
        """Returns how many of the next `steps` steps can run as one piece, from a global step."""
        if self._state == _TRACING or self._starts_after(step):
            return min(steps, self._last - step)
        if self._state == _WAITING and step < self._first:
            return min(steps, self._first - 1 - step)
        return steps

    def wrap_loop(self, loop: Loop, step: int) -> Loop:
        """Returns a loop that traces the piece, if it is in the range."""
        if self._starts_after(step):
            try:
                tf.profiler.experimental.start(str(self._directory))
                self._state = _TRACING
            except Exception as error:
                self._state = _DONE
                note(f"warning: trainer.profile_steps: the profiler failed: {first_line(error)}")
        if self._state != _TRACING:
            return loop

        def run(*arguments: Any) -> None:
            with tf.profiler.experimental.Trace(_MARKER):
                loop(*arguments)
                self._traced = int(self._global_step.numpy())  # Waits for the steps on a GPU.
            if self._traced >= self._last:
                self.stop()

        return run

    def stop(self) -> None:
        """Writes the trace, if steps are being traced, and reports where it is."""
        if self._state != _TRACING:
            return
        self._state = _DONE
        try:
            tf.profiler.experimental.stop()
            traces = self._directory.glob("plugins/profile/*/*.xplane.pb")
            trace = max(traces, key=lambda path: path.stat().st_mtime)
            share = waiting_share(trace)
        except Exception as error:
            note(f"warning: trainer.profile_steps: the trace failed: {first_line(error)}")
            return
        wait = "their batches are made from data in memory"
        if share is not None:
            wait = f"they waited for data {share:.1%} of the time"
        note(f"traced steps {self._first} to {self._traced}: {wait}\n  {trace.parent}")

    def _starts_after(self, step: int) -> bool:
        return self._state == _WAITING and step == self._first - 1


def waiting_share(trace: Path) -> float | None:
    """Returns the share of the time in which steps waited for tf.data while no other op ran.

    `trace` is a file `HOST.xplane.pb`. Returns None if the steps got no batches from tf.data.
    """
    from orbit_runner.tf_internals import XSpace  # Few runs need it.

    windows: list[_Interval] = []
    waits: list[_Interval] = []
    work: list[_Interval] = []
    ends: dict[object, list[int]] = {}
    for name, interval, stats, on_device in _events(XSpace.FromString(trace.read_bytes())):
        if name == _MARKER:
            windows.append(interval)
        elif name in _ENDS:
            if _GET_NEXT in str(stats.get("kernel_type")):
                ends.setdefault(stats.get(_ENDS[name]), []).append(interval[0])
        elif on_device or _OP.fullmatch(name) or "hlo_op" in stats:
            (waits if _GET_NEXT in name else work).append(interval)
    waits += [(min(times), max(times)) for times in ends.values()]
    total = sum(end - start for start, end in windows)
    waiting = _covered([*work, *waits], windows) - _covered(work, windows)
    return waiting / total if waits and total else None


def _events(xspace: Any) -> Iterator[tuple[str, _Interval, dict[str, object], bool]]:
    """Yields name, interval, statistics and whether it is on a device, without ops of tf.data."""
    for plane in xspace.planes:
        names = plane.stat_metadata
        on_device = plane.name.startswith("/device:")
        # Of a device, only these lines: others repeat their events. Of a host, all but tf.data's.
        lines = ("Stream", "XLA Ops") if on_device else "tf_data"
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                if line.name.startswith(lines) != on_device and name not in _ENDS:
                    continue
                stats = {
                    names[stat.metadata_id].name: names[stat.ref_value].name
                    if stat.ref_value
                    else getattr(stat, stat.WhichOneof("value") or "int64_value")
                    for stat in event.stats
                }
                start = line.timestamp_ns * 1000 + event.offset_ps
                yield name, (start, start + event.duration_ps), stats, on_device


def _covered(intervals: Sequence[_Interval], windows: Sequence[_Interval]) -> int:
    """Returns how much of the windows, which are disjoint, any of the intervals covers."""
    total = 0
    for covered, last in windows:
        for start, end in sorted(intervals):
            total += max(0, min(end, last) - max(start, covered))
            covered = max(covered, min(end, last))
    return total
