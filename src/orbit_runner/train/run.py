"""`Run`: the state that is trained, and the objects that train, evaluate and save it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.checkpoint.manager import Checkpoints
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.determinism.numerics_record import describe_changes
from orbit_runner.distribute.process_group import Workers, is_asynchronous
from orbit_runner.errors import format_list
from orbit_runner.model_garden.task_adapter import has_services
from orbit_runner.run_directory.branch import read_branch
from orbit_runner.run_directory.config import check_restored_config, is_made_with
from orbit_runner.run_directory.data_record import DataRecord, fingerprint_of, inexact_data
from orbit_runner.run_directory.evaluations import changed_data_settings
from orbit_runner.run_directory.metric_records import MetricLog, prepare_records
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.state.train_state import TrainState
from orbit_runner.storage.paths import is_remote
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.tasks.assets import Assets, assets_of
from orbit_runner.train.callbacks.base import CallbackList
from orbit_runner.train.callbacks.best_checkpoint import BestCheckpoint
from orbit_runner.train.callbacks.own_callbacks import EarlyStop
from orbit_runner.train.evaluator import Evaluator
from orbit_runner.train.records import Records
from orbit_runner.train.request import RunRequest
from orbit_runner.train.schedule import Plan
from orbit_runner.train.stop_requests import StopRequests
from orbit_runner.train.trainer import Trainer
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    import tf_keras

    from orbit_runner.state.initial_weights import AnyTask


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """A run: the state that is trained, and the objects that train, evaluate and save it.

    `run_builder.build_run` builds it, and nothing is replaced in it later. It is the first argument
    of each event method of a callback.
    """

    request: RunRequest  # with a schedule that has a number of steps, also where it was `auto`
    adapter: TaskAdapter  # describes what the task can do
    workers: Workers  # the processes that train together
    state: TrainState  # what a step changes: the model, the optimizer, the global step
    plan: Plan  # the steps at which the run records, evaluates, saves and ends
    stops: StopRequests  # the requests to stop before the last step
    checkpoints: Checkpoints
    trainer: Trainer | None  # None in modes that only evaluate
    evaluator: Evaluator | None  # None in modes that only train
    validation_steps: int  # the batches of an evaluation; -1 for all if their number is not known
    # In the order in which they are called: the runner's own, those in the config, and those that
    # the caller passed.
    callbacks: CallbackList
    records: Records

    @property
    def written_config(self) -> ExperimentConfig:
        """The experiment before its paths were made local; the same on every machine."""
        return self.request.config

    @property
    def config(self) -> ExperimentConfig:
        """The experiment, with the paths that this machine uses."""
        return self.request.local_config

    @property
    def task(self) -> AnyTask:
        """The task."""
        return self.adapter.task

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The distribution strategy."""
        return self.workers.strategy

    @property
    def directory(self) -> RunDirectory:
        """The paths of the files of the run."""
        return RunDirectory(self.model_dir)

    @property
    def model_dir(self) -> Path:
        """The run directory."""
        return self.request.model_dir

    @property
    def best(self) -> BestCheckpoint | None:
        """The callback that keeps the best checkpoint, or None if it is disabled."""
        return self.callbacks.find(BestCheckpoint)

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
    def model(self) -> tf_keras.Model:
        """The model, a `tf_keras.Model`."""
        return self.state.model

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files; always true without a cluster."""
        return self.workers.is_chief

    def stop(self, reason: str) -> None:
        """Ends training after the current loop.

        The run then evaluates if the mode does, saves a checkpoint and ends. In `continuous_eval`,
        it ends after the current evaluation.

        Args:
            reason: The reason, which is reported. Only the first counts. An empty string does
                not stop the run.
        """
        self.stops.reason = self.stops.reason or reason

    def section(self, name: str) -> Any:
        """Returns a section of the task's config, such as `train_data`, or None if it has none."""
        return getattr(self.config.for_task.task, name, None)

    def restore_or_initialize(self) -> None:
        """Restores the newest usable checkpoint, or initializes the weights at step 0.

        Then prepares the records of the run, and calls `on_run_begin` of the callbacks.
        """
        restored = self.checkpoints.restore_or_initialize(self.task)
        if restored:
            self._continue_run()
        if self.trainer is not None and self.is_chief:
            self._prepare_directory()
        if self.trainer is not None and self.evaluator is not None:
            self._prepare_evaluations(is_resumed=bool(restored))
        if self.trainer is not None and self.is_chief:
            self._write_data_record()
        if restored:
            note(f"restored step {self.step} from {restored}")
        elif self.is_chief:
            self._report_other_assets()
        if self.is_chief and self.trainer is not None and self.state.trained_layers is not None:
            note(self.state.trained_layers.describe(self.checkpoints.loaded))
        self.callbacks.call("on_run_begin", self)

    def _continue_run(self) -> None:
        """Checks that the restored checkpoint may be continued, and takes over what it records."""
        record = self.checkpoints.restored
        conditions = self.checkpoints.conditions
        assert record is not None
        if self.trainer is not None and conditions.is_required:
            check_restored_config(self.model_dir, record.config, self.written_config)
        conditions.inexact[:] = _resume_reasons(self)
        self.compare_code()
        self.restore_callbacks()

    def _prepare_directory(self) -> None:
        """Writes the assets, and cuts records of steps that are trained again."""
        fell_back = self.checkpoints.fell_back
        prepare_records(self.directory, self.step, note, keep_metrics=fell_back)
        assets = assets_of(self.task)
        if assets is not None:
            assets.write()

    def _write_data_record(self) -> None:
        """Writes `data.json`; reports changes of the data, unless the caller has."""
        data = self.request.data
        if data is None:
            data = DataRecord(self.model_dir, fingerprint_of(self.config.task))
            if self.checkpoints.started_from is None:
                data.clear_comparison()
            for text in data.notes():
                note(text)
        data.write(self.step)

    def _prepare_evaluations(self, *, is_resumed: bool) -> None:
        """Decides which earlier results count, before `config.yaml` and `data.json` are written."""
        if is_resumed and not self._forget_results_of_other_data():
            # The curves have one evaluation of each step.
            last = MetricLog(self.directory.metrics).last_records().get("validation", {})
            if last.get("step") == self.step:
                self.records.recorded_step = self.step
        if self.is_chief and self.best is not None:
            # A copy of one checkpoint lacks the trail, and leaves the best ones with the original.
            self.best.check_files(reports=self.directory.fingerprints.exists())

    def _forget_results_of_other_data(self) -> bool:
        """Resets the best result and early stopping if the data or losses of evaluations differ.

        Returns whether they differ from those of the run that made the restored checkpoint. Must be
        called by all workers.
        """
        lines = []
        if self.is_chief:
            branch = read_branch(self.model_dir)
            is_start = branch is not None and branch.step == self.step
            before = branch.parent if branch is not None and is_start else self.model_dir
            changes = changed_data_settings(before, self.written_config)
            lines = [
                f"{path}: {inline_yaml(now)}, before {inline_yaml(own)}"
                for path, (own, now) in changes.items()
            ]
            data = self.request.data
            files = () if data is None else data.difference.changes
            lines += [line for line in files if line.startswith("validation_data")]
        if lines:
            note(
                "note: evaluations are of other data or losses than before, so earlier results do "
                f"not count for the best checkpoint and early stopping:\n{format_list(lines)}"
            )
        is_other = bool(self.workers.broadcast_from_chief(int(bool(lines))))
        for callback in self.callbacks.callbacks:
            if is_other and isinstance(callback, (BestCheckpoint, EarlyStop)):
                callback.forget()
        return is_other

    def _report_other_assets(self) -> None:
        """Reports that initial weights belong to other classes or vocabularies, if they do."""
        loaded = self.checkpoints.loaded
        assets = assets_of(self.task)
        if loaded is None or assets is None or is_remote(loaded.source):
            return
        run = Path(loaded.source).parent.parent  # if the checkpoint is in the directory of a run
        parts = assets.differences(Assets(run)) if RunDirectory(run).assets.is_dir() else []
        if parts:
            note(
                f"note: task.init_checkpoint: {run} learned other things from its data, which the "
                f"loaded weights belong to:\n{format_list(parts)}\n"
                "task.init_ignore leaves out the layers that read or return them"
            )

    def restore_callbacks(self) -> None:
        """Restores the callbacks from the record of the restored checkpoint.

        If a callback stopped the run at this checkpoint and the config is the same, the run stays
        stopped. Does nothing in modes that only evaluate.
        """
        record = self.checkpoints.restored
        if self.trainer is None:
            return
        self.callbacks.set_state({} if record is None else record.callbacks)
        if record is not None and record.config == self.checkpoints.conditions.config:
            self.stop(record.stopped)

    def compare_code(self) -> None:
        """Reports the user's modules that changed since the restored checkpoint was saved."""
        record = self.checkpoints.restored
        if record is not None:
            self.checkpoints.conditions.code.begin(record.step, record.code)
        if self.is_chief:
            self.checkpoints.conditions.code.report()

    def inexact_reasons(self) -> list[str]:
        """Returns why the same config may not give the same weights again; [] if it does."""
        return [*_inexact_reasons(self)]

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


def _inexact_reasons(run: Run) -> Iterator[str]:
    if not run.config.runtime.deterministic:
        yield "runtime.deterministic is false"
    if unkeyed := run.trainer.unkeyed if run.trainer is not None else []:
        count = len(unkeyed)
        yield f"a resumed run draws different random numbers in {count} ops, such as {unkeyed[0]}"
    if is_asynchronous(run.strategy):
        yield "the order of updates by asynchronous workers is not deterministic"
    if trials := int(run.state.recoveries.numpy()):
        yield f"recoveries from divergence: {trials}; a resumed run may diverge at another step"
    yield from run.checkpoints.conditions.inexact
    yield from run.checkpoints.conditions.code.reasons()
    yield from run.adapter.inexact_reasons()
    yield from filter(None, (callback.inexact_reason for callback in run.callbacks.callbacks))
    yield from inexact_data(run.model_dir)
    if run.adapter.starts_at_step:
        return
    if is_asynchronous(run.strategy) or not run.config.trainer.replay_inputs:
        yield "the task's input pipeline starts over when a run is resumed"
    if has_services(run.config):
        yield "the order of batches from tf.data services is not deterministic"


def _resume_reasons(run: Run) -> Iterator[str]:
    """Yields why the config alone does not reproduce a resumed run."""
    record = run.checkpoints.restored
    assert record is not None
    now = run.checkpoints.conditions
    yield from record.inexact
    has_same_config = is_made_with(run.model_dir, record.config, run.written_config)
    changed = [] if has_same_config else ["with another config"]
    # With logical replicas, the weights do not depend on the strategy.
    if record.strategy != now.strategy and not run.config.runtime.logical_replicas:
        changed.append(f"under another strategy ({record.strategy} → {now.strategy})")
    if describe_changes(record.numerics, now.numerics):
        changed.append("on another machine or installation")
    if changed and run.step > 0:
        yield f"it was resumed at step {run.step} {', '.join(changed)}"
