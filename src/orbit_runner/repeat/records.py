"""Compares what two runs recorded: settings, data, code, numerics, versions, checkpoints.

Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.compare.histories import RunDiff, common_steps, compare_runs
from orbit_runner.compare.runs import differing_values, format_value
from orbit_runner.config.declarations import path_kind
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.fingerprint import can_affect_weights
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.serialize import differences
from orbit_runner.data.fingerprint import DataFile, Fingerprint
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.data_record import find_record
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.run_reader import RunReader
from orbit_runner.utils.user_code import changed_modules

# The kinds of paths that only locate data, whose contents are compared instead.
_LOCATIONS = ("dir", "patterns")
_DESCRIPTIVE_SETTINGS = ("name", "description")
# Numerics that a setting determines, so that the difference is reported once.
_SETTING_OF = {
    "intra-op threads": "runtime.intra_op_threads",
    "XLA": "runtime.enable_xla",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """A difference between the records of two runs that can change the weights.

    Attributes:
        kind: `settings`, `data`, `code`, `replicas`, `numerics`, `versions` or `resume`.
        name: The setting, the file, the package, or what else differs.
        left: Its value in the first run, as a short text; "" if the name is enough.
        right: Its value in the second run.
    """

    kind: str
    name: str
    left: str = ""
    right: str = ""

    @property
    def values(self) -> str:
        """Both values, such as `1 and 2`; "" if there are none."""
        return f"{self.left} and {self.right}" if self.left or self.right else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedDifferences:
    """The differences between the records of two runs.

    Attributes:
        findings: What differs, settings first.
        unknown: What cannot be compared.
        parting: Where the checkpoints and losses first differ.
    """

    findings: Sequence[Finding]
    unknown: Sequence[str]
    parting: RunDiff

    @property
    def equal(self) -> bool:
        """Whether all checkpoints of the same step are equal, and there are any."""
        return bool(self.parting.compared) and self.parting.first is None


def compare_recorded(left: RecordedRun, right: RecordedRun) -> RecordedDifferences:
    """Returns the differences between the records of two runs."""
    runs = left, right
    findings = [*_settings(*runs), *_data(*runs), *_code(*runs), *_replicas(*runs)]
    findings += _numerics(*runs, {finding.name for finding in findings})
    versions = [
        {name: version for name, version in run.section("software").items() if name != "PyYAML"}
        for run in runs
    ]
    findings += _differing("versions", *versions)
    findings += _resumes(*runs)
    unknown = [f"{name}: {run.problem}" for name, run in zip("AB", runs, strict=True)
               if run.problem]  # fmt: skip
    return RecordedDifferences(
        findings=findings, unknown=unknown, parting=_compare_checkpoints(*runs)
    )


def _settings(left: RecordedRun, right: RecordedRun) -> Iterator[Finding]:
    if left.resolved is None or right.resolved is None:
        # As they are written, if they are.
        written = [left.run.settings, right.run.settings]
        pairs = differing_values(written, _DESCRIPTIVE_SETTINGS) if all(written) else {}
        for path, values in pairs.items():
            left_text, right_text = map(format_value, values)
            yield Finding(kind="settings", name=path, left=left_text, right=right_text)
        return
    configs = left.resolved.config, right.resolved.config
    for difference in differences(*configs):
        path = difference.path
        matters = any(can_affect_weights(path, config) for config in configs)
        if matters and not _is_location(path, left, right):
            yield Finding(kind="settings", name=path, left=difference.left, right=difference.right)


def _is_location(path: str, left: RecordedRun, right: RecordedRun) -> bool:
    section, _, name = path.removeprefix("task.").rpartition(".")
    return path_kind(name) in _LOCATIONS and all(
        run.data is not None and section in run.data for run in (left, right)
    )


def _data(left: RecordedRun, right: RecordedRun) -> Iterator[Finding]:
    if left.data is None or right.data is None:
        return
    for section in (name for name in left.data if name in right.data):
        if section.startswith("validation"):
            continue
        for name, texts in _files(left.data[section], right.data[section]):
            yield Finding(kind="data", name=f"{section}: {name}", left=texts[0], right=texts[1])


def _files(left: Sequence[DataFile], right: Sequence[DataFile]) -> Iterator[tuple[str, list[str]]]:
    """Yields the name of each file that differs, with a description of both."""
    digests = [[row.digest for row in rows] for rows in (left, right)]
    if all(digests[0]) and digests[0] == digests[1]:
        return  # Only the names of the files can differ.
    rows = [{row.name: row for row in rows} for rows in (left, right)]
    differing = False
    for name in {**rows[0], **rows[1]}:
        a, b = (side.get(name) for side in rows)
        if a is None or b is None or not _is_same(a, b):
            differing = True
            yield name, [_describe(row, a, b) for row in (a, b)]
    if not differing and [*rows[0]] != [*rows[1]]:
        yield "order of the files", [", ".join([*side][:3]) for side in rows]


def _is_same(left: DataFile, right: DataFile) -> bool:
    if left.digest and right.digest:
        return left.digest == right.digest
    return (left.bytes, left.files) == (right.bytes, right.files)


def _describe(row: DataFile | None, *pair: DataFile | None) -> str:
    if row is None:
        return "missing"
    if len({other.bytes for other in pair if other}) > 1:
        return f"{row.bytes:,} bytes"
    return row.digest[: row.digest.find(":") + 13] or "unknown contents"


def _code(left: RecordedRun, right: RecordedRun) -> Iterator[Finding]:
    sections = [run.section("code") for run in (left, right)]
    revisions = [{"git revision": str(code["revision"])[:12]} for code in sections
                 if code.get("revision")]  # fmt: skip
    changes = [code["changed"] for code in sections if isinstance(code.get("changed"), dict)]
    names = sorted({name for changed in changes for name in changed})
    states = [{name: _state(changed, name) for name in names} for changed in changes]
    findings = [*_differing("code", *revisions), *_differing("code", *states)]
    if not findings and left.record and right.record:
        modules = [run.code for run in (left.record, right.record)]
        for name in changed_modules(*modules):
            digests = [digests[name][:8] for digests in modules]
            finding = Finding(kind="code", name=f"module {name}", left=digests[0], right=digests[1])
            findings.append(finding)
    yield from findings


def _differing(
    kind: str,
    left: Mapping[str, object] = MappingProxyType({}),
    right: Mapping[str, object] = MappingProxyType({}),
) -> Iterator[Finding]:
    """Yields the entries that both have and that differ."""
    for name, value in left.items():
        if name in right and value != right[name]:
            yield Finding(kind=kind, name=name, left=str(value), right=str(right[name]))


def _state(changed: Mapping[str, str], name: str) -> str:
    if name not in changed:
        return "as committed"
    return f"changed ({changed[name][:8]})" if changed[name] else "changed"


def _replicas(left: RecordedRun, right: RecordedRun) -> Iterator[Finding]:
    strategies = [run.record.strategy if run.record else "" for run in (left, right)]
    # One replica has the same result under each strategy.
    counts = [text.rpartition("×")[2].strip() for text in strategies]
    if all(counts) and counts[0] != counts[1]:
        yield Finding(kind="replicas", name="replicas", left=strategies[0], right=strategies[1])
    devices = [run.section("devices") for run in (left, right)]
    gpus = [", ".join(map(str, found.get("gpus") or ())) or "CPU" for found in devices if found]
    yield from _differing("replicas", *({"devices": names} for names in gpus))


def _numerics(left: RecordedRun, right: RecordedRun, known: set[str]) -> Iterator[Finding]:
    if left.record is None or right.record is None:
        return
    versions = {*left.section("software"), *right.section("software")}
    for finding in _differing("numerics", left.record.numerics, right.record.numerics):
        if finding.name in versions or _SETTING_OF.get(finding.name) in known:
            continue
        if finding.name == "processor":  # Only the instruction sets that the other lacks.
            words = finding.left.split(), finding.right.split()
            texts = [
                " ".join(word for word in a if word not in b) or "none of these"
                for a, b in (words, words[::-1])
            ]
            finding = dataclasses.replace(finding, left=texts[0], right=texts[1])
        yield finding


def _resumes(left: RecordedRun, right: RecordedRun) -> Iterator[Finding]:
    if left.recoveries != right.recoveries:
        counts = [str(run.recoveries[-1][1]) for run in (left, right)]
        yield Finding(
            kind="resume", name="recoveries after divergence", left=counts[0], right=counts[1]
        )
    a, b = _inexact_reasons(left), _inexact_reasons(right)
    for name, own, other in (("A", a, b), ("B", b, a)):
        for reason in sorted(own - other):
            yield Finding(kind="resume", name=f"{name} is not reproducible: {reason}")


def _inexact_reasons(run: RecordedRun) -> set[str]:
    """Returns why the config of a run does not reproduce it."""
    reasons = set(run.record.inexact) if run.record else set()
    return reasons | (
        {"it was resumed with another config"} if run.history.is_overridden else set()
    )


def _compare_checkpoints(left: RecordedRun, right: RecordedRun) -> RunDiff:
    common = common_steps(left.history, right.history)
    intervals = [run.run.settings.get("trainer.summary_interval") for run in (left, right)]
    # Means over different numbers of steps cannot be compared.
    interval = intervals[0] if intervals[0] == intervals[1] else None
    return compare_runs(
        left.history,
        right.history,
        step=max(common, default=0),
        summary_interval=(interval if isinstance(interval, int) else 1) if interval else None,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """What a run directory records.

    Attributes:
        run: Its settings, and its fingerprints, losses and starts.
        resolved: The config; None if it cannot be built.
        problem: Why the config cannot be built, or "".
        record: The record of the newest checkpoint; None if there is none.
        data: The fingerprint of its data; None if it is not recorded.
        recoveries: (first step, recoveries) of each part of the run.
    """

    run: RunReader
    resolved: ResolvedConfig | None
    problem: str
    record: CheckpointRecord | None
    data: Fingerprint | None
    recoveries: list[tuple[int, int]]

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.run.path

    @property
    def history(self) -> RunReader:
        """Fingerprints, losses and starts."""
        return self.run

    def section(self, name: str) -> Mapping[str, Any]:
        """Returns a section of the last start in `run.json`; empty if it has none."""
        return self.run.section(name)


def read_recorded_run(path: Path, name: str, imports: tuple[str, ...] = ()) -> RecordedRun:
    """Returns what a run directory records.

    `name` is that of the argument, for messages. `imports` are modules to import before the config
    is built. Raises `RunnerError` if the path is no run directory.
    """
    directory = RunDirectory(path)
    if not (directory.config.exists() or directory.checkpoints.exists()):
        raise RunnerError(
            f"{name}: {path} has neither config.yaml nor checkpoints\n"
            "specify a run directory; `runner runs` lists them",
            code="not-a-run",
        )
    run = RunReader(path)
    resolved, problem = _resolve(directory, imports)
    return RecordedRun(
        run=run,
        resolved=resolved,
        problem=problem,
        record=run.newest_record,
        data=data[0] if (data := find_record(path)) else None,
        recoveries=run.log.recoveries(),
    )


def _resolve(
    directory: RunDirectory, imports: tuple[str, ...]
) -> tuple[ResolvedConfig | None, str]:
    if not directory.config.is_file():
        return None, "it has no config.yaml"
    try:
        return resolve(Request(experiment=str(directory.config), imports=imports)), ""
    except ConfigError as error:
        problem = error.problems[0]
        message = problem.message.partition("\n")[0]
        return None, f"{problem.path}: {message}"
