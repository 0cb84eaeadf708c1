"""Writes traces by hand, with times in milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orbit_runner.profiling.trace_files import (
    MARKER,
    STEPS,
    TraceDescription,
    TraceFiles,
    write_description,
)
from orbit_runner.profiling.xspace import message_class

MS = 10**9  # in picoseconds
START = "ExecutorState::ProcessAsync::Start"
DONE = "ExecutorState::ProcessAsync::Done"
# (name, start, end) or (name, start, end, stats)
Event = tuple[Any, ...]


class Plane:
    """Adds lines and events to a plane."""

    def __init__(self, xspace: Any, name: str) -> None:
        self._plane = xspace.planes.add(name=name)
        self._names: dict[str, int] = {}
        self._stats: dict[str, int] = {}

    def line(self, name: str, *events: Event) -> Plane:
        """Adds a thread or stream, which starts at 1 ms."""
        line = self._plane.lines.add(name=name, timestamp_ns=10**6)
        for title, start, end, *stats in events:
            event = line.events.add(
                metadata_id=self._id(self._names, self._plane.event_metadata, title),
                offset_ps=round((start - 1) * MS),
                duration_ps=round((end - start) * MS),
            )
            for key, value in (stats[0] if stats else {}).items():
                kind = "str_value" if isinstance(value, str) else "int64_value"
                id = self._id(self._stats, self._plane.stat_metadata, key)
                event.stats.add(metadata_id=id, **{kind: value})
        return self

    def _id(self, known: dict[str, int], table: Any, name: str) -> int:
        if name not in known:
            known[name] = len(known) + 1
            table[known[name]].name = name
        return known[name]


def steps(count: int, start: float, end: float) -> Event:
    """Returns the event with which the runner marks a number of steps."""
    return MARKER, start, end, {STEPS: count}


def fetch(start: float, end: float) -> tuple[Event, Event]:
    """Returns the start and the end of an op that gets a batch."""
    stats: dict[str, Any] = {"kernel_type": "IteratorGetNext"}
    begun = START, start, start, {**stats, "_p": int(start * 1000)}
    return begun, (DONE, end, end, {**stats, "_c": int(start * 1000)})


def new_xspace() -> Any:
    """Returns an empty `XSpace`."""
    return message_class("XSpace")()


def add_program(xspace: Any, number: int, module: str, ops: dict[str, str]) -> None:
    """Adds a program of XLA: the names of its ops, and those of the ops that they are from."""
    plane = next((one for one in xspace.planes if one.name == "/host:metadata"), None)
    if plane is None:
        plane = xspace.planes.add(name="/host:metadata")
        plane.stat_metadata[1].name = "Hlo Proto"
    program = message_class("HloProto")()
    program.hlo_module.name = module
    computation = program.hlo_module.computations.add()
    for name, origin in ops.items():
        computation.instructions.add(name=name).metadata.op_name = origin
    metadata = plane.event_metadata[number]
    metadata.name = f"{module}({number})"
    metadata.stats.add(metadata_id=1, bytes_value=program.SerializeToString())


def write_trace(
    xspace: Any, directory: Path, description: TraceDescription | None = None, time: str = "a"
) -> TraceFiles:
    """Writes a trace where TensorFlow writes it for a run directory."""
    place = directory / "train" / "plugins" / "profile" / time
    place.mkdir(parents=True)
    (place / "host.xplane.pb").write_bytes(xspace.SerializeToString())
    trace = TraceFiles(place, (place / "host.xplane.pb",))
    if description is not None:
        write_description(trace, description)
    return trace
