"""`Run`: the state that is trained, and the objects that train, evaluate and save it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from orbit_runner.checkpoint.directory import CheckpointFolder, retention_of
from orbit_runner.checkpoint.latest_checkpoint import list_checkpoints
from orbit_runner.checkpoint.manager import CheckpointManager, Checkpoints, RunConditions
from orbit_runner.config.durations import describe_duration
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.schedule_length import follow_run
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.numerics_record import describe_numerics
from orbit_runner.distribute.cluster.heartbeat import Heartbeat
from orbit_runner.distribute.cluster.shutdown import ChiefShutdown
from orbit_runner.distribute.parameter_server import is_asynchronous, local_strategy
from orbit_runner.distribute.process_group import Workers, describe_strategy
from orbit_runner.distribute.sharded_variables import merge_shards
from orbit_runner.errors import DataError, SettingError, format_list
from orbit_runner.run_directory.config import check_same_config, keep_config
from orbit_runner.run_directory.data_record import (
    DataRecord,
    difference_from_record,
    fingerprint_of,
    require_unchanged_data,
)
from orbit_runner.run_directory.evaluations import OtherData, find_other_data
from orbit_runner.run_directory.metric_records import has_evaluation, prepare_records
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.state.layer_table import LayerGroup, format_table, has_table, layer_groups
from orbit_runner.state.train_state import TrainState
from orbit_runner.storage.paths import is_remote
from orbit_runner.storage.staging import localize
from orbit_runner.tasks.adapter import adapt
from orbit_runner.tasks.assets import Assets, assets_of
from orbit_runner.tasks.initial_weights import LoadedWeights
from orbit_runner.tasks.multitask import EvalTask
from orbit_runner.trackers.tracking import Tracking
from orbit_runner.train.build_state import build_state
from orbit_runner.train.callbacks.base import Callback, CallbackList, make_callbacks
from orbit_runner.train.callbacks.best_checkpoint import (
    BestCheckpoint,
    BestKeeper,
    Comparison,
    require_metric,
)
from orbit_runner.train.callbacks.interrupts import SignalGuard
from orbit_runner.train.callbacks.own_callbacks import AverageCheckpoints, EarlyStop
from orbit_runner.train.callbacks.summaries import JsonLines
from orbit_runner.train.earlier_results import forget_earlier_results
from orbit_runner.train.loops.loop_pieces import LoopPieces
from orbit_runner.train.nonfinite.finite_check import FiniteCheck, check_initial_weights
from orbit_runner.train.reproducibility import inexact_reasons, resume_reasons
from orbit_runner.train.run_builder import RunBuilder
from orbit_runner.train.run_warnings import class_warnings, run_warnings
from orbit_runner.train.schedule import Plan, check_stop_step, make_plan
from orbit_runner.train.step_profiler import build_step_profiler
from orbit_runner.train.stop_requests import StopRequests, TimeLimits, build_time_limits
from orbit_runner.utils.log import note, phase


class Run:
    """A run: the state that is trained, and the objects that train, evaluate and save it.

    It is the first argument of each event method of a callback.

    Attributes:
        config: The experiment, with the paths that this machine uses.
        task: The task.
        adapter: The task's adapter, which describes what the task can do.
        strategy: The distribution strategy.
        model_dir: The run directory.
        directory: The paths of the files in the run directory.
        state: The state that a step changes: the model, the optimizer, the global step.
        plan: The steps at which the run records, evaluates, saves and ends.
        workers: The processes that train together.
        checkpoints: The checkpoint manager.
        trainer: The trainer, or None in modes that only evaluate.
        evaluator: The evaluator, or None in modes that only train.
        callbacks: All callbacks in the order in which they are called: the runner's own, those in
            the config, and those that the caller passed.
        best: The callback that saves the best checkpoint, or None if it is disabled.
        averages: The callback that saves checkpoints of the averaged weights, or None if Model
            Garden would save none.
        other_data: How the data of a mode that only evaluates differ from the run's own validation
            data; empty if they are the same.
        early_stop: The callback that stops training early, or None if it is disabled.
        stops: The requests to stop before the last step.
        heartbeat: Tells the launcher, if there is one, the last step that this process finished.
        assets: What the run learned from its training data; None for tasks that do not use it.
        restored: The path of the checkpoint that the run started from, or None if there was none.
        local_strategy: The strategy for computations of this process alone, such as evaluations. It
            differs from `strategy` only under `parameter_server`.
        records: The writer of `metrics.jsonl`, or None if this process writes no records of
            training.
        tracking: The trackers of the config, except for TensorBoard. There are none in a process
            that writes no records.
        warnings: Why the results may not be what they seem, as far as it is known at the start.
        written_config: The experiment before its paths were made local; the same on every machine.
            Its schedule has a number of steps, also where it was `auto`.
        conditions: The config, the strategy and the numerics, which are recorded in each
            checkpoint.
    """

    assets: Assets | None
    records: JsonLines | None = None
    tracking = Tracking()

    def __init__(
        self,
        config: ExperimentConfig,
        task: Any,
        strategy: tf.distribute.Strategy,
        model_dir: Path,
        *,
        trains: bool,  # whether the mode trains
        evaluates: bool,  # whether the mode evaluates
        asynchronous: bool,  # whether training continues while a checkpoint is saved
        allow_partial: bool = False,  # whether a checkpoint may fit only in part
        # The tasks to evaluate by name; None for those of the experiment.
        eval_tasks: dict[str, EvalTask] | None = None,
        callbacks: Sequence[Callback] = (),  # called after those in the config
        # A step before the last one at which the run saves a checkpoint and ends.
        stop_at_step: int | None = None,
        started: float | None = None,  # when the run started, by `time.monotonic()`; None: now
        resume: str = "same",  # `override`: the run may be resumed with another config
    ) -> None:
        self.config = localize(config)
        self.assets = prepare_assets(task, self.config, model_dir, trains=trains)
        self.adapter = adapt(task, config.for_task.task)
        self.task = self.adapter.task
        self.strategy = strategy
        self.plan: Plan = self._build_plan(trains)
        self.written_config = follow_run(config, self.plan.train_steps)
        self.config = config = localize(self.written_config)
        self.model_dir = model_dir
        self.directory = RunDirectory(model_dir)
        self._accepts_changes = resume == "override"
        self.workers = Workers(strategy)
        self.local_strategy = local_strategy(strategy)
        self.warnings = self._find_warnings() if trains and self.is_chief else []
        for text in self.warnings:
            note(f"warning: {text}")
        self.callbacks = CallbackList([*make_callbacks(config.callbacks), *callbacks])
        phase("building the model")
        if config.runtime.enable_xla and not config.uses_xla:
            note("runtime.enable_xla is ignored: Model Garden experiments use XLA only on GPUs")
        self.state: TrainState = build_state(config, self.adapter, strategy)
        self.heartbeat = Heartbeat.from_environment()
        self.stops = self._build_stop_requests(
            stop_at_step, build_time_limits(config.trainer, started)
        )
        self.conditions = self._build_conditions(trains)
        self.checkpoints: CheckpointManager = self._build_checkpoints(
            asynchronous=asynchronous, writes=trains, allow_partial=allow_partial
        )
        if evaluates:
            self._require_batches()
        builder = RunBuilder(config, self.adapter, strategy, self.state, str(model_dir), eval_tasks)
        with strategy.scope():
            self.trainer = builder.build_trainer(self.plan) if trains else None
        if self.trainer is not None:
            self.trainer.pieces = LoopPieces(config.runtime.grace_period, self._next_piece_length)
            self.trainer.profiler = build_step_profiler(self)
            self.trainer.finite_check = self._build_finite_check()
        with self.local_strategy.scope():
            self.evaluator = builder.build_evaluator(self.validation_steps) if evaluates else None
        # Before anything that depends on which data is evaluated.
        self.other_data = self._find_other_data(evaluates=evaluates and not trains)
        self.best: BestKeeper | None = self._build_best_checkpoint()
        self.averages = self._build_average_checkpoints()
        self.early_stop = self._build_early_stop()
        self.restored: str | None = None
        self._recorded_evaluation: int | None = None

    @property
    def step(self) -> int:
        """The global step."""
        return int(self.state.global_step.numpy())

    @property
    def train_steps(self) -> int:
        """The last step of training."""
        return self.plan.train_steps

    @property
    def steps_per_epoch(self) -> float:
        """The number of steps in which each training example occurs once; 0 if unknown."""
        return self.plan.steps_per_epoch

    @property
    def examples_per_step(self) -> float:
        """The number of examples in a training batch, on average; 0 if unknown."""
        return self.adapter.examples_per_step(self.section("train_data"))

    @property
    def model(self) -> Any:
        """The model, a `tf_keras.Model`."""
        return self.state.model

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes files; always true without a cluster."""
        return self.workers.is_chief

    def stop(self, reason: str) -> None:
        """Ends training after the current loop.

        The run then evaluates if the mode does, saves a checkpoint and ends. In `continuous_eval`,
        it ends after the current evaluation.

        Args:
            reason: The reason, which is reported. Only the first one counts. An empty string does
                not stop the run.
        """
        self.stops.reason = self.stops.reason or reason

    @property
    def stopped_by_time(self) -> str:
        """How `trainer.max_time` ended training before its last step; "" if it did not."""
        time = self.config.trainer.max_time
        is_complete = self.step >= self.train_steps or self.stops.reason
        if time is None or is_complete or not self.stops.is_time_over:
            return ""
        return (
            f"stopped after {describe_duration(time)} at step {self.step} of {self.train_steps} "
            "(trainer.max_time)"
        )

    def section(self, name: str) -> Any:
        """Returns a section of the task's config, such as `train_data`, or None if it has none."""
        return getattr(self.config.for_task.task, name, None)

    @property
    def validation_steps(self) -> int:
        """The number of batches of an evaluation; -1 for all if their number is not known."""
        asked = self.config.trainer.validation_steps
        return self.adapter.validation_steps(self.section("validation_data"), asked)

    def restore_or_initialize(self) -> None:
        """Restores the newest usable checkpoint, or initializes the weights at step 0.

        Then prepares the records of the run, and calls `on_run_begin` of the callbacks.
        """
        self.restored = self.checkpoints.restore_or_initialize(self.task)
        if self.is_chief and self.checkpoints.loaded is not None:
            self._report_other_assets(self.checkpoints.loaded.source)
        if self.restored:
            self._check_config()
            self.conditions.inexact[:] = resume_reasons(self)
            self.compare_code()
            self.restore_callbacks()
        elif self.trainer is not None:
            check_initial_weights(self.config, self.state, self.strategy)
        if self.trainer is not None and self.is_chief:
            keep_config(self.model_dir, self.written_config)
            fell_back = self.checkpoints.fell_back
            prepare_records(self.directory, self.step, note, keep_metrics=fell_back)
            if not self.callbacks.has(DataRecord):
                self._record_data()
            if self.assets is not None:
                self.assets.write()
        if self.restored and self.trainer is not None and self.evaluator is not None:
            forget_earlier_results(self)
        if self.trainer is not None and self.is_chief:
            if self.restored and has_evaluation(self.directory, self.step):
                self._recorded_evaluation = self.step
            if self.best is not None:
                self.best.check_files()
        if self.trainer is None and self.is_chief and not self.other_data:
            self._report_changed_data()
        if self.restored:
            note(f"restored step {self.step} from {self.restored}")
        if self.is_chief and (groups := self.layer_groups):
            note("\n".join(["fine-tuning:", *format_table(groups)]))
        self.callbacks.on_run_begin(self)

    def _check_config(self) -> None:
        record = self.checkpoints.restored
        if self.trainer is not None and record is not None and not self._accepts_changes:
            check_same_config(self.model_dir, record.config, self.written_config)

    def restore_callbacks(self) -> None:
        """Restores the callbacks and the skipped steps from the record of the restored checkpoint.

        If a callback stopped the run at this checkpoint and the config is the same, the run stays
        stopped. Does nothing in modes that only evaluate.
        """
        record = self.checkpoints.restored
        if self.trainer is None:
            return
        self.trainer.skipped.found = () if record is None else tuple(record.skipped)
        self.callbacks.set_state({} if record is None else record.callbacks)
        if record is not None and record.config == self.conditions.config:
            self.stop(record.stopped)

    def compare_code(self) -> None:
        """Reports the user's modules that changed since the restored checkpoint was saved."""
        record = self.checkpoints.restored
        if record is not None:
            self.conditions.code.begin(record.step, record.code)
        if self.is_chief:
            self.conditions.code.report()

    @property
    def layer_groups(self) -> list[LayerGroup]:
        """The table of layers; empty if the run does not train, or its config does not fine-tune.

        Must be read after `restore_or_initialize`.
        """
        if self.trainer is None or not has_table(self.config):
            return []
        loaded = self.checkpoints.loaded
        if self.restored:
            variables = merge_shards(self.model.variables)
            loaded = LoadedWeights(self.restored, frozenset(map(id, variables)))
        return layer_groups(self.model, self.state.trained_layers, loaded)

    def is_new_evaluation(self, step: int) -> bool:
        """Returns whether the result of an evaluation has not been recorded yet.

        A finished run that is started again evaluates the weights of its last step again.

        Args:
            step: The step of the evaluated weights.
        """
        return step != self._recorded_evaluation

    def inexact_reasons(self) -> list[str]:
        """Returns why the same config may not give the same weights again; [] if it does."""
        return inexact_reasons(self)

    def exit_if_requested(self) -> None:
        """Saves a checkpoint and ends the run if any worker received a signal.

        Also ends it at `stop_at_step`. All workers must call it together.

        Raises:
            Interrupted: If a worker received a signal, or the step is reached.
        """
        self.stops.exit_if_requested(self.step, self.save)

    def save(self) -> None:
        """Saves a checkpoint and waits until it is on the disk."""
        self.checkpoints.save()
        self.checkpoints.sync()

    def _find_warnings(self) -> list[str]:
        names = getattr(self.task, "class_names", ())
        # A user's task may have an attribute of this name with another meaning.
        known = isinstance(names, Sequence) and all(isinstance(name, str) for name in names)
        return [*run_warnings(self.config, self.plan), *class_warnings(names if known else ())]

    def _build_plan(self, trains: bool) -> Plan:
        data = self.section("train_data")
        trainer = self.config.trainer
        per_epoch = self.adapter.steps_per_epoch(data)
        if not per_epoch and not trains:
            # Epochs cannot be converted to steps, and modes that only evaluate do not need it.
            trainer = trainer.replace(train_epochs=0.0, validation_epochs=0.0)
        plan = make_plan(trainer, per_epoch)
        if trains and plan.train_steps < 1:
            raise SettingError("trainer.train_steps", "is 0; set it, or trainer.train_epochs")
        return plan

    def _build_stop_requests(self, at_step: int | None, limits: TimeLimits) -> StopRequests:
        if at_step is not None:
            check_stop_step(at_step, self.train_steps)
        # The servers of a remote cluster do not share the run directory, and continue after the
        # run.
        served = is_asynchronous(self.strategy) and not self.config.runtime.remote_cluster
        return StopRequests(
            self.workers,
            SignalGuard(
                on_terminate=self.config.trainer.preemption_on_demand_checkpoint,
                preemption=self.config.runtime.preemption,
            ),
            ChiefShutdown(self.model_dir) if served else None,
            note,
            at_step=at_step,
            limits=limits,
        )

    def _next_piece_length(self, steps: int) -> int:
        self.heartbeat.beat(lambda: self.step)
        return self.stops.next_piece_length(steps)

    def _build_finite_check(self) -> FiniteCheck | None:
        trainer = self.config.trainer
        # A run that rolls back must detect divergence at the same step each time.
        if is_asynchronous(self.strategy) or trainer.rolls_back:
            return None
        assert self.trainer is not None
        # Several workers reduce their losses together, which happens at the end of a loop.
        counts = trainer.recovery_max_trials == 0
        reads = self.trainer.running_loss if self.workers.count == 1 else None
        return FiniteCheck(self.state, self.workers, reads, counts_losses=counts)

    def _build_conditions(self, trains: bool) -> RunConditions:
        return RunConditions(
            config=config_fingerprint(self.written_config),
            strategy=describe_strategy(self.strategy),
            numerics=describe_numerics(self.config.runtime),
            callbacks=(lambda: self.callbacks.get_state()) if trains else dict,
            stopped=lambda: self.stops.reason,
            skipped=lambda: self.trainer.skipped.found if self.trainer is not None else (),
        )

    def _build_checkpoints(
        self, *, asynchronous: bool, writes: bool, allow_partial: bool
    ) -> Checkpoints:
        return Checkpoints(
            self.state,
            self.directory.checkpoints,
            self.strategy,
            self.conditions,
            max_to_keep=retention_of(self.config.trainer),
            # To save asynchronously, TensorFlow copies values to other variables, which all
            # workers would have to create together.
            asynchronous=asynchronous and self.workers.count == 1,
            writes=writes,
            allow_partial=allow_partial,
            is_official=self.config.is_official,
            trail=self.directory.fingerprints,
            workers=self.workers,
        )

    def _build_best_checkpoint(self) -> BestCheckpoint | None:
        """Returns the callback that saves the best checkpoint, or None if it is disabled.

        Raises SettingError if evaluations do not report its metric.
        """
        trainer = self.config.trainer
        metric = trainer.best_checkpoint_eval_metric
        subdir = trainer.best_checkpoint_export_subdir
        if self.evaluator is None or self.other_data or not (subdir and metric):
            return None
        self._check_metric(metric, "trainer.best_checkpoint_eval_metric")
        return BestCheckpoint(
            Comparison(metric, trainer.best_checkpoint_metric_comp == "higher"),
            self.model_dir / subdir,
            self.state,
            self.conditions,
            # A process that only evaluates must not use the best result of the training process.
            memory=self.state.best if self.trainer is not None else None,
            workers=self.workers,
            keep=trainer.best_checkpoints_to_keep,
            note=note,
        )

    def _build_average_checkpoints(self) -> AverageCheckpoints | None:
        """Returns the callback that saves averaged weights; None if Model Garden would not."""
        if self.evaluator is None or self.trainer is None or self.state.ema is None:
            return None
        # This runner's own experiments save the average in each checkpoint, and averaged weights in
        # the best checkpoint.
        if not self.config.is_official:
            return None
        return AverageCheckpoints(
            self.model_dir,
            self.state,
            self.conditions,
            keep=self.config.trainer.max_to_keep,
            workers=self.workers,
        )

    def _build_early_stop(self) -> EarlyStop | None:
        """Returns the callback that stops training early, or None if it is disabled.

        Raises SettingError if evaluations do not report its metric.
        """
        rule = self.config.trainer.early_stopping
        if rule is None or self.evaluator is None or self.trainer is None:
            return None
        self._check_metric(rule.metric, "trainer.early_stopping.metric")
        return EarlyStop(rule, self.state.early_stopping)

    def _check_metric(self, metric: str, setting: str) -> None:
        assert self.evaluator is not None
        if not self.evaluator.gathers:
            require_metric(metric, self.evaluator.metric_names, setting)

    def _find_other_data(self, *, evaluates: bool) -> OtherData:
        """Returns how a mode that only evaluates differs from the evaluations of training."""
        other_data = OtherData()
        if evaluates:
            other_data = find_other_data(self.model_dir, self.written_config)
        if other_data and self.is_chief:
            note(other_data.note())
        return other_data

    def _record_data(self) -> None:
        """Writes `data.json`, and reports changes of the data since the run last started."""
        record = DataRecord(self.model_dir, fingerprint_of(self.config.task))
        if not self.restored:
            record = record.clear_comparison()
        for text in record.notes():
            note(text)
        record.on_run_begin(self)

    def _report_other_assets(self, source: str) -> None:
        """Reports that initial weights belong to other classes or vocabularies, if they do.

        `source` is the path of the checkpoint, which may be in the directory of a run.
        """
        run = Path(source).parent.parent
        if self.assets is None or is_remote(source) or not RunDirectory(run).assets.is_dir():
            return
        parts = self.assets.differences(Assets(run))
        if parts:
            note(
                f"note: task.init_checkpoint: {run} learned other things from its data, which the "
                f"loaded weights belong to:\n{format_list(parts)}\n"
                "task.init_ignore leaves out the layers that read or return them"
            )

    def _report_changed_data(self) -> None:
        """Reports that an evaluation reads other validation data than the run did, if it does."""
        try:
            difference = difference_from_record(self.config.task, self.model_dir)
        except (DataError, SettingError, OSError):
            return  # The training data is not needed, and may not be there.
        for lines, what in (
            (difference.changes, "the validation data changed since the run last started"),
            (difference.notes, "these files were modified since the run last started"),
        ):
            changes = [line for line in lines if line.startswith("validation_data")]
            if changes:
                note(f"note: {what}:\n{format_list(changes)}")

    def _require_batches(self) -> None:
        if self.validation_steps:
            return
        if self.config.trainer.validation_steps == 0:
            raise SettingError("trainer.validation_steps", "got 0, allowed: -1 or at least 1")
        raise SettingError(
            "task.validation_data.drop_remainder",
            "leaves nothing to evaluate: the dataset is smaller than one batch of "
            f"{self.section('validation_data').global_batch_size}",
        )


def prepare_assets(
    task: Any, config: ExperimentConfig, model_dir: Path, *, trains: bool
) -> Assets | None:
    """Returns the assets of a task: a new run computes them, any other one reads them."""
    assets = assets_of(task)
    if assets is None:
        return None
    if trains and not list_checkpoints(CheckpointFolder(RunDirectory(model_dir).checkpoints)):
        assets.discard()
    elif not trains:
        assets.require_unchanged_data = partial(require_unchanged_data, config.task, model_dir)
    return assets
