"""The ends of a job: it failed, a member was asked to leave, or the launcher was."""

from __future__ import annotations

from orbit_runner.launch.exit_status import Ending, signal_name
from orbit_runner.launch.job import Job, Verdict, leads, works
from orbit_runner.launch.process_pool import format_names, until


def fail(job: Job, cause: Ending) -> Verdict:
    """Ends everything: another attempt would end as this one did, or was one too many.

    Args:
        job: The job.
        cause: What failed first.

    Returns:
        The exit code of that.
    """
    tried = ""
    if cause.kind in ("lost", "killed") and job.limits.restarts:
        tried = f" after {job.limits.restarts} restart{'s' if job.limits.restarts > 1 else ''}"
    log = f" (log: {job.crew.spec(cause.who).log})" if job.crew.has(cause.who) else ""
    job.screen.note(f"{cause}{log}; giving up{tried}")
    job.end(job.crew.running())
    return Verdict(cause.code, cause)


def follow_out(job: Job, first: Ending) -> Verdict:
    """Waits for all to save and leave: the one that was asked to has told the others.

    Args:
        job: The job.
        first: How that one ended.

    Returns:
        Its exit code.
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
    """Ends everything before members have started: there is nothing to save.

    Args:
        job: The job.
        number: The signal that the launcher was sent.

    Returns:
        128 + the signal.
    """
    own = Ending("the launcher", 128 + number)
    job.screen.note(f"{signal_name(number)}: leaving before anything has begun")
    job.end(job.crew.running())
    return Verdict(own.code, own)


def leave(job: Job, number: int) -> Verdict:
    """Passes a signal on, and waits until all have saved and left.

    Servers are not told: those that they serve need them to save.

    Args:
        job: The job.
        number: The signal that the launcher was sent.

    Returns:
        128 + the signal; 0 where all were done just then; or the exit code of what failed.
    """
    own = Ending("the launcher", 128 + number)
    working = job.crew.running(works)
    for process in working:
        process.send(job.signals.passed_on)
    if working:
        job.screen.note(
            f"{signal_name(number)}: waiting up to {job.limits.grace:.0f} s for "
            f"{format_names(working)} to save and leave; Ctrl-C ends them at once"
        )
    until(lambda: job.signals.at_once or not job.crew.running(works), job.limits.grace)
    late = job.crew.kill(job.crew.running(works))
    if late:
        job.screen.note(f"{format_names(late)} did not leave and was killed before it had saved")
    endings = job.crew.endings(works)
    job.end(job.crew.running())
    failed = next((ending for ending in endings if ending.kind == "failed"), None)
    if failed is not None:
        return Verdict(failed.code, failed)
    if working and not late and all(ending.kind == "done" for ending in endings):
        return Verdict(0)
    return Verdict(own.code, own)
