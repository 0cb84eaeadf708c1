"""Settings of training, evaluation, checkpoints and export."""

from __future__ import annotations

import dataclasses
import math
import os.path
from collections.abc import Iterator

from orbit_runner.config.schema.base import Config, field
from orbit_runner.config.schema.optimizers import Optimization


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlyStopping(Config):
    """When to stop training early. Checked after each evaluation."""

    metric: str = field("validation_loss", help="the metric that is watched")
    metric_comp: str = field("lower", allowed=("higher", "lower"), help="which is better")
    patience: int | None = field(
        None, ge=1, help="evaluations without a better value before the end"
    )
    min_delta: float = field(0.0, ge=0.0, help="what counts as better, at least")
    threshold: float | None = field(None, help="end as soon as the metric is this good")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) if no criterion is set."""
        if self.patience is None and self.threshold is None:
            yield "patience", "neither patience nor threshold is set, so nothing would ever stop"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainerConfig(Config):
    """How to train and evaluate: the fields of Model Garden's `TrainerConfig`, and more."""

    optimizer_config: Optimization = field(factory=Optimization, help="how weights change")
    train_steps: int = field(
        0, ge=0, holds_at_zero=True, exclusive_with="train_epochs", help="steps in all"
    )
    train_epochs: float = field(
        0.0,
        ge=0.0,
        le=1e6,
        exclusive_with="train_steps",
        help="passes over the data, in place of steps",
    )
    steps_per_loop: int | str = field(
        "auto", ge=1, help="steps between two looks by the host; auto: about a second's worth"
    )
    gradient_accumulation_steps: int = field(
        1, ge=1, le=65536, help="pieces a replica's batch is cut into, to save memory"
    )
    validation_steps: int = field(-1, ge=-1, help="batches an evaluation; -1: all there are")
    validation_interval: int = field(
        1000,
        ge=0,
        holds_at_zero=True,
        exclusive_with="validation_epochs",
        help="steps between evaluations; 0: only at the end",
    )
    validation_epochs: float = field(
        0.0,
        ge=0.0,
        le=1e6,
        exclusive_with="validation_interval",
        help="passes over the data between evaluations; in place of validation_interval where set",
    )
    summary_interval: int = field(1000, ge=1, help="steps that one record averages over")
    checkpoint_interval: int = field(
        1000,
        ge=-1,
        help="steps between checkpoints; 0: only at the end; -1: after each steps_per_loop steps, "
        "or summary_interval steps where that is auto",
    )
    max_to_keep: int | None = field(5, ge=1, help="checkpoints kept; null: all")
    continuous_eval_timeout: int | None = field(
        3600,
        ge=0,
        help="seconds that continuous_eval waits for a new checkpoint; null or 0: no limit",
    )
    best_checkpoint_export_subdir: str = field(
        "", subdirectory=True, help="folder of the best checkpoint, if any"
    )
    best_checkpoint_eval_metric: str = field("", help="the metric that tells which is best")
    best_checkpoint_metric_comp: str = field(
        "higher", allowed=("higher", "lower"), help="which value is better"
    )
    export_subdir: str = field(
        "",
        subdirectory=True,
        help="folder of the SavedModel that is written after training, as `runner export` does; "
        "best_checkpoint_export_subdir holds a checkpoint",
    )
    export_checkpoint: str | None = field(
        None, allowed=(None, "newest", "best"), help="what is exported; the newest where unset"
    )
    export_weights: str | None = field(
        None,
        allowed=(None, "average", "plain"),
        help="with an average of the weights or without; as evaluation does where unset",
    )
    early_stopping: EarlyStopping | None = field(None, help="when to end before the last step")
    loss_upper_bound: float = field(
        1e6, le=math.inf, help="a larger training loss counts as diverged; .inf: no bound"
    )
    recovery_begin_steps: int = field(0, ge=0, help="step from which the bound holds")
    recovery_max_trials: int = field(
        0,
        ge=-1,
        help="times to return to the last checkpoint after training diverged; 0: end; "
        "-1: do not check the loss",
    )
    preemption_on_demand_checkpoint: bool = field(
        True, help="save on SIGTERM before leaving, as SIGHUP and Ctrl-C always do"
    )
    replay_inputs: bool = field(
        True,
        help="on resume, have pipelines that can only begin at their beginning make the batches "
        "before once more, for exactness; false: they begin anew",
    )
    validation_summary_subdir: str = field(
        "validation", subdirectory=True, help="folder of evaluation summaries"
    )
    train_tf_while_loop: bool = field(True, help="run a loop of steps as one graph")
    train_tf_function: bool = field(True, help="run a training step as a graph")
    eval_tf_function: bool = field(True, help="run an evaluation step as a graph")
    eval_tf_while_loop: bool | None = field(
        None, help="run an evaluation as one graph; null: where the task allows it"
    )
    allow_tpu_summary: bool = field(
        False,
        help="summaries inside a step on TPUs",
        ignored="summaries are written between loops, on the host",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) for settings that contradict each other."""
        if isinstance(self.steps_per_loop, str) and self.steps_per_loop != "auto":
            yield "steps_per_loop", f"got {self.steps_per_loop!r}, allowed: 'auto' or a number"
        if self.train_steps and self.train_epochs:
            yield "train_epochs", f"train_steps is {self.train_steps}; set one of the two"
        if self.train_tf_while_loop and not self.train_tf_function:
            yield "train_tf_function", "train_tf_while_loop needs it; set that to false as well"
        if self.eval_tf_while_loop and not self.eval_tf_function:
            yield "eval_tf_function", "eval_tf_while_loop needs it; set that to false as well"
        yield from self._schedule_problems()
        if _same_folder(self.best_checkpoint_export_subdir, "checkpoints"):
            got = self.best_checkpoint_export_subdir
            yield "best_checkpoint_export_subdir", f"got {got!r}, where the other checkpoints are"
        yield from self._export_problems()

    def inert(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) if only one of the two best-checkpoint settings is set."""
        subdir, metric = "best_checkpoint_export_subdir", "best_checkpoint_eval_metric"
        for name, other in ((subdir, metric), (metric, subdir)):
            value = getattr(self, name)
            if value and not getattr(self, other):
                yield name, f"got {value!r}, which has no effect without {other}\nset both or none"

    def _export_problems(self) -> Iterator[tuple[str, str]]:
        best, ema = self.best_checkpoint_export_subdir, self.optimizer_config.ema
        if not self.export_subdir:
            for name in ("export_checkpoint", "export_weights"):
                if getattr(self, name) is not None:
                    yield "export_subdir", f"has to be set too: {name} says what is exported"
            return
        if _same_folder(self.export_subdir, "checkpoints", best):
            yield "export_subdir", f"got {self.export_subdir!r}, where checkpoints are"
        if self.export_checkpoint == "best" and not best:
            yield "export_checkpoint", "got 'best', and best_checkpoint_export_subdir is not set"
        if self.export_weights == "average" and ema is None:
            yield "export_weights", "got 'average', and optimizer_config.ema is not set"
        if self.export_weights == "plain" and self.export_checkpoint == "best" and ema is not None:
            yield "export_weights", "got 'plain', and the best checkpoint holds averaged weights"

    def _schedule_problems(self) -> Iterator[tuple[str, str]]:
        rate = self.optimizer_config.learning_rate
        pieces = rate.step_cosine_with_offset
        if rate.type != "step_cosine_with_offset" or not pieces.boundaries:
            return
        end = pieces.boundaries[-1] + pieces.offset
        if self.train_steps > end:
            path = "optimizer_config.learning_rate.step_cosine_with_offset.boundaries"
            yield path, f"the rate is NaN from step {end} on, and train_steps is {self.train_steps}"


def _same_folder(path: str, *others: str) -> bool:
    return bool(path) and os.path.normpath(path) in [os.path.normpath(o) for o in others if o]
