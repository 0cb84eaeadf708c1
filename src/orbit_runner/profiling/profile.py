"""Computes from a trace where the time of a step goes: ops, layers, and waiting for input."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.errors import RunnerError
from orbit_runner.profiling.calls import GET_NEXT, Calls, Op, RecordedSteps, read_calls
from orbit_runner.profiling.intervals import Interval, length, overlap, union
from orbit_runner.profiling.op_attribution import INPUT, OTHERS, OpAttribution, StepPart
from orbit_runner.profiling.trace_files import (
    TraceDescription,
    TraceFiles,
    read_description,
    require_trace,
)
from orbit_runner.profiling.xspace import read_xspace

_SECOND = 1e12  # in picoseconds
# The same limits as in TensorFlow's own analysis of traces.
SOME_WAIT, MUCH_WAIT = 0.05, 0.20


@dataclasses.dataclass(frozen=True)
class KindRow:
    """All ops of one type; the values are those of a step.

    Attributes:
        kind: The type, such as `MatMul`.
        seconds: Their time, summed over threads.
        calls: The number of calls.
        share: The fraction of the time of all ops.
    """

    kind: str
    seconds: float
    calls: float
    share: float


@dataclasses.dataclass(frozen=True)
class PartRow:
    """A layer or another part of a step.

    Attributes:
        part: The name of the layer or part.
        forward: The time of the forward pass in a step, summed over threads.
        backward: The time of the backward pass.
        share: The fraction of the time of all ops.
    """

    part: str
    forward: float
    backward: float
    share: float


@dataclasses.dataclass(frozen=True)
class Profile:
    """Where the time of a step goes. Times are in seconds.

    Attributes:
        experiment: The name of the experiment; "" if unknown.
        trace: The directory of the trace.
        steps: The number of profiled steps.
        step_seconds: The time of a step.
        wait_seconds: The part of it in which nothing runs except the input.
        op_seconds: The time of all ops in a step, summed over threads.
        cores: The number of processor cores; 0 if unknown.
        busy: The fraction of the cores, or of the devices, that is busy; None if unknown.
        devices: The GPUs or TPUs that run the ops; empty for processors.
        pipeline: Whether batches come from tf.data, and not from ops of the same graph.
        kinds: The ops by type, those with the most time first.
        parts: The layers and other parts of a step, those with the most time first.
    """

    experiment: str
    trace: str
    steps: int
    step_seconds: float
    wait_seconds: float
    op_seconds: float
    cores: int
    busy: float | None
    devices: tuple[str, ...]
    pipeline: bool
    kinds: tuple[KindRow, ...]
    parts: tuple[PartRow, ...]

    @property
    def wait_share(self) -> float:
        """The fraction of a step in which nothing runs except the input."""
        return self.wait_seconds / self.step_seconds if self.step_seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Returns the values for JSON."""
        return {**dataclasses.asdict(self), "wait_share": self.wait_share}


def read_profile(directory: Path) -> Profile:
    """Returns the profile of the newest trace of a run, or in another directory.

    Raises RunnerError if there is none, or it has no steps.
    """
    return profile_of(require_trace(directory))


def profile_of(trace: TraceFiles) -> Profile:
    """Returns the profile of a trace; raises RunnerError if it has no steps."""
    recorded = read_calls(read_xspace(trace.hosts[0]))
    if not recorded.steps:
        raise RunnerError(
            f"{trace.hosts[0]}: has no training steps\n"
            "profile steps with trainer.profile_steps, or mark them with "
            "tf.profiler.experimental.Trace('train', step_num=…)"
        )
    return _profile(recorded, read_description(trace), str(trace.directory))


def _profile(recorded: RecordedSteps, description: TraceDescription, trace: str) -> Profile:
    ops = _merge_devices(recorded.devices.values()) if recorded.devices else recorded.host
    every = [*recorded.host, *ops]
    attribution = OpAttribution(description, every, fetches=_gets_batches(recorded))
    where = {op: attribution.attribute(op) for op in every}
    windows = _trim_windows(recorded, ops, where)
    steps = recorded.steps
    total = sum(calls.own for calls in ops.values())
    return Profile(
        experiment=description.experiment,
        trace=trace,
        steps=steps,
        step_seconds=length(windows) / steps / _SECOND,
        wait_seconds=_wait_time(recorded, ops, where, windows) / steps / _SECOND,
        op_seconds=total / steps / _SECOND,
        cores=description.cores,
        busy=_busy_fraction(recorded, description),
        devices=tuple(recorded.devices),
        pipeline=_gets_batches(recorded),
        kinds=_kind_rows(ops, steps, total),
        parts=_part_rows(ops, where, steps, total),
    )


def _merge_devices(devices: Iterable[Mapping[Op, Calls]]) -> dict[Op, Calls]:
    found: dict[Op, Calls] = {}
    for calls in devices:
        for op, one in calls.items():
            both = found.setdefault(op, Calls())
            both.intervals += one.intervals
            both.own += one.own
    return found


def _gets_batches(recorded: RecordedSteps) -> bool:
    """Returns whether batches come from tf.data, and not from ops of the same graph."""
    return bool(recorded.fetches) or any(GET_NEXT in op.kind for op in recorded.host)


def _trim_windows(
    recorded: RecordedSteps, ops: Mapping[Op, Calls], where: Mapping[Op, StepPart]
) -> list[Interval]:
    """Returns when steps ran, from the first op of a step to the last one.

    If the graph makes its batches itself, a loop makes the first ones before its first step, and
    others that it does not use. A longer loop makes them while other steps run.
    """
    windows = union(recorded.windows)
    if _gets_batches(recorded):
        return windows
    steps = union(
        interval
        for op, calls in ops.items()
        if where[op].part not in (INPUT, OTHERS)
        for interval in calls.intervals
    )
    return [(max(start, a), min(end, b)) for (start, end), (a, b) in _spans(windows, steps)]


def _spans(
    windows: Sequence[Interval], steps: Sequence[Interval]
) -> Iterator[tuple[Interval, Interval]]:
    """Yields each window with the time from the start to the end of what ran in it."""
    for window in windows:
        inside = _clip(steps, window) or [window]
        yield window, (inside[0][0], inside[-1][1])


def _wait_time(
    recorded: RecordedSteps,
    ops: Mapping[Op, Calls],
    where: Mapping[Op, StepPart],
    windows: Sequence[Interval],
) -> int:
    """Returns how long ops of the input ran, or waited for tf.data, while no other op ran."""
    waits, works = [*recorded.fetches], []
    for op, calls in recorded.host.items():
        if where[op].part == INPUT:
            waits += calls.intervals
    for op, calls in ops.items():
        if where[op].part != INPUT and op.source != "pipeline":
            works += calls.intervals
    busy, waiting = union(works), union(waits)
    return sum(
        overlap(waiting, [window]) - overlap(_clip(waiting, window), busy) for window in windows
    )


def _clip(intervals: Sequence[Interval], window: Interval) -> list[Interval]:
    start, end = window
    return [(max(a, start), min(b, end)) for a, b in intervals if a < end and b > start]


def _busy_fraction(recorded: RecordedSteps, description: TraceDescription) -> float | None:
    wall = length(union(recorded.windows))
    if recorded.devices:
        times = [
            length(union(interval for one in calls.values() for interval in one.intervals))
            for calls in recorded.devices.values()
        ]
        return sum(times) / len(times) / wall
    if not (description.cores and description.cpu_seconds):
        return None
    return min(1.0, description.cpu_seconds * _SECOND / (wall * description.cores))


def _kind_rows(ops: Mapping[Op, Calls], steps: int, total: int) -> tuple[KindRow, ...]:
    found: dict[str, list[int]] = {}
    for op, calls in ops.items():
        one = found.setdefault(_strip_prefix(op.kind), [0, 0])
        one[0] += calls.own
        one[1] += len(calls.intervals)
    rows = [
        KindRow(kind, own / steps / _SECOND, count / steps, own / (total or 1))
        for kind, (own, count) in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _part_rows(
    ops: Mapping[Op, Calls], where: Mapping[Op, StepPart], steps: int, total: int
) -> tuple[PartRow, ...]:
    found: dict[str, list[int]] = {}
    for op, calls in ops.items():
        place = where[op]
        found.setdefault(place.part, [0, 0])[place.backward] += calls.own
    rows = [
        PartRow(
            part,
            forward / steps / _SECOND,
            backward / steps / _SECOND,
            (forward + backward) / (total or 1),
        )
        for part, (forward, backward) in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.share))


def _strip_prefix(kind: str) -> str:
    """Returns the type of an op without the prefix that TensorFlow's graph optimizations add."""
    for beginning in ("_MklNative", "_Mkl", "_"):
        if kind.startswith(beginning):
            return kind.removeprefix(beginning)
    return kind
