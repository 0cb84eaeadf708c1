"""Computes from a trace where the time of a step goes: ops, layers, and waiting for input."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from orbit_runner.errors import RunnerError
from orbit_runner.profiling.calls import (
    GET_NEXT,
    Calls,
    Interval,
    Op,
    RecordedSteps,
    length,
    overlap,
    read_calls,
    union,
)
from orbit_runner.profiling.trace_files import (
    TraceDescription,
    TraceFiles,
    read_description,
    require_trace,
)
from orbit_runner.profiling.xspace import read_xspace

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

    LayerTree: TypeAlias = dict[str, "LayerTree"]


INPUT = "input"
PIPELINE = "input pipeline (tf.data)"
LOSS = "loss"
OPTIMIZER = "optimizer"
REDUCTION = "reduction over replicas"
COMPILED = "programs of XLA"
OTHERS = "metrics and others"

_TAPE = "gradient_tape"
_BATCHES = "make_batches"  # The scope of what makes batches in a compiled program.
_NAMED = ("graph", "compiled")  # The sources of ops whose names have scopes.
# Parts of a name that TensorFlow adds when it inlines loops and functions, and for replicas.
_LOOP = re.compile(r"while(_\d+)?|body|cond|_\d+|(Stateful)?PartitionedCall(_\d+)?|replica_\d+")
_CALL = re.compile(r"PartitionedCall(_\d+)?")
_NUMBER = re.compile(r"_\d+$")
_UPDATES = ("ResourceApply", "ResourceSparseApply")
_REDUCTIONS = ("Collective", "Nccl")


@dataclasses.dataclass(frozen=True)
class StepPart:
    """The part of a step that an op belongs to.

    Attributes:
        part: The name of a layer, or one of the constants of this module.
        backward: Whether the op is one of the backward pass.
    """

    part: str
    backward: bool = False


class OpAttribution:
    """Attributes the ops of a trace."""

    def __init__(self, description: TraceDescription, ops: Iterable[Op], *, fetches: bool) -> None:
        """`fetches` is whether batches come from tf.data, and not from ops of the same graph."""
        named = [(op.source, op.name.split("/")) for op in ops if op.source in _NAMED]
        backward = [parts for source, parts in named if source == "graph" and _TAPE in parts]
        bare = [_strip_loops(parts) for _, parts in named if _TAPE in parts]
        self._model = description.model or _guess_model(bare)
        self._fetches = fetches
        self._layers = _layer_tree(description.layers)
        self._optimizers = {name.lower() for name in description.optimizers}
        self._loop = _common_prefix([parts[: parts.index(_TAPE)] for parts in backward])
        # What the tape differentiates outside the model is the loss.
        self._loss = {parts[1] for parts in bare if len(parts) > 2 and not self._layer(parts)}

    def attribute(self, op: Op) -> StepPart:
        """Returns the place of an op."""
        if op.source not in _NAMED:
            of_eager = INPUT if GET_NEXT in op.kind else OTHERS
            return StepPart({"pipeline": PIPELINE, "xla": COMPILED}.get(op.source, of_eager))
        if op.kind.startswith(_REDUCTIONS):
            return StepPart(REDUCTION)
        parts = op.name.split("/")
        if _BATCHES in parts or (op.source == "graph" and self._makes_batches(parts)):
            return StepPart(INPUT)
        parts = _strip_loops(parts)
        backward = _TAPE in parts
        if not backward and (self._is_update(parts) or parts[-1].startswith(_UPDATES)):
            return StepPart(OPTIMIZER)
        if layer := self._layer(parts):
            return StepPart(layer, backward)
        if parts[backward] in self._loss:
            return StepPart(LOSS, backward)
        return StepPart(OTHERS, backward)

    def _makes_batches(self, parts: Sequence[str]) -> bool:
        """Returns whether an op is outside the loop over steps, in a graph that makes batches."""
        if self._fetches or self._layer(_strip_loops(parts)):
            return False
        if self._loop:
            return list(parts[: len(self._loop)]) != self._loop
        return any(_CALL.fullmatch(part) for part in parts)

    def _is_update(self, parts: Sequence[str]) -> bool:
        return any(_NUMBER.sub("", part).lower() in self._optimizers for part in parts[:-1])

    def _layer(self, parts: Sequence[str]) -> str:
        """Returns the layer, the model for an op between its layers, or "" if it has neither."""
        scopes = [part for part in parts[:-1] if part != _TAPE]
        inside = next((n for n, part in enumerate(scopes) if _is_scope_of(part, self._model)), None)
        if inside is None:
            # The task calls layers without the model around them.
            known = scopes and _find_child(self._layers, scopes[0])
            return "/".join(_layer_path(self._layers, scopes)) if known else ""
        layer_path = _layer_path(self._layers, scopes[inside + 1 :])
        if not self._layers:  # The trace is not from the runner.
            layer_path = scopes[inside + 1 : inside + 2]
        return "/".join(layer_path) or self._model


def _layer_tree(paths: Iterable[str]) -> LayerTree:
    """Returns layers as nested dicts."""
    root: LayerTree = {}
    for path in paths:
        node = root
        for name in path.split("/"):
            node = node.setdefault(name, {})
    return root


def _layer_path(layers: LayerTree, scopes: Sequence[str]) -> list[str]:
    """Returns the names of the layers among scopes, from the outside to the inside."""
    names = []
    for scope in scopes:
        if name := _find_child(layers, scope):
            layers = layers[name]
            names.append(name)
    return names


def _find_child(layers: LayerTree, scope: str) -> str:
    # TensorFlow appends a number to a name that is in use.
    bare = _NUMBER.sub("", scope)
    return scope if scope in layers else bare if bare in layers else ""


def _guess_model(backward: Iterable[Sequence[str]]) -> str:
    """Returns the outermost scope with the most backward ops, in a trace of another program."""
    counts = collections.Counter(parts[1] for parts in backward if len(parts) > 3)
    return counts.most_common(1)[0][0] if counts else ""


def _is_scope_of(scope: str, name: str) -> bool:
    return bool(name) and (scope == name or _NUMBER.sub("", scope) == name)


def _strip_loops(parts: Sequence[str]) -> list[str]:
    """Returns a name without the parts that loops and functions add."""
    return [part for part in parts[:-1] if not _LOOP.fullmatch(part)] + list(parts[-1:])


def _common_prefix(names: Sequence[Sequence[str]]) -> list[str]:
    """Returns the longest common beginning."""
    if not names:
        return []
    shortest = min(names, key=len)
    count = next(
        (n for n, part in enumerate(shortest) if any(name[n] != part for name in names)),
        len(shortest),
    )
    return list(shortest[:count])


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

    def as_dict(self) -> JsonObject:
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
            "tf.profiler.experimental.Trace('train', step_num=…)",
            code="empty-data",
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
    merged: dict[Op, Calls] = {}
    for ops in devices:
        for op, calls in ops.items():
            total = merged.setdefault(op, Calls())
            total.intervals += calls.intervals
            total.own += calls.own
    return merged


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
    waits = [*recorded.fetches]
    works = []
    for op, calls in recorded.host.items():
        if where[op].part == INPUT:
            waits += calls.intervals
    for op, calls in ops.items():
        if where[op].part != INPUT and op.source != "pipeline":
            works += calls.intervals
    busy = union(works)
    waiting = union(waits)
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
            length(union(interval for calls in ops.values() for interval in calls.intervals))
            for ops in recorded.devices.values()
        ]
        return sum(times) / len(times) / wall
    if not (description.cores and description.cpu_seconds):
        return None
    return min(1.0, description.cpu_seconds * _SECOND / (wall * description.cores))


def _kind_rows(ops: Mapping[Op, Calls], steps: int, total: int) -> tuple[KindRow, ...]:
    by_kind: dict[str, list[int]] = {}
    for op, calls in ops.items():
        sums = by_kind.setdefault(_strip_prefix(op.kind), [0, 0])
        sums[0] += calls.own
        sums[1] += len(calls.intervals)
    rows = [
        KindRow(kind, own / steps / _SECOND, count / steps, own / (total or 1))
        for kind, (own, count) in by_kind.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _part_rows(
    ops: Mapping[Op, Calls], where: Mapping[Op, StepPart], steps: int, total: int
) -> tuple[PartRow, ...]:
    by_part: dict[str, list[int]] = {}
    for op, calls in ops.items():
        place = where[op]
        by_part.setdefault(place.part, [0, 0])[place.backward] += calls.own
    rows = [
        PartRow(
            part,
            forward / steps / _SECOND,
            backward / steps / _SECOND,
            (forward + backward) / (total or 1),
        )
        for part, (forward, backward) in by_part.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.share))


def _strip_prefix(kind: str) -> str:
    """Returns the type of an op without the prefix that TensorFlow's graph optimizations add."""
    for beginning in ("_MklNative", "_Mkl", "_"):
        if kind.startswith(beginning):
            return kind.removeprefix(beginning)
    return kind
