"""Saves and restores the state of a run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from orbit_runner.checkpoint.directory import CheckpointFolder, Retention, save_listeners
from orbit_runner.checkpoint.record import CheckpointProblem, CheckpointRecord
from orbit_runner.checkpoint.restore import Restorer
from orbit_runner.checkpoint.writer import CheckpointWriter
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.numerics_record import describe_changes
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import RunnerError, format_list
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.state.initial_weights import initialize
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.initial_weights import LoadedWeights
from orbit_runner.utils.log import note, phase
from orbit_runner.utils.user_code import CodeComparison, user_code

if TYPE_CHECKING:
    from orbit_runner.state.initial_weights import AnyTask


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConditions:
    """The conditions of a run, which the record of each checkpoint includes."""

    config: str = ""  # SHA-256 of the resolved config.
    strategy: str = ""  # Includes the number of replicas.
    # What else determines the bits of the weights.
    numerics: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The code of the user's modules, compared with that of the checkpoint that was restored.
    code: CodeComparison = dataclasses.field(default_factory=CodeComparison)
    is_required: bool = True  # Whether a run with another config may not be resumed.
    # Why the config alone does not reproduce the weights. Grows if a checkpoint that was made under
    # other conditions is restored.
    inexact: list[str] = dataclasses.field(default_factory=list)
    # Returns the state of the callbacks by name.
    callbacks: Callable[[], Mapping[str, object]] = dict
    stopped: Callable[[], str] = str  # Returns why a callback asked to stop, or "".


class Checkpoints:
    """The checkpoints of one run, in `<model_dir>/checkpoints`.

    Only the chief changes the directory, and only if `writes` is set.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        state: TrainState,
        run: RunDirectory,
        workers: Workers,
        conditions: RunConditions,
        *,
        asynchronous: bool,
        writes: bool,  # False if the run only evaluates.
    ) -> None:
        self._config = config
        self._state = state
        self._run = run
        self.conditions = conditions
        self._workers = workers
        self._writes = writes and workers.is_chief
        checkpoint = state.checkpoint()
        self._restorer = Restorer(state, checkpoint, workers.strategy)
        keep = Retention(
            max_to_keep=config.trainer.max_to_keep,
            step_interval=config.trainer.keep_checkpoint_interval,
        )
        self.folder = CheckpointFolder(run.checkpoints, keep=keep, run=run.path)
        self._writer = CheckpointWriter(
            checkpoint,
            self.folder,
            # To save asynchronously, TensorFlow copies values to other variables, which all workers
            # would have to create together.
            asynchronous=asynchronous and workers.count == 1,
            trail=run.fingerprints,
            workers=workers,
            listeners=save_listeners,
        )
        self._saved: int | None = None
        # Whether a checkpoint was unusable or missing in the last restore.
        self.fell_back = False
        # The record of the checkpoint that was restored last, or None.
        self.restored: CheckpointRecord | None = None
        # The path of the checkpoint that the run started from, or None if there was none.
        self.started_from: str | None = None
        # What the model was initialized with; None if it was not, or restored.
        self.loaded: LoadedWeights | None = None
        if self._writes:
            for step in self.folder.clear_leftovers():
                note(
                    f"note: the checkpoint of step {step} was incomplete when the run stopped; "
                    "its files were removed"
                )

    @property
    def directory(self) -> str:
        """The path of the directory as a string, as TensorFlow expects it."""
        return str(self.folder.path)

    def find_latest(self) -> str | None:
        """Returns the latest checkpoint with an index, as the chief sees it, or None.

        All workers must call it at the same point.
        """
        steps = self.folder.committed_steps() if self._workers.is_chief else []
        return self._agree_on_checkpoint(max(steps, default=None))

    def _agree_on_checkpoint(self, step: int | None) -> str | None:
        """Returns the path of the checkpoint that the chief found, on every worker."""
        agreed = self._workers.broadcast_from_chief(-1 if step is None else step)
        if agreed < 0:
            return None
        path = self.folder.prefix(agreed)
        if not self._workers.all(path.with_suffix(".index").exists()):
            self._workers.acknowledge()
            raise RunnerError(
                f"the chief found {path}, but another worker did not\n"
                "use a directory that all workers share",
                path="--model_dir",
                code="bad-cluster",
            )
        return str(path)

    def restore_or_initialize(self, task: AnyTask) -> str | None:
        """Restores the latest usable checkpoint, or lets the task initialize a new model.

        Returns the path of the checkpoint, or None if there was none. Raises `RunnerError` if the
        checkpoint does not fit the model.
        """
        self.started_from = self.restore_latest()
        if self.started_from is not None:
            return self.started_from
        self._saved = None
        # The record has this start, too.
        if self._writes and not self.fell_back and len(self._run.attempts("train")) > 1:
            note(
                f"note: {self._run.path} was started before, but has no checkpoint: it begins at "
                "step 0"
            )
        with self._workers.strategy.scope():
            # Model Garden's runner accepts a directory without a checkpoint as `init_checkpoint`.
            self.loaded = initialize(task, self._state.model, may_be_empty=self._config.is_official)
            if self._state.ema is not None:
                self._state.ema.reset()
        return None

    def restore_latest(self) -> str | None:
        """Restores the latest intact checkpoint; returns its path, or None.

        Moves damaged checkpoints to another directory if `writes` is set. Raises `RunnerError` if
        the checkpoint does not fit the model.
        """
        path = self._agree_on_checkpoint(self._find_usable() if self._workers.is_chief else None)
        if path is not None:
            self.restore(path)
        return path

    def _find_usable(self) -> int | None:
        """Returns the step of the latest intact checkpoint, or None."""
        folder = self.folder
        if self._writes:
            self._report_missing()
        # If another process writes to the directory, it may still be writing one without an index.
        for step in reversed(folder.steps() if self._writes else folder.committed_steps()):
            problem = folder.problem(step)
            if problem is None:
                return step
            if not problem.is_gone:
                self._report_unusable(step, problem)
        if self.fell_back and self._writes:
            note("warning: no intact checkpoint is left; starting from the beginning")
        return None

    def _report_missing(self) -> None:
        """Warns if someone else has removed the newest checkpoint or the whole directory."""
        newest = self.folder.newest_step_of_run()
        if newest is None or newest in self.folder.steps():
            return
        self.fell_back = True
        what = "which" if self.folder.path.is_dir() else "whose directory"
        note(
            f"warning: the latest checkpoint of the run was {self.folder.prefix(newest)}, "
            f"{what} is missing"
        )

    def _report_unusable(self, step: int, problem: CheckpointProblem) -> None:
        self.fell_back = True
        what = f"ignored: {self.folder.prefix(step)}"
        if self._writes:
            with contextlib.suppress(OSError):
                what = f"moved to {self.folder.set_aside(step)}"
        note(f"warning: the checkpoint of step {step} {problem}\n  {what}")

    def check(self, path: str) -> None:
        """Raises `RunnerError` if a checkpoint is damaged."""
        problem = self.folder.problem(_step_of(path))
        if problem is not None:
            raise RunnerError(f"the checkpoint {path} {problem}", code="damaged-checkpoint")

    def restore(self, path: str) -> None:
        """Restores one checkpoint after checking that it fits.

        Raises `RunnerError` if it does not fit the model or cannot be read.
        """
        phase(f"restoring {path}", minor=True)
        self.restored = record = self.folder.require_record(_step_of(path))
        self._restorer.restore(path, record)
        if self._writes:
            self._compare_numerics(record)
        self._saved = int(self._state.global_step.numpy())

    def _compare_numerics(self, record: CheckpointRecord) -> None:
        changed = describe_changes(record.numerics, self.conditions.numerics)
        if changed:
            note(
                "note: the last bits of the weights may differ from before, because the machine\n"
                f"or installation has changed since step {record.step}:\n" + format_list(changed)
            )

    def save(self) -> None:
        """Saves the state at the global step, unless it has been saved.

        Raises `SaveError` if this checkpoint or the previous one could not be written, and
        `Diverged` if the weights of either are not finite.
        """
        step = int(self._state.global_step.numpy())
        if step == self._saved:
            return
        phase(f"saving at step {step}", minor=True)
        self._writer.write(record_of(self._state, self.conditions))
        self._saved = step

    @contextlib.contextmanager
    def completed_saves_scope(self) -> Iterator[None]:
        """Waits for the last save at the end of a `with` block, even after an error."""
        try:
            yield
        except KeyboardInterrupt:
            raise  # A second signal does not wait; earlier checkpoints are complete.
        except BaseException:
            with contextlib.suppress(RunnerError):
                self.sync()
            raise
        self.sync()

    def sync(self) -> None:
        """Waits until the last save is on the disk.

        Raises `SaveError` if it could not be written, and `Diverged` if its weights are not finite.
        """
        self._writer.sync()

    def raise_failure(self) -> None:
        """Raises the error of an asynchronous save if it has failed. Does not wait for the save."""
        self._writer.raise_failure()


def _step_of(path: str) -> int:
    return int(path.rpartition("-")[2])


def record_of(state: TrainState, conditions: RunConditions) -> CheckpointRecord:
    """Returns the record of a checkpoint of the current state, without its fingerprints."""
    return CheckpointRecord(
        step=int(state.global_step.numpy()),
        weights="",
        state="",
        config=conditions.config,
        optimizer=state.optimizer_kind,
        strategy=conditions.strategy,
        numerics=conditions.numerics,
        code=user_code(),
        assets=state.assets,
        inexact=(*conditions.inexact, *conditions.code.reasons()),
        non_finite=state.non_finite,
        callbacks=conditions.callbacks(),
        stopped=conditions.stopped(),
    )
