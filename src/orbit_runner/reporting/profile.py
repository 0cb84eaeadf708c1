"""A profile of training steps: where their time goes. Does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence

from orbit_runner.errors import format_count
from orbit_runner.profiling.profile import MUCH_WAIT, SOME_WAIT, KindRow, PartRow, Profile
from orbit_runner.reporting.document import Section, Table, Text
from orbit_runner.reporting.numbers import short_number

_NUMBERS = (1, 2, 3)  # Columns of both tables.
_PIPELINE_ADVICE = (
    "if the dataset fits in memory, try task.train_data.on_device=true, which needs no pipeline",
    "if cores are idle, raise runtime.dataset_num_private_threads, or prefetch more batches: "
    "task.train_data.prefetch_buffer_size",
    "otherwise, make batches on other machines: runtime.tf_data_service",
)
_GRAPH_ADVICE = (
    "profile more steps: a few steps need only a part of the batches that are made at once",
    "try task.train_data.on_device=false, which makes batches in a pipeline, or less augmentation",
)


def profile_sections(profile: Profile, top: int) -> list[Section]:
    """Returns the sections of a profile. `top` is the number of rows of each table."""
    advice = [Text(f"  {text}") for text in _advice(profile)]
    return [
        Section("", [Text(verdict(profile)), *advice]),
        Section(
            _kind_title(profile),
            [kind_table(profile, top) if profile.kinds else Text("no op ran")],
        ),
        Section("layers and other parts of a step: the same time", [part_table(profile, top)]),
    ]


def verdict(profile: Profile) -> str:
    """Returns one sentence: how long a step takes, and whether the input limits it."""
    share = profile.wait_share
    result = (
        "the input does not limit training"
        if share < SOME_WAIT
        else "the input limits training a little"
        if share < MUCH_WAIT
        else "the input limits training"
    )
    step = _milliseconds(profile.step_seconds)
    wait = _milliseconds(profile.wait_seconds)
    return f"A step takes {step} ms; {wait} ms of it ({share:.1%}) wait for input: {result}."


def _advice(profile: Profile) -> Sequence[str]:
    """Returns what to try if the input limits training."""
    if profile.wait_share < SOME_WAIT:
        return ()
    return _PIPELINE_ADVICE if profile.pipeline else _GRAPH_ADVICE


def _kind_title(profile: Profile) -> str:
    over = "streams" if profile.devices else "threads"
    count = format_count(profile.steps, "step")
    total = _milliseconds(profile.op_seconds)
    return f"ops by type: {total} ms per step, summed over {over}; {count}{_busy_text(profile)}"


def kind_table(profile: Profile, top: int) -> Table:
    """Returns the table of ops: the `top` first ones, and the others together."""
    shown, rest = profile.kinds[:top], profile.kinds[top:]
    if rest:
        other = KindRow(
            f"{len(rest)} others",
            sum(row.seconds for row in rest),
            sum(row.calls for row in rest),
            sum(row.share for row in rest),
        )
        shown = (*shown, other)
    rows = [
        (row.kind, _table_ms(row.seconds), f"{row.share:.1%}", short_number(row.calls))
        for row in shown
    ]
    return Table(rows, ("op", "ms per step", "share", "calls per step"), _NUMBERS, fits=True)


def part_table(profile: Profile, top: int) -> Table:
    """Returns the table of layers: the `top` first ones, and the others together."""
    shown, rest = profile.parts[:top], profile.parts[top:]
    if rest:
        other = PartRow(
            f"{len(rest)} others",
            sum(row.forward for row in rest),
            sum(row.backward for row in rest),
            sum(row.share for row in rest),
        )
        shown = (*shown, other)
    rows = [
        (row.part, _table_ms(row.forward), _table_ms(row.backward), f"{row.share:.1%}")
        for row in shown
    ]
    return Table(rows, ("layer", "forward ms", "backward ms", "share"), _NUMBERS, fits=True)


def _busy_text(profile: Profile) -> str:
    if profile.busy is None:
        return ""
    if profile.devices:
        verb = "are" if len(profile.devices) > 1 else "is"
        return f"; {', '.join(profile.devices)} {verb} {profile.busy:.0%} busy"
    cores = "core is" if profile.cores == 1 else f"{profile.cores} cores are"
    return f"; the {cores} {profile.busy:.0%} busy"


def _milliseconds(seconds: float) -> str:
    return short_number(float(f"{seconds * 1e3:.3g}"))


def _table_ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f}"
