"""One run: the state that is trained, and the parts that train, evaluate and save it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.checkpoint.manager import CheckpointManager, Checkpoints, Circumstances
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.numerics_record import describe_numerics
from orbit_runner.distribute.cluster.shutdown import Host
from orbit_runner.distribute.parameter_server import is_asynchronous, own_strategy
from orbit_runner.distribute.process_group import Workers, describe_strategy
from orbit_runner.errors import SettingError
from orbit_runner.run_directory.data_record import DataRecord, fingerprint_of
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.records import has_evaluation, prepare_records
from orbit_runner.state.train_state import TrainState
from orbit_runner.storage.staged_config import localize
from orbit_runner.tasks.adapter import adapt
from orbit_runner.tasks.multitask import Evaluated
from orbit_runner.train.build_state import build_state
from orbit_runner.train.builders import Parts
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.callbacks.best_checkpoint import BestKeeper
from orbit_runner.train.callbacks.build import average_checkpoints, best_checkpoint, early_stop
from orbit_runner.train.callbacks.callback_list import CallbackList, make_callbacks
from orbit_runner.train.callbacks.interrupts import SignalGuard
from orbit_runner.train.callbacks.summaries import JsonLines
from orbit_runner.train.loops.loop_pieces import LoopPieces
from orbit_runner.train.reproducibility import inexact_reasons, resume_reasons
from orbit_runner.train.schedule import Plan, make_plan
from orbit_runner.train.stop_requests import StopRequests
from orbit_runner.train.trainer import compiles
from orbit_runner.utils.log import note, phase


class Run:
    """A run: what is trained, and the parts that do it. Callbacks get it with each call.

    Attributes:
        config: The experiment.
        task: What is learned.
        strategy: Where it runs.
        model_dir: The run directory.
        directory: The files in it, by name.
        state: What is trained.
        plan: The steps of the run.
        workers: The processes that train together.
        checkpoints: Its checkpoints.
        trainer: None in modes that only evaluate.
        evaluator: None in modes that only train.
        callbacks: Called at its events: the runner's own, then those that the config names, then
            those that the caller gave.
        best: Keeps the best checkpoint, where that is on.
        averages: Keeps checkpoints of the averaged weights, where Model Garden does.
        early_stop: Ends training early, where that is on.
        stops: What ends training before its last step.
        restored: The checkpoint that the run was resumed from, if any.
        own_strategy: Where this process itself computes: evaluations under `parameter_server`.
        records: Where records of the run go; None where none are written.
        written_config: The experiment as it was written, the same on every machine.
        circumstances: Config, strategy and numerics; noted in each checkpoint.
    """

    records: JsonLines | None = None

    def __init__(
        self,
        config: ExperimentConfig,
        task: Any,
        strategy: tf.distribute.Strategy,
        model_dir: Path,
        *,
        trains: bool,
        evaluates: bool,
        asynchronous: bool,
        allow_partial: bool = False,
        eval_tasks: dict[str, Evaluated] | None = None,
        callbacks: Sequence[Callback] = (),
        stop_at_step: int | None = None,
    ) -> None:
        """Builds the parts.

        Args:
            config: The experiment.
            task: Its task.
            strategy: Where it runs.
            model_dir: The run directory.
            trains: Whether the mode trains.
            evaluates: Whether the mode evaluates.
            asynchronous: Whether checkpoints are saved beside training.
            allow_partial: Whether a checkpoint may fit in part.
            eval_tasks: The tasks of evaluations by name; those of the experiment where None.
            callbacks: Called after those that the config names.
            stop_at_step: The step at which the run saves and ends, before its last one.

        Raises:
            RunnerError: The config asks for what the task does not have.
        """
        self.adapter = adapt(task, config.for_task.task)
        self.written_config, config = config, localize(config)
        self.config, self.task, self.strategy = config, self.adapter.task, strategy
        self.model_dir, self.directory = model_dir, RunDirectory(model_dir)
        self.workers, self.own_strategy = Workers(strategy), own_strategy(strategy)
        self.callbacks = CallbackList([*make_callbacks(config.callbacks), *callbacks])
        phase("building the model")
        if config.runtime.enable_xla and not compiles(config):
            note("runtime.enable_xla is for GPUs in Model Garden's experiments: not used")
        self.state: TrainState = build_state(config, self.adapter, strategy)
        self.plan: Plan = self._plan(trains)
        self.stops = self._stop_requests(stop_at_step)
        self.circumstances = self._circumstances(trains)
        self.checkpoints: CheckpointManager = self._checkpoints(
            asynchronous=asynchronous, writes=trains, allow_partial=allow_partial
        )
        if evaluates:
            self._require_batches()
        parts = Parts(config, self.adapter, strategy, self.state, str(model_dir), eval_tasks)
        with strategy.scope():
            self.trainer = parts.trainer(self.plan) if trains else None
        if self.trainer is not None:
            self.trainer.pieces = LoopPieces(config.runtime.grace_period, self.stops.next_piece)
        with self.own_strategy.scope():
            self.evaluator = parts.evaluator(self.validation_steps) if evaluates else None
        self.best: BestKeeper | None = best_checkpoint(self)
        self.averages = average_checkpoints(self)
        self.early_stop = early_stop(self)
        self.restored: str | None = None
        self._recorded_evaluation: int | None = None

    @property
    def step(self) -> int:
        """The global step."""
        return int(self.state.global_step.numpy())

    @property
    def train_steps(self) -> int:
        """The step that training goes to."""
        return self.plan.train_steps

    @property
    def model(self) -> Any:
        """The network, a `tf_keras.Model`."""
        return self.state.model

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes files."""
        return self.workers.is_chief

    def stop(self, reason: str) -> None:
        """Ends training before its last step: it evaluates where the mode does, saves and ends.

        Args:
            reason: Why, as a note shows it. An empty text does not stop the run.
        """
        self.stops.reason = self.stops.reason or reason

    def section(self, name: str) -> Any:
        """Returns a section of the task, such as `train_data`; None if it has none."""
        return getattr(self.config.for_task.task, name, None)

    @property
    def validation_steps(self) -> int:
        """Batches an evaluation; -1 for all there are, where their number is not known."""
        asked = self.config.trainer.validation_steps
        return self.adapter.validation_steps(self.section("validation_data"), asked)

    def restore_or_initialize(self) -> None:
        """Restores the latest checkpoint that is whole, or starts from step 0."""
        self.restored = self.checkpoints.restore_or_initialize(self.task)
        if self.restored:
            self.circumstances.inexact[:] = resume_reasons(self)
            self.restore_callbacks()
        if self.trainer is not None and self.is_chief:
            keeps = self.checkpoints.fell_back
            prepare_records(self.directory, self.step, note, keeps=keeps)
            if self.restored and has_evaluation(self.directory, self.step):
                self._recorded_evaluation = self.step
            if not self.callbacks.has(DataRecord):
                self._record_data()
            if self.best is not None:
                self.best.check_files()
        if self.restored:
            note(f"restored step {self.step} from {self.restored}")
        self.callbacks.on_run_begin(self)

    def restore_callbacks(self) -> None:
        """Gives callbacks the state that is in the restored checkpoint, in modes that train."""
        record = self.checkpoints.restored
        if self.trainer is None:
            return
        self.callbacks.set_state({} if record is None else record.callbacks)
        if record is not None and record.config == self.circumstances.config:
            self.stop(record.stopped)

    def is_new_evaluation(self, step: int) -> bool:
        """Returns whether the result of an evaluation is not on record yet.

        A finished run that is started again evaluates the weights of its last step once more.

        Args:
            step: The step of the weights.
        """
        return step != self._recorded_evaluation

    def inexact_reasons(self) -> list[str]:
        """Returns why the same config need not give the same weights again; nothing if it does."""
        return inexact_reasons(self)

    def leave_if_asked(self) -> None:
        """Saves and leaves if a signal came to any worker.

        Raises:
            Interrupted: A signal came.
        """
        self.stops.check(self.step, self.save)

    def save(self) -> None:
        """Saves a checkpoint and waits until it is whole."""
        self.checkpoints.save()
        self.checkpoints.sync()

    def _plan(self, trains: bool) -> Plan:
        data, trainer = self.section("train_data"), self.config.trainer
        per_epoch = self.adapter.steps_per_epoch(data)
        if not per_epoch and not trains:
            # Nobody counts epochs then.
            trainer = trainer.replace(train_epochs=0.0, validation_epochs=0.0)
        plan = make_plan(trainer, per_epoch)
        if trains and plan.train_steps < 1:
            raise SettingError("trainer.train_steps", "is 0; set it, or trainer.train_epochs")
        return plan

    def _stop_requests(self, at_step: int | None) -> StopRequests:
        # Servers of a run driven from outside do not share its directory, and outlive it.
        served = is_asynchronous(self.strategy) and not self.config.runtime.remote_cluster
        return StopRequests(
            self.workers,
            SignalGuard(on_terminate=self.config.trainer.preemption_on_demand_checkpoint),
            Host(self.model_dir) if served else None,
            note,
            at_step=at_step,
        )

    def _circumstances(self, trains: bool) -> Circumstances:
        return Circumstances(
            config=config_fingerprint(self.written_config),
            strategy=describe_strategy(self.strategy),
            numerics=describe_numerics(self.config.runtime),
            callbacks=(lambda: self.callbacks.get_state()) if trains else dict,
            stopped=lambda: self.stops.reason,
        )

    def _checkpoints(self, *, asynchronous: bool, writes: bool, allow_partial: bool) -> Checkpoints:
        return Checkpoints(
            self.state,
            self.directory.checkpoints,
            self.strategy,
            self.circumstances,
            max_to_keep=self.config.trainer.max_to_keep,
            # TensorFlow's copies for asynchronous saving are variables, which all workers would
            # have to make together.
            asynchronous=asynchronous and self.workers.count == 1,
            writes=writes,
            allow_partial=allow_partial,
            is_official=self.config.is_official,
            trail=self.directory.fingerprints,
            workers=self.workers,
        )

    def _record_data(self) -> None:
        """Writes `data.json`; a change is a note, as is a change of the config."""
        record = DataRecord(self.model_dir, fingerprint_of(self.config.task))
        if not self.restored:
            record = record.of_new_run()
        for text in record.notes():
            note(text)
        record.on_run_begin(self)

    def _require_batches(self) -> None:
        if self.validation_steps:
            return
        if self.config.trainer.validation_steps == 0:
            raise SettingError("trainer.validation_steps", "got 0, allowed: -1 or at least 1")
        raise SettingError(
            "task.validation_data.drop_remainder",
            "leaves nothing to evaluate: the set is smaller than one batch of "
            f"{self.section('validation_data').global_batch_size}",
        )
