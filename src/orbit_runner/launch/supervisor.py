"""The supervising loop: starts the members of a cluster, and restarts them if one is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from orbit_runner.launch.attempt import Attempt, make_attempt
from orbit_runner.launch.data_service import ServiceStartup
from orbit_runner.launch.exit_status import Ending, sort_by_significance
from orbit_runner.launch.job import Job, Verdict, can_exit, is_leader
from orbit_runner.launch.process import Spec
from orbit_runner.launch.process_pool import PAUSE_SECONDS, format_names, wait_until
from orbit_runner.launch.restart import (
    handle_loss,
    handle_stall,
    restart_process,
    restart_with_all_workers,
)
from orbit_runner.launch.shutdown import (
    cancel_start,
    end_after_failure,
    forward_signal,
    wait_for_exit,
)

_LONGEST_PAUSE = 60.0  # seconds between two attempts

# Returns the processes of an attempt.
Specs = Callable[[Attempt], Sequence[Spec]]


def supervise(job: Job, counts: Mapping[str, int], specs: Specs) -> int:
    """Runs attempts until one is the last. Returns the exit code when all processes have ended.

    The exit code is that of the process that failed first, 128 + n for signal n, or 0. `counts` is
    role, or `DATA`, to number of processes.
    """
    return _Supervisor(job, counts, specs).run()


class _Supervisor:
    def __init__(self, job: Job, counts: Mapping[str, int], specs: Specs) -> None:
        self._job, self._counts, self._specs = job, counts, specs
        self._code = 0
        self._furthest_step, self._stuck_attempts = -1, 0  # attempts that got no further
        self._last_report = ""
        self._service_startup, self._waiting_specs = ServiceStartup(()), list[Spec]()

    def run(self) -> int:
        job, number = self._job, 0
        try:
            while True:
                number += 1
                attempt = make_attempt(number, self._next_counts())
                self._start(self._specs(attempt), attempt.services)
                verdict = self._watch_attempt()
                if not verdict.again:
                    return verdict.code
                if verdict.cause is None:
                    continue
                seconds = self._restart_delay()
                when = f" in {seconds:.0f} s" if seconds else ""
                job.output.note(f"{verdict.cause}; {job.prepare_attempt(verdict.cause)}{when}")
                if wait_until(job.was_asked_to_stop, seconds):
                    return cancel_start(job, job.signals.received or 0).code
        finally:
            job.pool.kill(job.pool.running_processes())

    def _restart_delay(self) -> float:
        """Returns the seconds to wait before another attempt, after one that lost a member.

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

    def _start(self, specs: Sequence[Spec], services: tuple[str, ...]) -> None:
        for spec in specs:
            self._job.output.add_name(spec.name)
        # A process outside the group may still run, or may be done.
        due = [s for s in specs if s.traits.grouped or not self._job.pool.is_settled(s.name)]
        for spec in due:
            if spec.traits.first:
                self._job.pool.start(spec)
        self._waiting_specs = [spec for spec in due if not spec.traits.first]
        self._service_startup = ServiceStartup(services)
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Starts the processes that wait for services, once these respond."""
        if self._waiting_specs and self._service_startup.is_complete():
            for spec in self._waiting_specs:
                self._job.pool.start(spec)
            self._waiting_specs = []

    def _watch_attempt(self) -> Verdict:
        """Watches one attempt until it ends.

        Checks, in this order: signals to the launcher, endings, whether waiting processes can
        start, whether members stall, whether workers that were left out are due, whether training
        is done, whether processes that outlast training have ended.
        """
        job, is_done = self._job, False
        while True:
            if job.signals.received is not None:
                end_attempt = cancel_start if self._waiting_specs else forward_signal
                return end_attempt(job, job.signals.received)
            verdict = self._judge_all()
            if verdict is not None:
                return verdict
            self._start_waiting()
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
        return not (self._waiting_specs or self._job.pool.running_processes(is_leader))

    def _are_workers_running(self) -> bool:
        """Returns whether all workers run: while some have ended, the others are about to."""
        count = self._job.elastic.workers if self._job.elastic is not None else 0
        return not self._waiting_specs and len(self._job.pool.running_processes(is_leader)) == count

    def _report_waiting(self, is_done: bool) -> None:
        """Notes once what is still being waited for when no process trains."""
        if self._job.pool.running_processes(is_leader):
            return
        text = ""
        if self._waiting_specs:
            seconds = self._service_startup.seconds
            silent = ", ".join(self._service_startup.waiting)
            text = f"waiting up to {seconds:.0f} s for data services to respond: {silent}"
        if is_done:
            names = format_names(self._job.pool.running_processes(can_exit))
            text = f"training is done; waiting for {names}"
        if text and text != self._last_report:
            self._job.output.note(text)
        self._last_report = text
