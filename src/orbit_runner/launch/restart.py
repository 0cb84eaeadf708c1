"""Handles a lost member: finds the cause, and prepares another attempt."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orbit_runner.launch.elastic import Elastic
from orbit_runner.launch.exit_status import LOST, Ending, sort_by_significance
from orbit_runner.launch.job import Job, Verdict, is_grouped, is_leader
from orbit_runner.launch.process import Process
from orbit_runner.launch.process_pool import format_names, wait_until
from orbit_runner.launch.shutdown import end_after_failure, wait_for_exit


def handle_loss(job: Job, first: Ending) -> Verdict:
    """Ends an attempt that lost a member, `first`. Returns whether to start another attempt."""
    if first.kind == "left":  # A server that exited on request is lost to its clients.
        first = Ending(first.who, LOST, str(first))
    stopped = _wait_for_detection(job, first)
    ends = job.pool.new_endings(is_grouped)
    # A loss that a member reports is explained by the endings of others; a killed member is not.
    cause = sort_by_significance([first, *ends])[0] if first.kind == "lost" else first
    if stopped:
        cause = dataclasses.replace(cause, words=f"{cause}; {stopped}")
    if cause.kind == "left":
        return wait_for_exit(job, cause)
    if cause.kind == "failed" or not job.can_regroup(cause):
        return end_after_failure(job, cause)
    job.end(job.pool.running_processes(is_grouped))
    return Verdict(cause.code, cause, again=True)


def handle_stall(job: Job, stalled: Sequence[Process]) -> Verdict:
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
    if not job.can_regroup(cause):
        return end_after_failure(job, cause)
    job.end(job.pool.running_processes(is_grouped))
    return Verdict(cause.code, cause, again=True)


def restart_with_all_workers(job: Job, elastic: Elastic) -> Verdict | None:
    """Lets the workers save and exit, so that the next attempt has more of them.

    Returns None if they finish training instead.
    """
    job.output.note(elastic.grow())
    leaders = job.pool.running_processes(is_leader)
    job.end(leaders, job.limits.grace)
    endings = [process.ending() for process in leaders]
    if all(ending is not None and ending.kind == "done" for ending in endings):
        return None
    job.end(job.pool.running_processes(is_grouped))
    return Verdict(0, again=True)


def _wait_for_detection(job: Job, first: Ending) -> str:
    """Waits until the leading processes have noticed the loss. Returns a note about stopped ones.

    They are not asked to save, because their state may be incomplete. They report the loss by their
    exit codes.
    """
    leaders, seconds = job.pool.running_processes(is_leader), job.limits.settle
    if leaders:
        job.output.note(
            f"{first}; waiting up to {seconds:.0f} s for {format_names(leaders)} to detect this"
        )

    def unaware_leaders() -> list[Process]:
        return [p for p in leaders if p.ending() is None and not p.is_stopped()]

    wait_until(lambda: job.was_asked_to_stop() or not unaware_leaders(), seconds)
    stopped = [
        process for process in job.pool.running_processes(is_grouped) if process.is_stopped()
    ]
    return f"suspended: {format_names(stopped)}" if stopped else ""


def restart_process(job: Job, ending: Ending) -> Verdict | None:
    """Restarts a process that the others do not need for a while.

    Returns None if the others continue, or the final verdict if there were too many restarts.
    """
    if not job.can_restart:
        return end_after_failure(job, ending)
    job.output.note(f"{ending}; restarting only this process {job.count_restart()}")
    job.pool.start(job.pool.spec(ending.who))
    return None
