"""Starts the members of a cluster, watches them, and starts them again if one is lost."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

from orbit_runner.errors import format_count
from orbit_runner.launch.members import Attempt, make_attempt
from orbit_runner.launch.process import (
    LOST,
    PAUSE_SECONDS,
    Ending,
    LogMultiplexer,
    Process,
    ProcessPool,
    RoleTraits,
    Spec,
    format_names,
    sort_by_significance,
    wait_until,
)
from orbit_runner.utils.signals import Signals, signal_name

_LONGEST_PAUSE = 60.0  # seconds between two attempts

# Returns the processes of an attempt.
Specs = Callable[[Attempt], Sequence[Spec]]


def supervise(job: Job, counts: Mapping[str, int], specs: Specs) -> int:
    """Runs attempts until one is the last. Returns the exit code when all processes have ended.

    The exit code is that of the process that failed first, 128 + n for signal n, or 0. `counts` is
    role to number of processes.
    """
    return _Supervisor(job, counts, specs).run()


class _Supervisor:
    def __init__(self, job: Job, counts: Mapping[str, int], specs: Specs) -> None:
        self._job = job
        self._counts = counts
        self._specs = specs
        self._code = 0
        self._furthest_step = -1
        self._stuck_attempts = 0  # attempts that got no further
        self._last_report = ""

    def run(self) -> int:
        job = self._job
        number = 0
        try:
            while True:
                number += 1
                attempt = make_attempt(number, self._next_counts())
                self._start(self._specs(attempt))
                verdict = self._watch_attempt()
                if not verdict.again:
                    return verdict.code
                if verdict.cause is None:
                    continue
                seconds = self._restart_delay()
                when = f" in {seconds:.0f} s" if seconds else ""
                job.output.note(f"{verdict.cause}; {job.prepare_attempt()}{when}")
                if wait_until(job.was_asked_to_stop, seconds):
                    return cancel_start(job, job.signals.received or 0).code
        finally:
            job.pool.kill(job.pool.running_processes())

    def _restart_delay(self) -> float:
        """Returns the seconds to wait before another attempt, after an attempt that lost a member.

        The wait grows while attempts get no further than the ones before them.
        """
        step = self._job.pool.last_step()
        self._stuck_attempts = 0 if step > self._furthest_step else self._stuck_attempts + 1
        self._furthest_step = max(step, self._furthest_step)
        if self._stuck_attempts < 2:
            return 0.0
        return min(2.0 ** (self._stuck_attempts - 2), _LONGEST_PAUSE)

    def _next_counts(self) -> Mapping[str, int]:
        elastic = self._job.elastic
        if elastic is None:
            return self._counts
        elastic.begin()
        return {**self._counts, "worker": elastic.workers}

    def _start(self, specs: Sequence[Spec]) -> None:
        for spec in specs:
            self._job.output.add_name(spec.name)
        # A process outside the group may still run, or may be done.
        for spec in specs:
            if spec.traits.grouped or not self._job.pool.is_settled(spec.name):
                self._job.pool.start(spec)

    def _watch_attempt(self) -> Verdict:
        """Watches one attempt until it ends.

        Checks, in this order: signals to the launcher, endings, whether members stall, whether
        workers that were left out are due, whether training is done, whether processes that outlast
        training have ended.
        """
        job = self._job
        is_done = False
        while True:
            if job.signals.received is not None:
                return forward_signal(job, job.signals.received)
            verdict = self._judge_all()
            if verdict is not None:
                return verdict
            stalled = [
                p for p in job.pool.running_processes(is_leader) if p.stalled_step() is not None
            ]
            if stalled:
                return handle_stall(job, stalled)
            if job.elastic is not None and job.elastic.can_grow and self._are_workers_running():
                verdict = restart_with_all_workers(job, job.elastic)
                if verdict is not None:
                    return verdict
            if not is_done and self._is_training_done():
                is_done = True
                job.end(job.pool.running_processes(lambda traits: traits.serves and traits.grouped))
            if is_done and not job.pool.running_processes(can_exit):
                job.end(job.pool.running_processes())
                return Verdict(self._code)
            self._report_waiting(is_done)
            time.sleep(PAUSE_SECONDS)

    def _judge_all(self) -> Verdict | None:
        """Returns the verdict on new endings, the most significant first; None to continue."""
        for ending in sort_by_significance(self._job.pool.new_endings()):
            verdict = self._judge(ending)
            if verdict is not None:
                return verdict
        return None

    def _judge(self, ending: Ending) -> Verdict | None:
        if ending.kind == "done":
            return None
        if ending.kind == "failed":
            return end_after_failure(self._job, ending)
        traits = self._job.pool.spec(ending.who).traits
        if ending.kind == "left" and traits.leads:
            return wait_for_exit(self._job, ending)
        if ending.kind == "left" and not traits.serves:
            self._job.output.note(f"{ending}; the others continue")
            self._code = self._code or ending.code
            return None
        # A member that reports a loss has no problem itself, so restarting it would not help.
        if traits.alone and not (traits.grouped and ending.kind == "lost"):
            return restart_process(self._job, ending)
        return handle_loss(self._job, ending)

    def _is_training_done(self) -> bool:
        return not self._job.pool.running_processes(is_leader)

    def _are_workers_running(self) -> bool:
        """Returns whether all workers run: while some have ended, the others are about to."""
        count = self._job.elastic.workers if self._job.elastic is not None else 0
        return len(self._job.pool.running_processes(is_leader)) == count

    def _report_waiting(self, is_done: bool) -> None:
        """Notes once what is still being waited for when no process trains."""
        if self._job.pool.running_processes(is_leader):
            return
        text = ""
        if is_done:
            names = format_names(self._job.pool.running_processes(can_exit))
            text = f"training is done; waiting for {names}"
        if text and text != self._last_report:
            self._job.output.note(text)
        self._last_report = text


def possible_workers(logical: int, devices: int, least: int, most: int) -> tuple[int, ...]:
    """Returns the numbers of workers from `least` to `most` that are possible, the largest first.

    The devices of all workers, `devices` each, must divide the logical replicas.
    """
    counts = range(most, max(least, 1) - 1, -1)
    return tuple(count for count in counts if logical % (count * devices) == 0)


class Elastic:
    """Leaves workers out after too many losses, and tries all of them again later.

    `sizes` are the possible numbers of workers, the largest first. A size is given up after
    `restarts` restarts with it. All workers are tried again `rejoin_after` seconds after an attempt
    with fewer has started. One more loss then suffices to go back to fewer.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        restarts: int,
        rejoin_after: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sizes = tuple(sizes)
        self._restarts = restarts
        self._rejoin_after = rejoin_after
        self._clock = clock
        self._size_index = self._loss_count = 0
        self._since = clock()

    @property
    def workers(self) -> int:
        """The number of workers of the next attempt."""
        return self._sizes[self._size_index]

    @property
    def max_workers(self) -> int:
        """The largest number of workers."""
        return self._sizes[0]

    @property
    def can_continue(self) -> bool:
        """Whether another attempt may follow a loss, with as many workers or with fewer."""
        return self._loss_count < self._restarts or self._size_index + 1 < len(self._sizes)

    @property
    def can_grow(self) -> bool:
        """Whether workers are left out, and it is time to try them again."""
        return self._size_index > 0 and self._clock() - self._since >= self._rejoin_after

    def begin(self) -> None:
        """Marks the start of an attempt."""
        self._since = self._clock()

    def record_loss(self) -> str:
        """Counts the loss of a worker, and returns a message about what follows."""
        before = self.workers
        self._loss_count = self._loss_count + 1
        if self._loss_count <= self._restarts:
            return (
                f"restarting {format_count(before, 'worker')} from the last checkpoint "
                f"({self._loss_count} of {self._restarts})"
            )
        self._size_index = self._size_index + 1
        self._loss_count = 0
        out = before - self.workers
        return (
            f"leaving {format_count(out, 'worker')} out; continuing with {self.workers} from the "
            "last checkpoint"
        )

    def grow(self) -> str:
        """Sets the largest number of workers, and returns a message about what follows."""
        before = self.workers
        self._size_index = 0
        self._loss_count = self._restarts
        workers = format_count(self.max_workers, "worker")
        return f"trying {workers} again instead of {before}, from this step"


_SHORT_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of restarts and waiting times."""

    restarts: int = 3  # how often lost members are replaced
    grace: float = 30.0  # seconds for members to save and exit
    settle: float = 30.0  # seconds for members to notice that another is lost


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of an attempt."""

    code: int  # exit code, if this was the last attempt
    cause: Ending | None = None  # what ended it; None if training is done or workers join
    again: bool = False  # whether to start another attempt


class Job:
    """The processes of this machine, and the state of their supervision."""

    def __init__(
        self,
        output: LogMultiplexer,
        signals: Signals,
        limits: Limits,
        elastic: Elastic | None = None,
    ) -> None:
        self.pool = ProcessPool(output)
        self.output = output
        self.signals = signals
        self.limits = limits
        self.restarts = 0
        self.elastic = elastic  # None if the number of workers is fixed

    @property
    def can_restart(self) -> bool:
        """Whether a lost member may still be replaced."""
        return self.restarts < self.limits.restarts

    @property
    def can_regroup(self) -> bool:
        """Whether another attempt may follow a loss."""
        return self.can_restart if self.elastic is None else self.elastic.can_continue

    def prepare_attempt(self) -> str:
        """Prepares another attempt after a loss, and returns a message about what follows."""
        if self.elastic is not None:
            return self.elastic.record_loss()
        return f"restarting all members from the last checkpoint {self.count_restart()}"

    def count_restart(self) -> str:
        """Counts a restart, and returns a text such as `(1 of 3)`."""
        self.restarts += 1
        return f"({self.restarts} of {self.limits.restarts})"

    def was_asked_to_stop(self) -> bool:
        """Returns whether the launcher received a signal."""
        return self.signals.received is not None

    def end(self, processes: Sequence[Process], seconds: float = _SHORT_SECONDS) -> None:
        """Ends processes whose exit codes do not matter, within `seconds` and the grace period."""
        seconds = min(seconds, self.limits.grace)
        self.pool.end(processes, seconds, lambda: self.signals.should_kill)


def is_leader(traits: RoleTraits) -> bool:
    """Returns whether training waits for this kind of process."""
    return traits.leads


def can_exit(traits: RoleTraits) -> bool:
    """Returns whether this kind of process exits without being killed, at the end or on request."""
    return not traits.serves


def is_grouped(traits: RoleTraits) -> bool:
    """Returns whether this kind of process starts and ends together with the others."""
    return traits.grouped


def end_after_failure(job: Job, cause: Ending) -> Verdict:
    """Ends all processes without another attempt. The verdict has the exit code of `cause`."""
    tried = ""
    if cause.kind in ("lost", "killed") and job.limits.restarts:
        tried = f" after {format_count(job.limits.restarts, 'restart')}"
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
    if cause.kind == "failed" or not job.can_regroup:
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
    if not job.can_regroup:
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
    leaders = job.pool.running_processes(is_leader)
    seconds = job.limits.settle
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
