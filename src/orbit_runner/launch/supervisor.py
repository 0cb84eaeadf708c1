"""The supervising loop: starts the members of a cluster, and restarts them if one is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from orbit_runner.launch.attempt import Attempt, make_attempt
from orbit_runner.launch.data_service import Opening
from orbit_runner.launch.exit_status import Ending, by_weight
from orbit_runner.launch.job import Job, Verdict, leads, works
from orbit_runner.launch.process import Spec
from orbit_runner.launch.process_pool import PAUSE_SECONDS, format_names, until
from orbit_runner.launch.restart import grow, regroup, replace, restart_stalled
from orbit_runner.launch.shutdown import fail, follow_out, leave, turn_back

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
        self._furthest, self._vain = -1, 0  # the last step, and attempts that got no further
        self._reminder = ""
        self._opening, self._waiting = Opening(()), list[Spec]()

    def run(self) -> int:
        job, number = self._job, 0
        try:
            while True:
                number += 1
                attempt = make_attempt(number, self._next_counts())
                self._start(self._specs(attempt), attempt.services)
                verdict = self._watch()
                if not verdict.again:
                    return verdict.code
                if verdict.cause is None:
                    continue
                seconds = self._pause()
                when = f" in {seconds:.0f} s" if seconds else ""
                job.screen.note(f"{verdict.cause}; {job.next_attempt(verdict.cause)}{when}")
                if until(job.was_asked_to_stop, seconds):
                    return turn_back(job, job.signals.received or 0).code
        finally:
            job.crew.kill(job.crew.running())

    def _pause(self) -> float:
        """Returns the seconds to wait before another attempt, after one that lost a member.

        The wait grows while attempts get no further than the ones before them.
        """
        step = self._job.crew.last_step()
        self._vain = 0 if step > self._furthest else self._vain + 1
        self._furthest = max(step, self._furthest)
        return 0.0 if self._vain < 2 else min(2.0 ** (self._vain - 2), _LONGEST_PAUSE)

    def _next_counts(self) -> Mapping[str, int]:
        elastic = self._job.elastic
        if elastic is None:
            return self._counts
        elastic.begin()
        return {**self._counts, "worker": elastic.workers}

    def _start(self, specs: Sequence[Spec], services: tuple[str, ...]) -> None:
        for spec in specs:
            self._job.screen.introduce(spec.name)
        # A process outside the group may still run, or may be done.
        due = [s for s in specs if s.part.grouped or not self._job.crew.is_settled(s.name)]
        for spec in due:
            if spec.part.first:
                self._job.crew.start(spec)
        self._waiting = [spec for spec in due if not spec.part.first]
        self._opening = Opening(services)
        self._go_on()

    def _go_on(self) -> None:
        """Starts the processes that wait for services, once these respond."""
        if self._waiting and self._opening.done():
            for spec in self._waiting:
                self._job.crew.start(spec)
            self._waiting = []

    def _watch(self) -> Verdict:
        """Watches one attempt until it ends.

        Checks, in this order: signals to the launcher, endings, whether waiting processes can
        start, whether members stall, whether workers that were left out are due, whether training
        is done, whether processes that outlast training have ended.
        """
        job, over = self._job, False
        while True:
            if job.signals.received is not None:
                depart = turn_back if self._waiting else leave
                return depart(job, job.signals.received)
            verdict = self._judge_all()
            if verdict is not None:
                return verdict
            self._go_on()
            stalled = [p for p in job.crew.running(leads) if p.stalled_step() is not None]
            if stalled:
                return restart_stalled(job, stalled)
            if job.elastic is not None and job.elastic.may_grow and self._trains():
                verdict = grow(job, job.elastic)
                if verdict is not None:
                    return verdict
            if not over and self._has_trained():
                over = True
                job.end(job.crew.running(lambda part: part.serves and part.grouped))
            if over and not job.crew.running(works):
                job.end(job.crew.running())
                return Verdict(self._code)
            self._remind(over)
            time.sleep(PAUSE_SECONDS)

    def _judge_all(self) -> Verdict | None:
        """Returns the verdict on new endings, the most significant first; None to continue."""
        for ending in by_weight(self._job.crew.endings()):
            verdict = self._judge(ending)
            if verdict is not None:
                return verdict
        return None

    def _judge(self, ending: Ending) -> Verdict | None:
        if ending.kind == "done":
            return None
        if ending.kind == "failed":
            return fail(self._job, ending)
        part = self._job.crew.spec(ending.who).part
        if ending.kind == "left" and part.leads:
            return follow_out(self._job, ending)
        if ending.kind == "left" and not part.serves:
            self._job.screen.note(f"{ending}; the others continue")
            self._code = self._code or ending.code
            return None
        # A member that reports a loss has no problem itself, so restarting it would not help.
        if part.alone and not (part.grouped and ending.kind == "lost"):
            return replace(self._job, ending)
        return regroup(self._job, ending)

    def _has_trained(self) -> bool:
        return not (self._waiting or self._job.crew.running(leads))

    def _trains(self) -> bool:
        """Returns whether all workers run: while some have ended, the others are about to."""
        count = self._job.elastic.workers if self._job.elastic is not None else 0
        return not self._waiting and len(self._job.crew.running(leads)) == count

    def _remind(self, over: bool) -> None:
        """Notes once what is still being waited for when no process trains."""
        if self._job.crew.running(leads):
            return
        text = ""
        if self._waiting:
            seconds, silent = self._opening.seconds, ", ".join(self._opening.waiting)
            text = f"waiting up to {seconds:.0f} s for data services to respond: {silent}"
        if over:
            text = f"training is done; waiting for {format_names(self._job.crew.running(works))}"
        if text and text != self._reminder:
            self._job.screen.note(text)
        self._reminder = text
