"""Reasons to end training early: signals, servers that leave, callbacks, the time, a given step."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from orbit_runner.config.durations import duration_seconds
from orbit_runner.distribute.parameter_servers import RunEnd
from orbit_runner.distribute.process_group import Workers, is_asynchronous
from orbit_runner.errors import Interrupted
from orbit_runner.train.request import RunRequest
from orbit_runner.train.schedule import Plan, check_stop_step
from orbit_runner.utils.log import note
from orbit_runner.utils.signals import SignalGuard

# Must be the same on every worker, because the workers add up how many got each signal.
SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
_OTHER_WORKER = "a callback on another worker requested a stop"


class StopTraining(Exception):
    """Raised between two loops of one call of the controller if training is to end early."""


class StoppedAtStep(Interrupted):
    """Raised at the step to stop at, after a checkpoint was saved."""

    def __init__(self, step: int) -> None:
        super().__init__(0, f"stopped at step {step}, as requested")
        self.exit_code = 0


class StopRequests:
    """Collects the reasons to stop, and makes all workers stop at the same step."""

    def __init__(
        self,
        workers: Workers,
        signals: SignalGuard,
        leaving_members: Callable[[], list[str]],  # those that are about to exit
        *,
        at_step: int | None = None,  # the step at which to save and raise StoppedAtStep
        # Whether the time is over. Each worker has its own clock, so only the chief's may decide.
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._workers = workers
        self._at_step = at_step
        self.signals = signals
        self._leaving_members = leaving_members
        self._is_over = is_over
        self.reason = ""  # why a callback asked to stop
        self.is_time_over = False  # whether `trainer.max_time` is over, as agreed by all workers
        self._pause: int | None = None  # a step at which a loop must end
        self._first_step: int | None = None  # the step of the first loop of this start

    def limit(self, step: int, target: int) -> int:
        """Returns the step to train to from `step`: `target`, or where to stop or pause before."""
        ends = [target] if self._at_step is None else [target, self._at_step]
        if self._pause is not None and self._pause > step:
            ends.append(self._pause)
        return min(ends)

    def pause_at(self, step: int) -> None:
        """Makes a loop end at a step, after which training continues."""
        self._pause = step

    def next_loop_length(self, steps: int, step: int, save: Callable[[], object]) -> int:
        """Returns the length of the next loop; all workers must call it together.

        `steps` is this worker's choice. The chief's is returned, because it depends on time
        measurements, which differ. Saves and raises Interrupted if any worker got a signal. Raises
        StopTraining if a callback of any worker asked to stop, or if the time of the run is over.
        """
        chosen = self._exit_or_agree(steps, step, save)
        if self._first_step is None:
            self._first_step = step
        # Each start trains at least once, so that starts that are too short make progress.
        if self.reason or (self.is_time_over and step > self._first_step):
            raise StopTraining
        return chosen

    def agree_on_stop(self) -> str:
        """Returns why a callback of any worker asked to stop, or "" if none did.

        Also updates `is_time_over`. All workers must call it together.
        """
        self._record_stops(
            *self._workers.all_reduce_sum([bool(self.reason), self._chief_is_out_of_time()])
        )
        return self.reason

    def _record_stops(self, stops: int, over: int) -> None:
        if stops and not self.reason:
            self.reason = _OTHER_WORKER
        self.is_time_over = self.is_time_over or bool(over)

    def _chief_is_out_of_time(self) -> bool:
        return self._workers.is_chief and self._is_over()

    def exit_if_requested(self, step: int, save: Callable[[], object]) -> None:
        """Saves and raises Interrupted if any worker got a signal.

        All workers must call it together.
        """
        self._exit_or_agree(0, step, save)

    def _exit_or_agree(self, steps: int, step: int, save: Callable[[], object]) -> int:
        """Returns the steps of the chief, unless a worker got a signal or the step is the last."""
        own = self.signals.received or self._server_signal()
        is_chief = self._workers.is_chief
        chosen, stops, over, *counts = self._workers.all_reduce_sum(
            [
                steps if is_chief else 0,
                bool(self.reason),
                self._chief_is_out_of_time(),
                *(own == number for number in SIGNALS),
            ]
        )
        self._record_stops(stops, over)
        number = next((n for n, count in zip(SIGNALS, counts, strict=True) if count), None)
        if number is not None:
            save()
            self._workers.acknowledge()  # Saving ends with an agreement.
            raise Interrupted.for_step(number, step)
        if self._at_step is not None and step >= self._at_step:
            save()
            self._workers.acknowledge()
            raise StoppedAtStep(step)
        return chosen

    def next_piece_length(self, steps: int) -> int:
        """Returns how many steps all workers run next, or 0 if training is to end before that.

        That is the case if any worker got a signal, or if the time of the run is over. `steps` is
        this worker's choice; the chief's is returned. All workers must call it together.
        """
        requested = bool(self.signals.received or self._leaving_members())
        requested = requested or self._chief_is_out_of_time()
        chosen, count = self._workers.all_reduce_sum(
            [steps if self._workers.is_chief else 0, requested]
        )
        return 0 if count else chosen

    def _server_signal(self) -> int | None:
        leaving = self._leaving_members()
        if not leaving:
            return None
        note(f"{', '.join(leaving)}: received a request to stop")
        return signal.SIGTERM


def make_stop_requests(request: RunRequest, workers: Workers, plan: Plan) -> StopRequests:
    """Returns the reasons to end a run early.

    Raises RunnerError if the run does not train the step at which it is to stop.
    """
    if request.stop_at_step is not None:
        check_stop_step(request.stop_at_step, plan.train_steps)
    config = request.config
    # The servers of a remote cluster do not share the run directory, and continue after the run.
    is_served = is_asynchronous(request.strategy) and not config.runtime.remote_cluster
    return StopRequests(
        workers,
        SignalGuard(raises=True, terminate=config.trainer.preemption_on_demand_checkpoint),
        RunEnd(request.model_dir).leaving_members if is_served else list,
        at_step=request.stop_at_step,
        is_over=_time_limit(config.trainer.max_time, request.started),
    )


def _time_limit(max_time: str | float | None, started: float | None) -> Callable[[], bool]:
    """Returns whether `trainer.max_time` is over, as a function."""
    if max_time is None:
        return lambda: False
    end = (time.monotonic() if started is None else started) + duration_seconds(max_time)
    return lambda: time.monotonic() >= end
