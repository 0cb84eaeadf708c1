"""Ends a job: after a failure, or when a member or the launcher was asked to exit."""

from __future__ import annotations

from orbit_runner.launch.exit_status import Ending, signal_name
from orbit_runner.launch.job import Job, Verdict, can_exit, is_leader
from orbit_runner.launch.process_pool import format_names, wait_until


def end_after_failure(job: Job, cause: Ending) -> Verdict:
    """Ends all processes without another attempt. The verdict has the exit code of `cause`."""
    tried = ""
    if cause.kind in ("lost", "killed") and job.limits.restarts:
        tried = f" after {job.limits.restarts} restart{'s' if job.limits.restarts > 1 else ''}"
    text = str(cause)
    if job.pool.has(cause.who) and str(log := job.pool.spec(cause.who).log) not in text:
        text += f" (log: {log})"
    job.output.note(f"{text}; giving up{tried}")
    job.end(job.pool.running_processes())
    return Verdict(cause.code, cause)


def wait_for_exit(job: Job, first: Ending) -> Verdict:
    """Waits for all members to save and exit after one of them was asked to.

    That member has informed the others. The verdict has its exit code.
    """
    leaders = job.pool.running_processes(is_leader)
    if leaders:
        grace = job.limits.grace
        job.output.note(f"{first}; waiting up to {grace:.0f} s for {format_names(leaders)} to save")
        wait_until(
            lambda: job.was_asked_to_stop() or not job.pool.running_processes(is_leader), grace
        )
    job.end(job.pool.running_processes(can_exit), job.limits.grace)
    job.end(job.pool.running_processes())
    return Verdict(first.code, first)


def cancel_start(job: Job, number: int) -> Verdict:
    """Ends all processes before members have started. The exit code is 128 + `number`."""
    own = Ending("the launcher", 128 + number)
    job.output.note(f"{signal_name(number)}: exiting before any member has started")
    job.end(job.pool.running_processes())
    return Verdict(own.code, own)


def forward_signal(job: Job, number: int) -> Verdict:
    """Forwards a signal, and waits until all members have saved and exited.

    Servers do not get the signal, because their clients need them to save. The exit code of
    the verdict is 128 + `number`, the signal; 0 if all members were just done; or that of a member
    that failed.
    """
    own = Ending("the launcher", 128 + number)
    working = job.pool.running_processes(can_exit)
    for process in working:
        process.send_signal(job.signals.forwarded_signal)
    if working:
        job.output.note(
            f"{signal_name(number)}: waiting up to {job.limits.grace:.0f} s for "
            f"{format_names(working)} to save and exit; press Ctrl-C to kill them now"
        )
    wait_until(
        lambda: job.signals.should_kill or not job.pool.running_processes(can_exit),
        job.limits.grace,
    )
    late = job.pool.kill(job.pool.running_processes(can_exit))
    if late:
        job.output.note(f"killed without saving: {format_names(late)}")
    endings = job.pool.new_endings(can_exit)
    job.end(job.pool.running_processes())
    failed = next((ending for ending in endings if ending.kind == "failed"), None)
    if failed is not None:
        return Verdict(failed.code, failed)
    if working and not late and all(ending.kind == "done" for ending in endings):
        return Verdict(0)
    return Verdict(own.code, own)
