"""The files of a trace: TensorFlow's `HOST.xplane.pb`, and what the runner knows about the steps.

TensorFlow writes each trace to a directory that is named after the time. The runner adds a JSON
file, so that ops can be attributed to layers without building the model.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import read_json_object, write_atomically

# The event around each piece of a loop that is profiled, with the steps in it.
MARKER = "orbit_runner_steps"
FIRST = "first"
STEPS = "steps"
_TRACE = "*.xplane.pb"
_DESCRIPTION = "steps.json"
# The types of the values in the JSON file.
_TYPES: dict[str, type[object] | tuple[type[object], ...]] = {
    "experiment": str,
    "model": str,
    "layers": list,
    "optimizers": list,
    "cores": int,
    "cpu_seconds": (int, float),
}


@dataclasses.dataclass(frozen=True)
class TraceDescription:
    """What the runner knows about profiled steps.

    Attributes:
        experiment: The name of the experiment.
        model: The name of the model.
        layers: The names of its layers, each with those of the layers that contain it.
        optimizers: The names of the optimizers.
        cores: The number of processor cores that the process may use; 0 if unknown.
        cpu_seconds: The processor time that the process used during the steps; 0 if unknown.
    """

    experiment: str = ""
    model: str = ""
    layers: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    cores: int = 0
    cpu_seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class TraceFiles:
    """A trace on disk.

    Attributes:
        directory: Its directory, which is named after its time.
        hosts: Its files, one for each host.
    """

    directory: Path
    hosts: tuple[Path, ...]


def newest_trace(directory: Path) -> TraceFiles | None:
    """Returns the newest trace of a run, or in another directory; None if there is none.

    The directory may also be one that TensorBoard shows, or that of a single trace.
    """
    below = RunDirectory(directory).profiles
    places = (below, directory / below.relative_to(directory / "train"), directory.parent)
    traces = [trace for place in places[:2] for trace in _traces(place)]
    traces += [trace for trace in _traces(places[2]) if trace.directory == directory]
    return max(traces, key=_modified_time, default=None)


def require_trace(directory: Path) -> TraceFiles:
    """Returns the newest trace; raises `RunnerError` if there is none."""
    trace = newest_trace(directory)
    if trace is not None:
        return trace
    run = RunDirectory(directory)
    if not directory.is_dir():
        raise RunnerError(f"{directory} is not a directory", path="RUN", code="wrong-file-type")
    if not run.config.is_file():
        raise RunnerError(
            f"{directory} has no trace\n"
            "specify a run directory, or one with plugins/profile/TIME/HOST.xplane.pb",
            path="RUN",
            code="missing-file",
        )
    raise RunnerError(
        f"{directory} has no trace\n"
        "set trainer.profile_steps, such as [101, 120], before these steps run\n"
        f"or profile some steps of its experiment now: runner profile {run.config}",
        path="RUN",
        code="missing-file",
    )


def write_description(trace: TraceFiles, description: TraceDescription) -> None:
    """Writes the description of a trace next to it."""
    text = json.dumps(dataclasses.asdict(description), indent=2)
    write_atomically(trace.directory / _DESCRIPTION, f"{text}\n")


def read_description(trace: TraceFiles) -> TraceDescription:
    """Returns the description of a trace; an empty one if there is none or it is damaged."""
    try:
        description = read_json_object(trace.directory / _DESCRIPTION)
    except (OSError, ValueError):
        return TraceDescription()
    values: dict[str, Any] = {}
    for name, kind in _TYPES.items():
        value = description.get(name)
        if isinstance(value, kind):
            values[name] = tuple(map(str, value)) if isinstance(value, list) else value
    return TraceDescription(**values)


def _traces(place: Path) -> list[TraceFiles]:
    try:
        directories = [path for path in place.iterdir() if path.is_dir()]
    except OSError:
        return []
    traces = [
        TraceFiles(directory, tuple(sorted(directory.glob(_TRACE)))) for directory in directories
    ]
    return [trace for trace in traces if trace.hosts]


def _modified_time(trace: TraceFiles) -> float:
    return max(path.stat().st_mtime for path in trace.hosts)
