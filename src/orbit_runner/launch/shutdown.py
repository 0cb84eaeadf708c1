"""Ends a job: after a failure, or when a member or the launcher was asked to exit."""

from __future__ import annotations

from orbit_runner.launch.exit_status import Ending, signal_name
from orbit_runner.launch.job import Job, Verdict, leads, works
from orbit_runner.launch.process_pool import format_names, until


def fail(job: Job, cause: Ending) -> Verdict:
    """Ends all processes without another attempt. The verdict has the exit code of `cause`."""
    tried = ""
    if cause.kind in ("lost", "killed") and job.limits.restarts:
        tried = f" after {job.limits.restarts} restart{'s' if job.limits.restarts > 1 else ''}"
    text = str(cause)
    if job.crew.has(cause.who) and str(log := job.crew.spec(cause.who).log) not in text:
        text += f" (log: {log})"
    job.screen.note(f"{text}; giving up{tried}")
    job.end(job.crew.running())
    return Verdict(cause.code, cause)


def follow_out(job: Job, first: Ending) -> Verdict:
    """Waits for all members to save and exit after one of them was asked to.

    That member has informed the others. The verdict has its exit code.
    """
    leaders = job.crew.running(leads)
    if leaders:
        grace = job.limits.grace
        job.screen.note(f"{first}; waiting up to {grace:.0f} s for {format_names(leaders)} to save")
        until(lambda: job.was_asked_to_stop() or not job.crew.running(leads), grace)
    job.end(job.crew.running(works), job.limits.grace)
    job.end(job.crew.running())
    return Verdict(first.code, first)


def turn_back(job: Job, number: int) -> Verdict:
    """Ends all processes before members have started. The exit code is 128 + `number`."""
    own = Ending("the launcher", 128 + number)
    job.screen.note(f"{signal_name(number)}: exiting before any member has started")
    job.end(job.crew.running())
    return Verdict(own.code, own)


def leave(job: Job, number: int) -> Verdict:
    """Forwards a signal, and waits until all members have saved and exited.

    Servers do not get the signal, because their clients need them to save. The exit code of
    the verdict is 128 + `number`, the signal; 0 if all members were just done; or that of a member
    that failed.
    """
    own = Ending("the launcher", 128 + number)
    working = job.crew.running(works)
    for process in working:
        process.send(job.signals.passed_on)
    if working:
        job.screen.note(
            f"{signal_name(number)}: waiting up to {job.limits.grace:.0f} s for "
            f"{format_names(working)} to save and exit; press Ctrl-C to kill them now"
        )
    until(lambda: job.signals.at_once or not job.crew.running(works), job.limits.grace)
    late = job.crew.kill(job.crew.running(works))
    if late:
        job.screen.note(f"killed without saving: {format_names(late)}")
    endings = job.crew.endings(works)
    job.end(job.crew.running())
    failed = next((ending for ending in endings if ending.kind == "failed"), None)
    if failed is not None:
        return Verdict(failed.code, failed)
    if working and not late and all(ending.kind == "done" for ending in endings):
        return Verdict(0)
    return Verdict(own.code, own)
