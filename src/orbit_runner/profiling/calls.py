"""The calls of ops in a trace, and when the steps ran."""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from orbit_runner.profiling.trace_files import MARKER, STEPS
from orbit_runner.profiling.xspace import CompiledPrograms, stats_of

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from orbit_runner.profiling.xspace import Stats


Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Returns disjoint intervals that cover the same time, in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        elif end > start:
            merged.append((start, end))
    return merged


def overlap(left: Sequence[Interval], right: Sequence[Interval]) -> int:
    """Returns the length of the time that is in both; each must be the result of `union`."""
    total = 0
    a, b = 0, 0
    while a < len(left) and b < len(right):
        start, end = max(left[a][0], right[b][0]), min(left[a][1], right[b][1])
        total += max(0, end - start)
        if left[a][1] < right[b][1]:
            a += 1
        else:
            b += 1
    return total


def length(intervals: Iterable[Interval]) -> int:
    """Returns the length of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def self_times(intervals: Sequence[Interval]) -> list[int]:
    """Returns the length of each interval without those inside it.

    The intervals are calls in one thread, so two of them are disjoint or one is inside the other.
    """
    order = sorted(range(len(intervals)), key=lambda n: (intervals[n][0], -intervals[n][1]))
    times = [end - start for start, end in intervals]
    around: list[int] = []
    for index in order:
        start, end = intervals[index]
        while around and intervals[around[-1]][1] <= start:
            around.pop()
        if around:
            times[around[-1]] -= min(end, intervals[around[-1]][1]) - start
        around.append(index)
    return times


# What TensorFlow's executor and the programs of XLA call their events.
_OP = re.compile(r"([^:]+):([A-Za-z_]\w*)")
_EAGER = re.compile(r"EagerLocalExecute: ([A-Za-z]\w*)")  # The name of a function begins with `__`.
_START, _DONE = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"
_HLO_OP = "hlo_op"
_PROGRAM = "program_id"
_TF_OP = "tf_op"
_STEP = "step_num"
_STREAM = "Stream"
_XLA_OPS = "XLA Ops"
_PIPELINE = "tf_data"  # how the names of the threads of tf.data begin
_DEVICE = "/device:"
# tf.data's ops that wait for a batch are named IteratorGetNext, MultiDeviceIteratorGetNext…
GET_NEXT = "GetNext"


@dataclasses.dataclass(frozen=True)
class Op:
    """An op of a graph.

    Attributes:
        name: Its name, with those of its scopes.
        kind: Its type, such as `MatMul`.
        source: `graph`; `eager` for an op that Python runs; `pipeline` for one of tf.data;
            `compiled` for one of a program of XLA that is from a graph, whose name it has; `xla`
            for one that is not, or whose origin is unknown.
    """

    name: str
    kind: str
    source: str


@dataclasses.dataclass
class Calls:
    """The calls of an op; times are in picoseconds.

    Attributes:
        intervals: When they ran.
        own: Their duration without that of calls inside them.
    """

    intervals: list[Interval] = dataclasses.field(default_factory=list)
    own: int = 0


@dataclasses.dataclass
class RecordedSteps:
    """What a trace contains about the steps; times are in picoseconds.

    Attributes:
        windows: When pieces of the loop ran.
        steps: The number of steps in them.
        host: The calls on processors by op.
        devices: The calls on each GPU or TPU by op, by the name of the device.
        fetches: When an op waited for a batch of tf.data.
    """

    windows: list[Interval] = dataclasses.field(default_factory=list)
    steps: int = 0
    host: dict[Op, Calls] = dataclasses.field(default_factory=dict)
    devices: dict[str, dict[Op, Calls]] = dataclasses.field(default_factory=dict)
    fetches: list[Interval] = dataclasses.field(default_factory=list)


def read_calls(xspace: Message) -> RecordedSteps:
    """Returns the calls during the steps. `xspace` is from `read_xspace`."""
    recorded = RecordedSteps()
    programs = CompiledPrograms(xspace)
    hosts = [plane for plane in xspace.planes if plane.name.startswith("/host:CPU")]
    for plane in hosts:
        _read_windows(plane, recorded)
    recorded.windows.sort()
    for plane in hosts:
        for line in plane.lines:
            source = "pipeline" if line.name.startswith(_PIPELINE) else "graph"
            calls_of_line = _host_calls(plane, line, recorded.windows, source, programs)
            _add_calls(recorded.host, calls_of_line)
        recorded.fetches += _fetches(plane, recorded.windows)
        if all(op.source == "pipeline" for op in recorded.host):
            for line in plane.lines:
                calls_of_line = _host_calls(plane, line, recorded.windows, "eager", programs)
                _add_calls(recorded.host, calls_of_line)
    for plane in xspace.planes:
        if plane.name.startswith(_DEVICE):
            calls: dict[Op, Calls] = {}
            for line in plane.lines:
                # Other lines repeat the same events, grouped by step or module.
                if line.name.startswith(_STREAM) or line.name == _XLA_OPS:
                    _add_calls(calls, _device_calls(plane, line, recorded.windows, programs))
            if calls:
                recorded.devices[plane.name.removeprefix(_DEVICE)] = calls
    return recorded


def _read_windows(plane: Message, recorded: RecordedSteps) -> None:
    """Adds the pieces of the loop that the runner marked, or the steps that a program marked."""
    steps = {id for id, metadata in plane.stat_metadata.items() if metadata.name == _STEP}
    others: list[Interval] = []
    for line in plane.lines:
        for event in line.events:
            if plane.event_metadata[event.metadata_id].name == MARKER:
                # An error ended the piece if it has no number of steps.
                if count := stats_of(plane, event.stats).get(STEPS, 0):
                    recorded.windows.append(_interval(line, event))
                    recorded.steps += count
            elif steps and any(stat.metadata_id in steps for stat in event.stats):
                others.append(_interval(line, event))
    if not recorded.steps:
        recorded.windows = others
        recorded.steps = len(others)


OpCall = tuple[Op, Interval]


def _add_calls(calls: dict[Op, Calls], op_calls: Iterator[OpCall]) -> None:
    """Adds the calls of one thread or stream."""
    named = list(op_calls)
    times = self_times([interval for _, interval in named])
    for (op, interval), own in zip(named, times, strict=True):
        calls_of_op = calls.setdefault(op, Calls())
        calls_of_op.intervals.append(interval)
        calls_of_op.own += own


def _host_calls(
    plane: Message,
    line: Message,
    windows: Sequence[Interval],
    source: str,
    programs: CompiledPrograms,
) -> Iterator[OpCall]:
    program = next(
        (id for id, metadata in plane.stat_metadata.items() if metadata.name == _PROGRAM), None
    )
    ops: dict[tuple[int, int], Op | None] = {}
    for event in line.events:
        # Ops of different programs may have the same name.
        numbers = (stat.int64_value or stat.uint64_value for stat in event.stats
                   if stat.metadata_id == program)  # fmt: skip
        key = event.metadata_id, next(numbers, 0)
        if key not in ops:
            ops[key] = _parse_op(plane, event, source, programs)
        op = ops[key]
        interval = _interval(line, event)
        if op is not None and _is_inside(interval, windows):
            yield op, interval


def _parse_op(plane: Message, event: Message, source: str, programs: CompiledPrograms) -> Op | None:
    """Returns the op of an event; None if it is no call of an op."""
    name = plane.event_metadata[event.metadata_id].name
    if source == "eager":
        match = _EAGER.fullmatch(name)
        return Op(match[1], match[1], source) if match else None
    if match := _OP.fullmatch(name):
        return Op(match[1], match[2], source)
    stats = stats_of(plane, event.stats)
    return _compiled_op(name, stats, programs) if _HLO_OP in stats else None


def _compiled_op(hlo_op: str, stats: Stats, programs: CompiledPrograms) -> Op:
    name = programs.op_name(hlo_op, stats)
    return Op(name or hlo_op, _kind_of_hlo(hlo_op), "compiled" if name else "xla")


def _device_calls(
    plane: Message, line: Message, windows: Sequence[Interval], programs: CompiledPrograms
) -> Iterator[OpCall]:
    for event in line.events:
        interval = _interval(line, event)
        if not _is_inside(interval, windows):
            continue
        metadata = plane.event_metadata[event.metadata_id]
        stats = {**stats_of(plane, metadata.stats), **stats_of(plane, event.stats)}
        yield _op_of_kernel(metadata.display_name or metadata.name, stats, programs), interval


def _op_of_kernel(kernel: str, stats: Stats, programs: CompiledPrograms) -> Op:
    """Returns the op that launched a kernel; the kernel itself if that is unknown."""
    if hlo_op := str(stats.get(_HLO_OP) or ""):
        compiled = _compiled_op(hlo_op, stats, programs)
        if compiled.source == "compiled":
            return compiled
    op = str(stats.get(_TF_OP) or "")
    hlo = str(stats.get(_HLO_OP) or "")
    if match := _OP.fullmatch(op):
        return Op(match[1], _kind_of_hlo(hlo) if hlo else match[2], "graph")
    kind = _kind_of_hlo(hlo) if hlo else kernel
    return Op(op.rstrip(":") or hlo or kernel, kind, "graph" if op else "xla")


def _kind_of_hlo(name: str) -> str:
    """Returns the name of an op of a compiled program without its number."""
    return re.sub(r"(\.\d+)+$", "", name.lstrip("%"))


def _fetches(plane: Message, windows: Sequence[Interval]) -> Iterator[Interval]:
    """Yields when ops waited for batches: from their start until they are done, in any thread."""
    starts: dict[object, int] = {}
    ends: dict[object, int] = {}
    names = {id: metadata.name for id, metadata in plane.event_metadata.items()}
    kinds = {id for id, name in names.items() if name in (_START, _DONE)}
    for line in plane.lines:
        for event in line.events:
            if event.metadata_id not in kinds:
                continue
            stats = stats_of(plane, event.stats)
            if GET_NEXT not in str(stats.get("kernel_type")):
                continue
            # The profiler gives both ends of an asynchronous call the same number.
            if names[event.metadata_id] == _START:
                starts[stats.get("_p")] = _interval(line, event)[0]
            else:
                ends[stats.get("_c")] = _interval(line, event)[0]
    for key, start in starts.items():
        if key in ends and _is_inside((start, ends[key]), windows):
            yield start, ends[key]


def _interval(line: Message, event: Message) -> Interval:
    start = line.timestamp_ns * 1000 + event.offset_ps
    return start, start + event.duration_ps


def _is_inside(interval: Interval, windows: Sequence[Interval]) -> bool:
    place = bisect.bisect_right(windows, (interval[0], float("inf"))) - 1
    return place >= 0 and interval[0] < windows[place][1]
