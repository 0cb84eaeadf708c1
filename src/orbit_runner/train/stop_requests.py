"""Reasons to end training early: signals, servers that leave, callbacks, a given step."""

from __future__ import annotations

import signal
from collections.abc import Callable

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
    ) -> None:
        self._workers = workers
        self._at_step = at_step
        self.signals = signals
        self._leaving_members = leaving_members
        self.reason = ""  # why a callback asked to stop
        self._pause: int | None = None  # a step at which a loop must end

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
        StopTraining if a callback of any worker asked to stop.
        """
        length = self.exit_if_requested(step, save, steps)
        if self.reason:
            raise StopTraining
        return length

    def agree_on_stop(self) -> str:
        """Returns why a callback of any worker asked to stop, or "" if none did.

        All workers must call it together.
        """
        if not self._workers.all(not self.reason):
            self.reason = self.reason or _OTHER_WORKER
        return self.reason

    def exit_if_requested(self, step: int, save: Callable[[], object], steps: int = 0) -> int:
        """Saves and raises Interrupted if any worker got a signal, or StoppedAtStep if it is due.

        Otherwise, returns the `steps` of the chief. All workers must call it together.
        """
        own = self.signals.received or self._server_signal()
        length, stops, *counts = self._workers.all_reduce_sum(
            [
                steps if self._workers.is_chief else 0,
                bool(self.reason),
                *(own == number for number in SIGNALS),
            ]
        )
        if stops:
            self.reason = self.reason or _OTHER_WORKER
        number = next((n for n, count in zip(SIGNALS, counts, strict=True) if count), None)
        if number is not None:
            save()
            self._workers.acknowledge()  # Saving ends with an agreement.
            raise Interrupted.for_step(number, step)
        if self._at_step is not None and step >= self._at_step:
            save()
            self._workers.acknowledge()
            raise StoppedAtStep(step)
        return length

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
    )
