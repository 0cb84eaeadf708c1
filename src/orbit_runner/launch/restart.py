"""Handles a lost member: finds the cause, and prepares another attempt."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orbit_runner.launch.elastic import Elastic
from orbit_runner.launch.exit_status import LOST, Ending, by_weight
from orbit_runner.launch.job import Job, Verdict, is_grouped, leads
from orbit_runner.launch.process import Process
from orbit_runner.launch.process_pool import format_names, until
from orbit_runner.launch.shutdown import fail, follow_out


def regroup(job: Job, first: Ending) -> Verdict:
    """Ends an attempt that lost a member, `first`. Returns whether to start another attempt."""
    if first.kind == "left":  # A server that exited on request is lost to its clients.
        first = Ending(first.who, LOST, str(first))
    stopped = _settle(job, first)
    ends = job.crew.endings(is_grouped)
    # A loss that a member reports is explained by the endings of others; a killed member is not.
    cause = by_weight([first, *ends])[0] if first.kind == "lost" else first
    if stopped:
        cause = dataclasses.replace(cause, words=f"{cause}; {stopped}")
    if cause.kind == "left":
        return follow_out(job, cause)
    if cause.kind == "failed" or not job.may_regroup(cause):
        return fail(job, cause)
    job.end(job.crew.running(is_grouped))
    return Verdict(cause.code, cause, again=True)


def restart_stalled(job: Job, stalled: Sequence[Process]) -> Verdict:
    """Ends an attempt whose members train, but finish no step. Returns whether to start another.

    They are not asked to save, because they would do so only after the step.
    """
    first = stalled[0]
    suspended = [process for process in stalled if process.is_stopped()]
    names = format_names(stalled)
    if suspended:
        names += f" (suspended: {format_names(suspended)})"
    words = (
        f"{names} finished no step for {first.spec.stall_timeout:g} s after about step "
        f"{first.stalled_step()} (the end of {first.spec.log} shows where its threads are)"
    )
    cause = Ending(first.spec.name, LOST, words)
    if not job.may_regroup(cause):
        return fail(job, cause)
    job.end(job.crew.running(is_grouped))
    return Verdict(cause.code, cause, again=True)


def grow(job: Job, elastic: Elastic) -> Verdict | None:
    """Lets the workers save and exit, so that the next attempt has more of them.

    Returns None if they finish training instead.
    """
    job.screen.note(elastic.grow())
    leaders = job.crew.running(leads)
    job.end(leaders, job.limits.grace)
    endings = [process.ending() for process in leaders]
    if all(ending is not None and ending.kind == "done" for ending in endings):
        return None
    job.end(job.crew.running(is_grouped))
    return Verdict(0, again=True)


def _settle(job: Job, first: Ending) -> str:
    """Waits until the leading processes have noticed the loss. Returns a note about stopped ones.

    They are not asked to save, because their state may be incomplete. They report the loss by their
    exit codes.
    """
    leaders, seconds = job.crew.running(leads), job.limits.settle
    if leaders:
        job.screen.note(
            f"{first}; waiting up to {seconds:.0f} s for {format_names(leaders)} to detect this"
        )

    def unsettled() -> list[Process]:
        return [p for p in leaders if p.ending() is None and not p.is_stopped()]

    until(lambda: job.was_asked_to_stop() or not unsettled(), seconds)
    stopped = [process for process in job.crew.running(is_grouped) if process.is_stopped()]
    return f"suspended: {format_names(stopped)}" if stopped else ""


def replace(job: Job, ending: Ending) -> Verdict | None:
    """Restarts a process that the others do not need for a while.

    Returns None if the others continue, or the final verdict if there were too many restarts.
    """
    if not job.may_restart:
        return fail(job, ending)
    job.screen.note(f"{ending}; restarting only this process {job.count_restart()}")
    job.crew.start(job.crew.spec(ending.who))
    return None
