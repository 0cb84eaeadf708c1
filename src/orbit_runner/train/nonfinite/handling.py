"""Decides what happens after training diverged: roll back, skip a step, or end the run.

The first step that is not finite is found by training again from the last checkpoint. A step is a
function of the state before it, the seed and its number, so it gives the same values each time.
Records, evaluations and callbacks are left out while steps are trained again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shlex
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from orbit_runner.checkpoint.finite_check import (
    NonFiniteTensor,
    describe_non_finite,
)
from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.errors import Diverged, RunnerError
from orbit_runner.run_directory.metric_records import SKIPPED
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.build_state import build_state_again
from orbit_runner.train.nonfinite.finite_check import FiniteCheck
from orbit_runner.train.reproducibility import retraining_reasons
from orbit_runner.train.rollback import can_roll_back, record_divergence, roll_back
from orbit_runner.train.run import Run
from orbit_runner.train.trainer import Trainer
from orbit_runner.utils.files import cut_records
from orbit_runner.utils.log import note, phase

_MAX_EXAMPLES = 8


def handle_divergence(run: Run, error: Diverged) -> None:
    """Prepares the run to continue after an error: from the last checkpoint, or before a bad step.

    If a step is not finite, and steps can be trained again, the run searches for the first such
    step. It then continues from the last checkpoint, without that step or only up to it. Raises
    `Diverged` if the run ends now.
    """
    run.workers.acknowledge()
    if can_roll_back(run):
        record_divergence(run, error)
        roll_back(run, error.reason)
        return
    rolls_back = run.config.trainer.rolls_back
    if rolls_back:
        record_divergence(run, error)
        raise error.explain(recoveries=run.config.trainer.recovery_max_trials)
    if error.step is not None or not error.non_finite:
        record_divergence(run, error)
        raise error
    bad, problem = _search_bad_step(run, error)
    if bad is None:
        record_divergence(run, error)
        raise error.explain(f"the first step that is not finite is unknown: {problem}")
    restart(run)
    if not _skip(run, bad):
        _end_run_before(run, bad)


def _search_bad_step(run: Run, error: Diverged) -> tuple[BadStep | None, str]:
    """Returns the first step that is not finite, or None and why it is not known."""
    reasons = retraining_reasons(run)
    if reasons:
        return None, reasons[0]
    note(
        f"training diverged: {error.reason}\n"
        "  training again from the last checkpoint to find the first step that is not finite"
    )
    end = run.step
    bad_step = find_first_bad_step(run, end)
    return bad_step, f"training again up to step {end} did not find it"


def _skip(run: Run, bad: BadStep) -> bool:
    """Skips a step from now on, if the config allows that. Returns whether it does."""
    assert run.trainer is not None
    settings = run.config.trainer
    skipped = run.trainer.skipped
    if settings.on_nonfinite != "skip" or len(skipped.found) >= settings.max_skipped_steps:
        return False
    skipped.found = tuple(sorted((*skipped.found, bad.step)))
    run.records.write_event({"event": SKIPPED, "skipped": list(skipped.found), "reason": str(bad)})
    note(
        f"{bad}\n{_examples(run, bad.step)}"
        f"  skipping step {bad.step} ({len(skipped.found)} of {settings.max_skipped_steps}), "
        f"continuing from step {run.step}"
    )
    return True


def _end_run_before(run: Run, bad: BadStep) -> None:
    """Makes the run save the weights before a step, and end there with an error."""
    run.stops.end_with_error(bad.step - 1, _error(run, bad))
    note(f"{bad}\n  training from step {run.step} to {bad.step - 1} to save its weights")
    # The run may have reached that step already.
    try:
        run.exit_if_requested()
    except Diverged as error:
        record_divergence(run, error)
        raise


def _error(run: Run, bad: BadStep) -> Diverged:
    step = bad.step
    directory = shlex.quote(str(run.model_dir))
    skipped = run.trainer.skipped.found if run.trainer is not None else ()
    steps = f"{len(skipped)} step is" if len(skipped) == 1 else f"{len(skipped)} steps are"
    used = f"; {steps} skipped already" if skipped else ""
    return Diverged(
        str(bad),
        non_finite=True,
        step=step,
        advice=(
            f"{_examples(run, step)}"
            f"  saved: the weights of step {step - 1}\n"
            f"`runner replay {directory} --step={step}` shows the layers and the examples of the "
            "step\n"
            "lower the learning rate, check the data, or leave the step out: add --resume=override "
            f"with trainer.skip_steps: [{step}] or trainer.on_nonfinite: skip{used}"
        ),
    )


def _examples(run: Run, step: int) -> str:
    """Returns a line with the examples of a step, or "" if they are not known."""
    if run.config.is_official or not run.is_chief:
        return ""
    recoveries = int(run.state.recoveries.numpy())
    section = resolve_data_config(run.config.task.train_data, run.config.runtime, recoveries)
    examples = None
    with contextlib.suppress(RunnerError, OSError):
        examples = run.config.data.training_examples(section, str(run.model_dir))
    if examples is None:
        return ""
    ids = [
        str(example) for example in examples.order.rows(step - 1).examples.tolist() if example >= 0
    ]
    more = f", … ({len(ids)} in all)" if len(ids) > _MAX_EXAMPLES else ""
    return f"  examples of step {step}: {', '.join(ids[:_MAX_EXAMPLES])}{more}\n"


@dataclasses.dataclass(frozen=True)
class BadStep:
    """A step after which the loss, a weight, a slot or an average is not finite."""

    step: int
    loss: float
    tensors: Sequence[NonFiniteTensor] = ()

    def __str__(self) -> str:
        loss = "" if math.isfinite(self.loss) else f"the loss is {self.loss:g}"
        causes = "; ".join(filter(None, (loss, describe_non_finite(self.tensors))))
        return f"step {self.step} is not finite: {causes}"


def find_first_bad_step(run: Run, bad: int) -> BadStep | None:
    """Returns the first step that is not finite; `bad` is a step at which values are not finite.

    Returns None if it cannot be found, because there is nothing to start from, or because the steps
    up to `bad` are finite now. Raises Interrupted if a worker received a signal.
    """
    assert run.trainer is not None
    check = run.trainer.finite_check
    if check is None:
        return None
    with check.paused_scope():
        return _Search(run, run.trainer, check).find(check.good_step, bad)


class _Search:
    def __init__(self, run: Run, trainer: Trainer, check: FiniteCheck) -> None:
        self._run = run
        self._trainer = trainer
        self._check = check
        self._loss = 0.0

    def find(self, good: int, bad: int) -> BadStep | None:
        """Returns the first step after `good`, up to `bad`, that is not finite."""
        if not return_to_checkpoint(self._run) or self._run.step >= bad:
            return None
        begin = self._run.step
        good = max(good, self._run.step)
        if good > begin:
            phase(f"training again from step {begin} to {good}")
        if not self._train(good):
            if good == begin:
                return None
            # Several workers know their losses only at the end of a loop.
            good, bad = begin, good
            return_to_checkpoint(self._run)
        start = StateCopy(self._run.state)
        # Long pieces first, then single steps in the piece that is not finite.
        for stride in (math.isqrt(bad - good), 1):
            phase(f"searching steps {good + 1} to {bad} for the first that is not finite")
            if self._run.step != good:
                start.restore(self._run.state)
                self._trainer.seek()
                if not self._train(good):
                    return None
            while self._train(min(bad, good + stride)):
                good = self._run.step
                if good == bad:
                    return None
            bad = self._run.step
        return BadStep(bad, self._loss, self._check.non_finite())

    def _train(self, step: int) -> bool:
        """Trains to a step. Returns whether all losses, and the values at that step, are finite."""
        losses = []
        while self._run.step < step:
            # Weights of the search are not saved: they lack what evaluations change.
            self._run.stops.exit_if_requested(self._run.step, self._save_checkpoint)
            logs = self._trainer.train(tf.constant(step - self._run.step, tf.int32))
            records = [logs, *(record for _, record in self._trainer.earlier_records)]
            losses += [float(record["training_loss"]) for record in records]
        self._loss = next((loss for loss in losses if not math.isfinite(loss)), 0.0)
        counts = self._check.counts_losses and not math.isfinite(self._loss)
        return not counts and self._check.is_finite()

    def _save_checkpoint(self) -> None:
        restart(self._run)
        self._run.save()


class StateCopy:
    """A copy of all values of a state, in the memory of the host."""

    def __init__(self, state: TrainState) -> None:
        self._values = [np.array(variable.numpy()) for variable in _variables(state)]

    def restore(self, state: TrainState) -> None:
        """Assigns the values to a state of the same structure."""
        for variable, value in zip(_variables(state), self._values, strict=True):
            variable.assign(value)


def _variables(state: TrainState) -> list[tf.Variable]:
    # With averages, which a run saves as slots. The view does not keep the checkpoint alive.
    checkpoint = tf.train.Checkpoint(**state.items(ema_in_optimizer=False))
    descendants = [*tf.train.TrackableView(checkpoint).descendants()]
    # Slots of legacy optimizers are no attributes of the optimizer.
    unique = {
        id(variable): variable
        for variable in (*descendants, *state.optimizer_variables())
        if isinstance(variable, tf.Variable)
    }
    return list(unique.values())


def return_to_checkpoint(run: Run) -> bool:
    """Restores the last checkpoint, or the initial state if there is none.

    Returns False if there is none and the initial state cannot be computed again.
    """
    assert run.trainer is not None
    with contextlib.suppress(Diverged):
        run.checkpoints.sync()  # The save in progress may be of weights that are not finite.
    if run.checkpoints.restore_latest() is None:
        if run.config.is_official:
            return False  # Its models may draw weights that depend on the process.
        StateCopy(build_state_again(run.config, run.adapter, run.strategy)).restore(run.state)
        run.checkpoints.restore_or_initialize(run.task)
    run.trainer.seek()
    return True


def restart(run: Run) -> None:
    """Returns to the last checkpoint and removes the records of later steps.

    Training continues as if the run had been started again. Steps that were skipped remain so.
    """
    assert run.trainer is not None
    skipped = run.trainer.skipped.found
    return_to_checkpoint(run)
    run.stops.reason = ""
    run.restore_callbacks()
    run.trainer.skipped.found = skipped
    if run.trainer.finite_check is not None:
        run.trainer.finite_check.good_step = run.step
    if run.records.are_of_training:
        for path in (run.directory.metrics, run.directory.fingerprints):
            cut_records(path, after=run.step)
        if run.best is not None:
            run.best.check_files()
