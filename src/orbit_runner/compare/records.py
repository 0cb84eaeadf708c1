"""Compares what two runs recorded: settings, data, code, numerics, versions, checkpoints.

Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orbit_runner.checkpoint.latest_checkpoint import current_damage
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.compare.histories import RunDiff, compare_runs
from orbit_runner.compare.runs import differing_values, format_value
from orbit_runner.config.declarations import path_kind
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.fingerprint import can_affect_weights
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.serialize import differences
from orbit_runner.data.fingerprint import DataFile, Fingerprint
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.run_directory.config import read_settings
from orbit_runner.run_directory.data_record import find_record
from orbit_runner.run_directory.history import RunHistory, common_steps, read_history
from orbit_runner.run_directory.metric_records import read_recoveries
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.run_summary import read_summary
from orbit_runner.utils.user_code import changed_modules

# The kinds of paths that only locate data, whose contents are compared instead.
_LOCATIONS = ("dir", "patterns")
_DESCRIPTIVE_SETTINGS = ("name", "description")
# Numerics that a setting determines, so that the difference is reported once.
_SETTING_OF = {
    "intra-op threads": "runtime.intra_op_threads",
    "XLA": "runtime.enable_xla",
}


# From the most likely cause to the least likely.
KINDS = ("checkpoint", "settings", "data", "code", "replicas", "numerics", "versions", "resume")
_MOST_FILES = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """A difference between the records of two runs.

    Attributes:
        kind: One of `KINDS`.
        name: The setting, the file, the package, or what else differs.
        left: Its value in the first run, as a short text; "" if the name is enough.
        right: Its value in the second run.
        can_change_weights: Whether the weights can depend on it.
    """

    kind: str
    name: str
    left: str = ""
    right: str = ""
    can_change_weights: bool = True

    @property
    def values(self) -> str:
        """Both values, such as `1 and 2`; "" if there are none."""
        return f"{self.left} and {self.right}" if self.left or self.right else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedDifferences:
    """The differences between the records of two runs.

    Attributes:
        findings: What differs, the most likely cause first.
        unknown: What cannot be compared because a run does not record it.
        parting: Where the checkpoints and losses first differ.
    """

    findings: Sequence[Finding]
    unknown: Sequence[str]
    parting: RunDiff

    @property
    def equal(self) -> bool:
        """Whether all checkpoints of the same step are equal, and there are any."""
        edited = any(finding.kind == "checkpoint" for finding in self.findings)
        return bool(self.parting.compared) and self.parting.first is None and not edited


def compare_recorded(left: RecordedRun, right: RecordedRun) -> RecordedDifferences:
    """Returns the differences between the records of two runs."""
    runs = left, right
    findings = [*_edits("A", left), *_edits("B", right), *_settings(*runs), *_data(*runs)]
    findings += [*_code(*runs), *_replicas(*runs)]
    findings += _numerics(*runs, {finding.name for finding in findings})
    findings += [*_versions(*runs), *_resumes(*runs)]
    findings.sort(key=lambda finding: KINDS.index(finding.kind))
    return RecordedDifferences(
        findings=findings, unknown=[*_unknown(left, right)], parting=_compare_checkpoints(*runs)
    )


def _edits(name: str, run: RecordedRun) -> Iterator[Finding]:
    for step, what in run.edits.items():
        yield Finding(
            kind="checkpoint",
            name=f"the checkpoint of step {step} of {name} was changed after it was saved: {what}",
        )


def _settings(left: RecordedRun, right: RecordedRun) -> Iterator[Finding]:
    if left.resolved is None or right.resolved is None:
        # As they are written, if they are.
        written = [left.settings, right.settings]
        for path, values in differing_values(written).items() if all(written) else ():
            texts = [format_value(value) for value in values]
            matters = path not in _DESCRIPTIVE_SETTINGS
            yield Finding(
                kind="settings",
                name=path,
                left=texts[0],
                right=texts[1],
                can_change_weights=matters,
            )
        return
    configs = left.resolved.config, right.resolved.config
    for difference in differences(*configs):
        matters = any(can_affect_weights(difference.path, config) for config in configs)
        yield Finding(
            kind="settings",
            name=difference.path,
            left=difference.left,
            right=difference.right,
            can_change_weights=matters and not _is_location(difference.path, left, right),
        )


def _is_location(path: str, left: RecordedRun, right: RecordedRun) -> bool:
    section, _, name = path.removeprefix("task.").rpartition(".")
    return path_kind(name) in _LOCATIONS and all(
        run.data is not None and section in run.data for run in (left, right)
    )


def _data(left: RecordedRun, right: RecordedRun) -> Iterator[Finding]:
    if left.data is None or right.data is None:
        return
    for section in (name for name in left.data if name in right.data):
        for name, texts in _files(left.data[section], right.data[section]):
            yield Finding(
                kind="data",
                name=f"{section}: {name}",
                left=texts[0],
                right=texts[1],
                can_change_weights=not section.startswith("validation"),
            )


def _files(left: Sequence[DataFile], right: Sequence[DataFile]) -> Iterator[tuple[str, list[str]]]:
    """Yields the name of each file that differs, with a description of both."""
    digests = [[row.digest for row in rows] for rows in (left, right)]
    if all(digests[0]) and digests[0] == digests[1]:
        return  # Only the names of the files can differ.
    rows = [{row.name: row for row in rows} for rows in (left, right)]
    if len(left) == len(right) == 1:
        name = " and ".join(dict.fromkeys([left[0].name, right[0].name]))
        rows = [{name: left[0]}, {name: right[0]}]
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
    yield from findings[:_MOST_FILES]
    if findings[_MOST_FILES:]:
        yield Finding(kind="code", name=f"{len(findings) - _MOST_FILES} more files")


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


def _versions(left: RecordedRun, right: RecordedRun) -> Iterator[Finding]:
    for finding in _differing("versions", left.section("software"), right.section("software")):
        yield dataclasses.replace(finding, can_change_weights=finding.name != "PyYAML")


def _resumes(left: RecordedRun, right: RecordedRun) -> Iterator[Finding]:
    if left.recoveries != right.recoveries:
        counts = [str(run.recoveries[-1][1]) for run in (left, right)]
        yield Finding(
            kind="resume", name="recoveries after divergence", left=counts[0], right=counts[1]
        )
    left_reasons, right_reasons = _inexact_reasons(left), _inexact_reasons(right)
    for reason in sorted(left_reasons - right_reasons):
        yield Finding(kind="resume", name=f"A is not reproducible: {reason}")
    for reason in sorted(right_reasons - left_reasons):
        yield Finding(kind="resume", name=f"B is not reproducible: {reason}")


def _inexact_reasons(run: RecordedRun) -> set[str]:
    """Returns why the config of a run does not reproduce it."""
    reasons = set(run.record.inexact) if run.record else set()
    return reasons | (
        {"it was resumed with another config"} if run.history.is_overridden else set()
    )


def _unknown(left: RecordedRun, right: RecordedRun) -> Iterator[str]:
    for name, run in (("A", left), ("B", right)):
        if not run.settings:
            yield f"the settings of {name}: {run.problem}"
        elif run.problem:
            yield f"which settings of {name} can change its weights: {run.problem}"
        if run.data is None:
            yield f"the data of {name}: it has no data.json that can be read"
        if not isinstance(run.section("code").get("revision"), str):
            yield f"the code of {name}: run.json has no git revision"
        if not run.section("software"):
            yield f"the package versions of {name}: run.json has none"
        if run.record is None:
            yield f"the numerics of {name}: no checkpoint has a record"


def _compare_checkpoints(left: RecordedRun, right: RecordedRun) -> RunDiff:
    common = common_steps(left.history, right.history)
    intervals = [run.settings.get("trainer.summary_interval") for run in (left, right)]
    same = intervals[0] == intervals[1] and isinstance(intervals[0], int)
    # Means over different numbers of steps cannot be compared.
    histories = [
        run.history if same else dataclasses.replace(run.history, losses={})
        for run in (left, right)
    ]
    return compare_runs(
        histories[0],
        histories[1],
        step=max(common, default=0),
        summary_interval=intervals[0] if same and intervals[0] else 1,
        reads_tensors=False,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """What a run directory records.

    Attributes:
        path: The run directory.
        step: The last step that the run reached.
        history: Fingerprints, losses and starts.
        settings: The settings in `config.yaml` by dotted path.
        resolved: The config; None if it cannot be built.
        problem: Why the config cannot be built, or "".
        record: The record of the newest checkpoint; None if there is none.
        data: The fingerprint of its data; None if it is not recorded.
        recoveries: (first step, recoveries) of each part of the run.
        edits: What does not match the record of a checkpoint, by step.
    """

    path: Path
    step: int
    history: RunHistory
    settings: Mapping[str, Any]
    resolved: ResolvedConfig | None
    problem: str
    record: CheckpointRecord | None
    data: Fingerprint | None
    recoveries: list[tuple[int, int]]
    edits: Mapping[int, str]

    def section(self, name: str) -> Mapping[str, Any]:
        """Returns a section of the last start in `run.json`; empty if it has none."""
        section = self.history.attempts[-1].get(name) if self.history.attempts else None
        return section if isinstance(section, dict) else {}


def read_recorded_run(path: Path, name: str, imports: tuple[str, ...] = ()) -> RecordedRun:
    """Returns what a run directory records.

    `name` is that of the argument, for messages. `imports` are modules to import before the config
    is built. Raises `RunnerError` if the path is no run directory.
    """
    directory = RunDirectory(path)
    if not path.is_dir():
        raise RunnerError(
            f"{name}: {path} is not a directory\n`runner runs` lists runs", code="wrong-file-type"
        )
    if not (directory.config.exists() or directory.checkpoints.exists()):
        raise RunnerError(
            f"{name}: {path} has neither config.yaml nor checkpoints\n"
            "specify a run directory, such as runs/digits/a",
            code="not-a-run",
        )
    history = read_history(path)
    resolved, problem = _resolve(directory, imports)
    return RecordedRun(
        path=path,
        step=max([read_summary(path).step, *history.fingerprints]),
        history=history,
        settings=read_settings(path),
        resolved=resolved,
        problem=problem,
        record=next((record for _, record in history.checkpoints.records()), None),
        data=_recorded_data(path),
        recoveries=read_recoveries(directory.metrics),
        edits=dict(_find_edits(history)),
    )


def _resolve(
    directory: RunDirectory, imports: tuple[str, ...]
) -> tuple[ResolvedConfig | None, str]:
    if not directory.config.is_file():
        return None, "it has no config.yaml"
    try:
        return resolve(Request(experiment=str(directory.config), imports=imports)), ""
    except ConfigError as error:
        problem = error.problems[0] if error.problems else None
        if problem is None:
            return None, first_line(error)
        message = problem.message.partition("\n")[0]
        return None, f"{problem.path}: {message}" if problem.path else message


def _recorded_data(path: Path) -> Fingerprint | None:
    record = find_record(path)
    return None if record is None else record[0]


def _find_edits(history: RunHistory) -> Iterator[tuple[int, str]]:
    """Yields the checkpoints whose files or fingerprints are not those that were recorded."""
    checkpoints = history.checkpoints
    for step in checkpoints.steps():
        damage = current_damage(checkpoints, step)
        if damage is None or (damage and checkpoints.is_unfinished(step)):
            continue
        if damage:
            yield step, damage
            continue
        record = checkpoints.record(step)
        trail = history.fingerprints.get(step)
        if record is not None and trail is not None and record.weights != trail.weights:
            yield (
                step,
                f"its record says that the weights are {record.weights[:12]}, and "
                f"fingerprints.jsonl that they are {trail.weights[:12]}",
            )
