"""Compares what two runs recorded: settings, data, code, numerics, versions, checkpoints.

Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orbit_runner.audit.run_diff import RunDiff, compare_runs
from orbit_runner.config.declarations import path_kind
from orbit_runner.config.fingerprint import can_affect_weights
from orbit_runner.config.serialize import differences
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.differences.code_changes import code_findings, module_findings
from orbit_runner.differences.findings import Finding
from orbit_runner.differences.recorded_run import RecordedRun
from orbit_runner.reporting.comparison import format_value

# The kinds of paths that only locate data, whose contents are compared instead.
_LOCATIONS = ("dir", "patterns")
_DESCRIPTIVE_SETTINGS = ("name", "description")
# Numerics that a setting determines, so that the difference is reported once.
_SETTING_OF = {
    "intra-op threads": "runtime.intra_op_threads",
    "XLA": "runtime.enable_xla",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedDifferences:
    """The differences between the records of two runs.

    Attributes:
        findings: What differs.
        unknown: What cannot be compared because a run does not record it.
        parting: Where the checkpoints and losses first differ.
    """

    findings: Sequence[Finding]
    unknown: Sequence[str]
    parting: RunDiff

    @property
    def equal(self) -> bool:
        """Whether all checkpoints of the same step are equal, and there are any."""
        edited = any(one.kind == "checkpoint" for one in self.findings)
        return bool(self.parting.compared) and self.parting.first is None and not edited

    @property
    def weights_equal(self) -> bool:
        """Whether the weights of all checkpoints of the same step are equal."""
        return bool(self.parting.compared) and self.parting.first_weights is None


def compare_recorded(left: RecordedRun, right: RecordedRun) -> RecordedDifferences:
    """Returns the differences between the records of two runs."""
    runs = left, right
    findings = [
        *_edits("A", left),
        *_edits("B", right),
        *_settings(*runs),
        *_data(*runs),
        *code_findings(_code(left), _code(right), (left.path, right.path)),
        *_replicas(*runs),
    ]
    if left.record and right.record and not any(one.kind == "code" for one in findings):
        findings += module_findings(left.record.code, right.record.code)
    findings += _numerics(*runs, {one.name for one in findings})
    findings += [*_versions(*runs), *_resumes(*runs)]
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
        yield from _written_settings(left.settings, right.settings)
        return
    configs = left.resolved.config, right.resolved.config
    for found in differences(*configs):
        matters = any(can_affect_weights(found.path, config) for config in configs)
        yield Finding(
            kind="settings",
            name=found.path,
            left=found.left,
            right=found.right,
            can_change_weights=matters and not _is_location(found.path, left, right),
        )


def _written_settings(left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields the differences of two `config.yaml` from which no config can be built."""
    if not left or not right:
        return
    for path in dict.fromkeys([*left, *right]):
        values = left.get(path), right.get(path)
        if values[0] != values[1]:
            yield Finding(
                kind="settings",
                name=path,
                left=format_value(values[0]),
                right=format_value(values[1]),
                can_change_weights=path not in _DESCRIPTIVE_SETTINGS,
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
    if len(left) == len(right) == 1:
        name = " and ".join(dict.fromkeys([left[0].name, right[0].name]))
        pairs: dict[str, list[DataFile | None]] = {name: [left[0], right[0]]}
    else:
        rows = [{row.name: row for row in rows} for rows in (left, right)]
        pairs = {name: [one.get(name) for one in rows] for name in {**rows[0], **rows[1]}}
    differing = False
    for name, (a, b) in pairs.items():
        if a is None or b is None or not _is_same(a, b):
            differing = True
            yield name, [_describe(one, a, b) for one in (a, b)]
    if not differing and [*pairs] and [row.name for row in left] != [row.name for row in right]:
        yield "order of the files", [_names(left), _names(right)]


def _is_same(left: DataFile, right: DataFile) -> bool:
    if left.digest and right.digest:
        return left.digest == right.digest
    return (left.bytes, left.files) == (right.bytes, right.files)


def _describe(row: DataFile | None, *pair: DataFile | None) -> str:
    if row is None:
        return "missing"
    if len({one.bytes for one in pair if one}) > 1:
        return f"{row.bytes:,} bytes"
    return row.digest[: row.digest.find(":") + 13] or "unknown contents"


def _names(rows: Sequence[DataFile]) -> str:
    return ", ".join(row.name for row in rows[:3]) + (", …" if rows[3:] else "")


def _code(run: RecordedRun) -> Mapping[str, Any]:
    found = run.last_start.get("code")
    return found if isinstance(found, dict) else {}


def _replicas(left: RecordedRun, right: RecordedRun) -> Iterator[Finding]:
    strategies = [run.record.strategy if run.record else "" for run in (left, right)]
    # One replica has the same result under each strategy.
    counts = [text.rpartition("×")[2].strip() for text in strategies]
    if all(counts) and counts[0] != counts[1]:
        yield Finding(kind="replicas", name="replicas", left=strategies[0], right=strategies[1])
    devices = [_gpus(run) for run in (left, right)]
    if devices[0] != devices[1] and None not in devices:
        yield Finding(kind="replicas", name="devices", left=str(devices[0]), right=str(devices[1]))


def _gpus(run: RecordedRun) -> str | None:
    found = run.last_start.get("devices")
    if not isinstance(found, dict):
        return None
    return ", ".join(map(str, found.get("gpus") or ())) or "CPU"


def _numerics(left: RecordedRun, right: RecordedRun, known: set[str]) -> Iterator[Finding]:
    if left.record is None or right.record is None:
        return
    before, now = left.record.numerics, right.record.numerics
    versions = {*_software(left), *_software(right)}
    for name in before:
        if name in now and before[name] != now[name] and name not in versions:
            if _SETTING_OF.get(name) in known:
                continue
            values = _drop_common_words([before[name], now[name]], name)
            yield Finding(kind="numerics", name=name, left=values[0], right=values[1])


def _drop_common_words(values: list[str], name: str) -> list[str]:
    """Returns two values; of processors only the instruction sets that the other one lacks."""
    if name != "processor":
        return values
    words = [value.split() for value in values]
    pairs = itertools.permutations(words)
    return [" ".join(w for w in a if w not in b) or "none of these" for a, b in pairs]


def _software(run: RecordedRun) -> Mapping[str, Any]:
    found = run.last_start.get("software")
    return found if isinstance(found, dict) else {}


def _versions(left: RecordedRun, right: RecordedRun) -> Iterator[Finding]:
    before, now = _software(left), _software(right)
    for name in before:
        if name in now and before[name] != now[name]:
            yield Finding(
                kind="versions",
                name=name,
                left=str(before[name]),
                right=str(now[name]),
                can_change_weights=name != "PyYAML",
            )


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
    found = set(run.record.inexact) if run.record else set()
    return found | ({"it was resumed with another config"} if run.history.is_overridden else set())


def _unknown(left: RecordedRun, right: RecordedRun) -> Iterator[str]:
    for name, run in (("A", left), ("B", right)):
        if not run.settings:
            yield f"the settings of {name}: {run.problem}"
        elif run.problem:
            yield f"which settings of {name} can change its weights: {run.problem}"
        if run.data is None:
            yield f"the data of {name}: it has no data.json that can be read"
        if not isinstance(_code(run).get("revision"), str):
            yield f"the code of {name}: run.json has no git revision"
        if not _software(run):
            yield f"the package versions of {name}: run.json has none"
        if run.record is None:
            yield f"the numerics of {name}: no checkpoint has a record"


def _compare_checkpoints(left: RecordedRun, right: RecordedRun) -> RunDiff:
    common = {*left.history.fingerprints} & {*right.history.fingerprints}
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
