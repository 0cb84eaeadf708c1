"""The parts of one run, put together; `loop.py` runs them."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.checkpoint.manager import Checkpoints, Circumstances
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.numerics_record import changes, describe_numerics
from orbit_runner.distribute.cluster.shutdown import Host
from orbit_runner.distribute.parameter_server import is_served, own_strategy
from orbit_runner.distribute.process_group import Workers, describe_strategy
from orbit_runner.errors import Diverged, RunnerError, SettingError
from orbit_runner.run_directory.config import is_made_with
from orbit_runner.run_directory.data_record import DataRecord, fingerprint_of, inexact_data
from orbit_runner.state.train_state import TrainState
from orbit_runner.storage.staged_config import localize
from orbit_runner.tasks.several import Evaluated
from orbit_runner.train.build_state import build_state
from orbit_runner.train.builders import Parts
from orbit_runner.train.callbacks.actions import AverageCheckpoints, BestCheckpoint, EarlyStop
from orbit_runner.train.callbacks.comparison import Comparison, require_metric
from orbit_runner.train.callbacks.interrupts import SIGNALS, Interrupted, SignalGuard
from orbit_runner.train.callbacks.summaries import JsonLines
from orbit_runner.train.inputs.distribute import same_order_reason, starts_anywhere
from orbit_runner.train.loops.loop_pieces import LoopPieces
from orbit_runner.train.schedule import Plan, make_plan
from orbit_runner.train.task_adapters.data_sections import (
    has_services,
    steps_per_epoch,
    validation_steps,
)
from orbit_runner.train.task_adapters.multitask import JointTask, is_multitask
from orbit_runner.train.task_adapters.pruning import pruning_action
from orbit_runner.train.trainer import compiles
from orbit_runner.utils.files import cut_records, recorded_steps, remove_leftovers, repair_records
from orbit_runner.utils.observer import Observer

Action = Callable[[Any], None]

FINGERPRINTS = "checkpoints/fingerprints.jsonl"
RECORDS = "metrics.jsonl"


class Session:
    """State, trainer, evaluator and what happens between their loops.

    Attributes:
        state: What is trained.
        plan: The steps of the run.
        checkpoints: Its checkpoints.
        trainer: None in modes that only evaluate.
        evaluator: None in modes that only train.
        best: Keeps the best checkpoint, where that is on.
        averages: Keeps checkpoints of the averaged weights, where Model Garden does.
        early_stop: Says when to end early, where that is on.
        restored: The checkpoint that the run goes on from, if any.
        signals: Remembers Ctrl-C, SIGTERM and SIGHUP.
        own_strategy: Where this process itself computes: evaluations under `parameter_server`.
        servers: The servers that are to leave with this process, where there are any.
        records: Where records of the run go; None where none are written.
    """

    records: JsonLines | None = None

    def __init__(
        self,
        config: ExperimentConfig,
        task: Any,
        strategy: tf.distribute.Strategy,
        model_dir: Path,
        observer: Observer,
        *,
        trains: bool,
        evaluates: bool,
        asynchronous: bool,
        allow_partial: bool = False,
        eval_tasks: dict[str, Evaluated] | None = None,
    ) -> None:
        """Builds the parts.

        Args:
            config: The experiment.
            task: Its task.
            strategy: Where it runs.
            model_dir: The folder of the run.
            observer: Is told what happens.
            trains: Whether the mode trains.
            evaluates: Whether the mode evaluates.
            asynchronous: Whether checkpoints are saved beside training.
            allow_partial: Whether a checkpoint may fit in part.
            eval_tasks: The tasks of evaluations by name; those of the experiment where None.

        Raises:
            RunnerError: The config asks for what the task does not have.
        """
        if is_multitask(task):
            task = JointTask(task, config.for_task.task)
        # Records have the config as it was written, the same on every machine.
        self._written_config, config = config, localize(config)
        self.config, self.task, self.strategy = config, task, strategy
        self.model_dir, self.observer = model_dir, observer
        self.workers = Workers(strategy)
        observer.phase("building the model")
        if config.runtime.enable_xla and not compiles(config):
            observer.note("runtime.enable_xla is for GPUs in Model Garden's experiments: not used")
        self.state: TrainState = build_state(config, task, strategy)
        self.plan: Plan = self._plan(trains)
        self._circumstances = Circumstances(
            config=config_fingerprint(self._written_config),
            strategy=describe_strategy(strategy),
            numerics=describe_numerics(config.runtime),
        )
        self.checkpoints = Checkpoints(
            self.state,
            model_dir / "checkpoints",
            strategy,
            observer,
            self._circumstances,
            max_to_keep=config.trainer.max_to_keep,
            # TensorFlow's copies for asynchronous saving are variables, which all workers would
            # have to make together.
            asynchronous=asynchronous and self.workers.count == 1,
            writes=trains,
            allow_partial=allow_partial,
            is_official=config.for_task is not config,
            trail=model_dir / FINGERPRINTS,
            workers=self.workers,
        )
        if evaluates:
            self._require_batches()
        self.own_strategy = own_strategy(strategy)
        parts = Parts(config, task, strategy, self.state, observer, str(model_dir), eval_tasks)
        with strategy.scope():
            self.trainer = parts.trainer(self.plan) if trains else None
        if self.trainer is not None:
            self.trainer.pieces = LoopPieces(config.runtime.grace_period, self._next_piece)
        with self.own_strategy.scope():
            self.evaluator = parts.evaluator(self.validation_steps) if evaluates else None
        self.best = self._best_checkpoint(trains) if evaluates else None
        self.averages = self._averages() if evaluates and trains else None
        self.early_stop = self._early_stop() if evaluates and trains else None
        self.restored: str | None = None
        self._recorded_evaluation: int | None = None
        self._pruning: Callable[[Any], None] | None = None
        # Servers of a run driven from outside do not share its folder, and outlive it.
        served = is_served(strategy) and not config.runtime.remote_cluster
        self.servers = Host(model_dir) if served else None
        self.signals = SignalGuard(on_terminate=config.trainer.preemption_on_demand_checkpoint)

    @property
    def step(self) -> int:
        """The global step."""
        return int(self.state.global_step.numpy())

    def _plan(self, trains: bool) -> Plan:
        data, trainer = self._section("train_data"), self.config.trainer
        per_epoch = steps_per_epoch(self.task, data)
        if not per_epoch and not trains:
            # Nobody counts epochs then.
            trainer = trainer.replace(train_epochs=0.0, validation_epochs=0.0)
        plan = make_plan(trainer, per_epoch)
        if trains and plan.train_steps < 1:
            raise SettingError("trainer.train_steps", "is 0; set it, or trainer.train_epochs")
        return plan

    def _section(self, name: str) -> Any:
        return getattr(self.config.for_task.task, name, None)

    @property
    def validation_steps(self) -> int:
        """Batches an evaluation; -1 for all there are, where their number is not known."""
        asked = self.config.trainer.validation_steps
        return validation_steps(self.task, self._section("validation_data"), asked)

    def _require_batches(self) -> None:
        if self.validation_steps:
            return
        if self.config.trainer.validation_steps == 0:
            raise SettingError("trainer.validation_steps", "got 0, allowed: -1 or at least 1")
        raise SettingError(
            "task.validation_data.drop_remainder",
            "leaves nothing to evaluate: the set is smaller than one batch of "
            f"{self._section('validation_data').global_batch_size}",
        )

    def _best_checkpoint(self, trains: bool) -> BestCheckpoint | None:
        trainer = self.config.trainer
        if not (trainer.best_checkpoint_export_subdir and trainer.best_checkpoint_eval_metric):
            return None
        self._require(trainer.best_checkpoint_eval_metric, "trainer.best_checkpoint_eval_metric")
        comparison = Comparison(
            trainer.best_checkpoint_eval_metric, trainer.best_checkpoint_metric_comp == "higher"
        )
        directory = self.model_dir / trainer.best_checkpoint_export_subdir
        return BestCheckpoint(
            comparison,
            directory,
            self.state,
            self._circumstances,
            # Beside training, what the training process remembers is not this process's own best.
            memory=self.state.best if trains else None,
            workers=self.workers,
            note=self.observer.note,
        )

    def _averages(self) -> AverageCheckpoints | None:
        # Our own experiments have the average in each checkpoint, and weights with it in the best.
        if self.config.for_task is self.config or self.state.ema is None:
            return None
        return AverageCheckpoints(
            self.model_dir,
            self.state,
            self._circumstances,
            keep=self.config.trainer.max_to_keep,
            workers=self.workers,
        )

    def _early_stop(self) -> EarlyStop | None:
        rule = self.config.trainer.early_stopping
        if rule is None:
            return None
        self._require(rule.metric, "trainer.early_stopping.metric")
        return EarlyStop(rule, self.state.early_stopping)

    def _require(self, metric: str, setting: str) -> None:
        assert self.evaluator is not None
        if not self.evaluator.gathers:
            require_metric(metric, self.evaluator.metric_names, setting)

    def restore_or_initialize(self) -> None:
        """Goes on from the newest checkpoint that is whole, or starts from step 0."""
        self.restored = self.checkpoints.restore_or_initialize(self.task)
        if self.restored:
            self._circumstances.inexact[:] = self._changes_since_checkpoint()
        if self.trainer is not None and self.workers.is_chief:
            self._prepare_records()
            if not self.observer.records_data:
                self._record_data()
            if self.best is not None:
                self.best.check_files()
        if self.trainer is not None:
            self._pruning = pruning_action(self.config, self.state, self.model_dir)
        if self.restored:
            self.observer.note(f"restored step {self.step} from {self.restored}")
        self.observer.ready(self.step)

    def _changes_since_checkpoint(self) -> list[str]:
        """Returns why the config alone does not lead to this checkpoint and on from it."""
        record, now = self.checkpoints.restored, self._circumstances
        if record is None:
            changed = ["from a checkpoint without a record, such as Model Garden's"]
        else:
            changed = [] if self._is_made_with(record.config) else ["with another config"]
            if record.strategy != now.strategy:
                changed.append(f"under another strategy ({record.strategy} → {now.strategy})")
            if changes(record.numerics, now.numerics):
                changed.append("on another machine or installation")
        if self.checkpoints.restored_partly:
            changed.append("with a part of its checkpoint")
        found = [] if record is None else list(record.inexact)
        if changed and self.step > 0:
            found.append(f"it was resumed at step {self.step} {', '.join(changed)}")
        return found

    def _is_made_with(self, fingerprint: str) -> bool:
        return is_made_with(self.model_dir, fingerprint, self._written_config)

    def _prepare_records(self) -> None:
        """Drops the records of steps that are about to be taken again."""
        remove_leftovers(self.model_dir)
        records = self.model_dir / RECORDS
        for path in (records, self.model_dir / FINGERPRINTS):
            repair_records(path, self.observer.note)
        if self.checkpoints.fell_back and records.exists():
            # They may be all that is left of a run whose checkpoints were removed.
            kept = records.with_name(f"{RECORDS}.before-step-{self.step}")
            shutil.copyfile(records, kept)
            self.observer.note(f"the records of later steps are kept in {kept}")
        for path in (records, self.model_dir / FINGERPRINTS):
            cut_records(path, after=self.step)
        if self.restored and (self.step, "validation") in recorded_steps(records):
            self._recorded_evaluation = self.step

    def _record_data(self) -> None:
        """Writes `data.json`; a change is a note, as is a change of the config."""
        record = DataRecord(self.model_dir, fingerprint_of(self.config.task))
        if not self.restored:
            record = record.of_new_run()
        for note in record.notes():
            self.observer.note(note)
        record.ready(self.step)

    def is_new_evaluation(self, step: int) -> bool:
        """Returns whether the result of an evaluation is not on record yet.

        A finished run that is started again evaluates the weights of its last step once more.

        Args:
            step: The step of the weights.
        """
        return step != self._recorded_evaluation

    def prune(self, logs: Any) -> None:
        """Prunes what the task has wrapped for it, after a loop.

        Args:
            logs: The output of the loop.
        """
        if self._pruning is not None:
            self._pruning(logs)

    def inexact(self) -> list[str]:
        """Returns why the same config need not give the same weights again; nothing if it does."""
        reasons = []
        if not self.config.runtime.deterministic:
            reasons.append("runtime.deterministic is false")
        unkeyed = self.trainer.unkeyed if self.trainer is not None else []
        if unkeyed:
            reasons.append(f"a resumed run draws otherwise at {len(unkeyed)} ops: {unkeyed[0]}")
        trials = int(self.state.recoveries.numpy())
        if trials:
            reasons.append(
                f"it went back {trials} times after diverging; a resumed run may see that elsewhere"
            )
        if is_served(self.strategy):
            reasons.append("updates of asynchronous workers come in no certain order")
        reasons += self._circumstances.inexact
        return [*reasons, *inexact_data(self.model_dir), *self._inexact_inputs()]

    def _inexact_inputs(self) -> Iterator[str]:
        if not isinstance(self.task, JointTask) and starts_anywhere(self.task):
            return
        if is_served(self.strategy) or not self.config.trainer.replay_inputs:
            yield "the task's input pipeline begins anew when a run is resumed"
        if has_services(self.config):
            yield "tf.data services hand out the task's batches in no certain order"

    def can_go_back(self) -> bool:
        """Returns whether trials are left after training diverged."""
        return int(self.state.recoveries.numpy()) < self.config.trainer.recovery_max_trials

    def record_divergence(self, error: Diverged) -> None:
        """Adds a record of a divergence to `metrics.jsonl`, where records are written.

        Args:
            error: What was found.
        """
        if self.records is not None:
            line = {"step": self.step, "split": "event", "time": round(time.time(), 3)}
            self.records.write({**line, "event": "diverged", "reason": error.reason})

    def go_back(self, reason: str) -> None:
        """Returns to the last checkpoint after training diverged.

        Args:
            reason: What was found.

        Raises:
            RunnerError: There is none that could be restored.
        """
        with contextlib.suppress(Diverged):
            self.checkpoints.sync()  # A save that is under way may be of weights that diverged.
        assert self.trainer is not None
        trials = int(self.state.recoveries.numpy()) + 1
        if self.checkpoints.restore_newest() is None:
            raise RunnerError(
                f"training diverged: {reason}\n"
                f"no whole checkpoint is left in {self.checkpoints.directory} to return to"
            )
        self.state.recoveries.assign(trials)
        self.trainer.rewind()
        same = same_order_reason(self._section("train_data"))
        order = f"the same order of examples, because {same}" if same else "another order"
        count = f"{trials} of {self.config.trainer.recovery_max_trials} times"
        self.observer.note(
            f"training diverged: {reason}\n"
            f"  returned to step {self.step} ({count}), continuing with {order}"
        )

    def leave_if_signalled(self, loop: int = 0) -> int:
        """Saves and leaves, where a signal came to any of the workers.

        Args:
            loop: The number of steps that this worker would take next.

        Returns:
            The number that the chief would take: loops go by the clock, and the clocks of workers
            differ.

        Raises:
            Interrupted: A signal came.
        """
        own = self.signals.received or self._asked_by_server()
        chosen, *counts = self.workers.sums(
            [loop if self.workers.is_chief else 0, *(own == number for number in SIGNALS)]
        )
        number = next((n for n, count in zip(SIGNALS, counts, strict=True) if count), None)
        if number is not None:
            self.save()
            raise Interrupted.at_step(number, self.step)
        return chosen

    def _next_piece(self, steps: int) -> int:
        """Returns how many steps all workers take next; 0 where a signal came to any of them."""
        asked = bool(self.signals.received or (self.servers and self.servers.leaving()))
        chosen, count = self.workers.sums([steps if self.workers.is_chief else 0, asked])
        return 0 if count else chosen

    def _asked_by_server(self) -> int | None:
        going = self.servers.leaving() if self.servers is not None else []
        if not going:
            return None
        self.observer.note(f"{', '.join(going)}: was asked to leave")
        return signal.SIGTERM

    def save(self) -> None:
        """Saves a checkpoint and waits until it is whole."""
        self.checkpoints.save()
        self.checkpoints.sync()
