"""Settings of training, evaluation, checkpoints and export."""

from __future__ import annotations

import math
import os.path
from collections.abc import Iterator

from orbit_runner.config.errors import Problem, conflict, not_allowed, not_divisible, not_set
from orbit_runner.config.schema.base import Config, GardenOnly, Rule, config_class, field
from orbit_runner.config.schema.optimizers import Optimization
from orbit_runner.config.schema.weights import NEVER, has_callbacks, rolls_back, stops_early, when
from orbit_runner.errors import unknown_name_message
from orbit_runner.registry import EXPORT_FORMATS
from orbit_runner.run_directory.paths import own_part

MAX_EPOCHS = 1e6
SAVED_MODEL = "saved_model"
FORMAT_NAMES = tuple(entry.name for entry in EXPORT_FORMATS.registered())

# The records of a run with `summary_interval: auto`, and the most steps that each averages over.
_AUTO_RECORDS = 100
_MOST_AUTO_STEPS = 1000
_LOOPS = "a loop is one graph; runtime.run_eagerly runs it step by step"
_LAYER_PATTERNS = "patterns of layer names, such as `stage1*`"


@config_class
class EarlyStopping(Config):
    """When to stop training early. Checked after each evaluation."""

    _rules = (
        Rule("patience", lambda early: early.patience is None and early.threshold is None,
             "neither patience nor threshold is set, so training never stops early", "not-set"),
    )  # fmt: skip
    metric: str = field("validation_loss", help="metric to monitor")
    metric_comp: str = field(
        "lower",
        allowed=("higher", "lower"),
        help="whether higher or lower values of the metric are better",
    )
    patience: int | None = field(
        None, ge=1, help="number of evaluations without improvement after which training stops"
    )
    min_delta: float = field(
        0.0, ge=0.0, help="minimum change of the metric that counts as an improvement"
    )
    threshold: float | None = field(None, help="stop as soon as the metric reaches this value")


@config_class
class LayerRate(Config):
    """The learning rate of some layers."""

    _rules = (
        Rule("layers", lambda rate: not rate.layers, f"is not set; it needs {_LAYER_PATTERNS}",
             "not-set"),
    )  # fmt: skip
    layers: list[str] = field((), help=_LAYER_PATTERNS)
    factor: float = field(
        1.0, gt=0.0, le=1000.0, help="factor of the learning rate of these layers"
    )


@config_class
class FineTuning(Config):
    """Which layers are trained, and with which learning rate."""

    freeze: list[str] = field((), help=f"layers that are not trained: {_LAYER_PATTERNS}")
    learning_rates: list[LayerRate] = field(
        (), help="factors of the learning rate; the first entry that matches a layer counts"
    )


_RULES = (
    Rule("train_epochs", lambda t: t.train_steps and t.train_epochs,
         "train_steps is {s.train_steps}; set only one of them", "conflict"),
    Rule("profile_steps",
         lambda t: (len(t.profile_steps) not in (0, 2)
                    or sorted(t.profile_steps) != [*t.profile_steps]),
         lambda t: f"got {[*t.profile_steps]}, allowed: the first and the last step, such as "
         "[101, 120], or []", "wrong-type"),
    Rule("keep_checkpoint_interval",
         lambda t: t.keep_checkpoint_interval and not t.checkpoint_steps(t.train_steps),
         "got {value}, but checkpoint_interval is 0, so there is one checkpoint, at the end",
         "conflict"),
    Rule("export_subdir", lambda t: t.export_formats and not t.export_subdir,
         "must be set, because export_formats is set", "not-set"),
    Rule("best_checkpoint_export_subdir",
         lambda t: t.best_checkpoint_export_subdir and not t.best_checkpoint_eval_metric,
         "got {value!r}, which has no effect without best_checkpoint_eval_metric\n"
         "set both or neither", "no-effect"),
    Rule("best_checkpoint_eval_metric",
         lambda t: t.best_checkpoint_eval_metric and not t.best_checkpoint_export_subdir,
         "got {value!r}, which has no effect without best_checkpoint_export_subdir\n"
         "set both or neither", "no-effect"),
    Rule("best_checkpoints_to_keep",
         lambda t: t.best_checkpoints_to_keep > 1 and not t.best_checkpoint_export_subdir,
         "got {value}, which has no effect without best_checkpoint_export_subdir\n"
         "set best_checkpoint_export_subdir and best_checkpoint_eval_metric", "no-effect"),
    Rule("keep_checkpoint_interval",
         lambda t: t.keep_checkpoint_interval and t.max_to_keep is None,
         "got {value}, which has no effect, because max_to_keep is null, which keeps all "
         "checkpoints", "no-effect"),
)  # fmt: skip


@config_class
class TrainerConfig(Config):
    """How to train and evaluate: the fields of Model Garden's `TrainerConfig`, and more."""

    _rules = _RULES
    garden_only = GardenOnly.settings(
        validation_summary_subdir=GardenOnly("validation", "it is always `validation`"),
        train_tf_while_loop=GardenOnly(True, _LOOPS),
        train_tf_function=GardenOnly(True, _LOOPS),
        eval_tf_function=GardenOnly(True, _LOOPS),
        eval_tf_while_loop=GardenOnly(False, _LOOPS),
        allow_tpu_summary=GardenOnly(False, "summaries are written between loops, on the host"),
    )
    optimizer_config: Optimization = field(
        factory=Optimization,
        help="optimizer, learning rate, warmup and moving average of the weights",
    )
    # The weights at a step do not depend on how many steps follow.
    train_steps: int = field(
        0,
        ge=0,
        holds_at_zero=True,
        exclusive_with="train_epochs",
        weights=NEVER,
        help="number of training steps",
    )
    train_epochs: float = field(
        0.0,
        ge=0.0,
        le=MAX_EPOCHS,
        exclusive_with="train_steps",
        weights=NEVER,
        help="number of training epochs, instead of train_steps",
    )
    # A run that rolls back may save where a loop of this many steps ends (checkpoint_interval: -1).
    steps_per_loop: int | str = field(
        "auto",
        ge=1,
        word="auto",
        weights=when(rolls_back),
        help="maximum number of training steps per loop; auto: no maximum; a loop takes about one "
        "second",
    )
    gradient_accumulation_steps: int = field(
        1, ge=1, le=65536, help="number of micro-batches per replica and step, to save memory"
    )
    validation_steps: int = field(
        -1,
        ge=-1,
        weights=when(stops_early),
        help="number of batches per evaluation; -1: the whole dataset",
    )
    # Loops of steps end when an evaluation is due.
    validation_interval: int = field(
        1000,
        ge=0,
        holds_at_zero=True,
        exclusive_with="validation_epochs",
        weights=when(stops_early, rolls_back),
        help="steps between evaluations; 0: only at the end",
    )
    validation_epochs: float = field(
        0.0,
        ge=0.0,
        le=1e6,
        exclusive_with="validation_interval",
        weights=when(stops_early, rolls_back),
        help="epochs between evaluations, instead of validation_interval",
    )
    min_steps_per_epoch: int = field(
        0,
        ge=0,
        weights=when(stops_early, rolls_back),
        help="least number of steps that train_epochs and validation_epochs count as an epoch, for "
        "small datasets",
    )
    summary_interval: int | str = field(
        "auto",
        ge=1,
        word="auto",
        weights=when(rolls_back, has_callbacks),
        help="number of steps that each training record averages over; auto: a hundredth of the "
        "run, at most 1000",
    )
    profile_steps: list[int] = field(
        (),
        ge=1,
        weights=NEVER,
        role="output",
        help="first and last training step to profile, such as [101, 120]; if empty: none",
    )
    system_metrics: bool = field(
        True, weights=NEVER, help="add memory and processor use to the training records"
    )
    report_interval: float = field(
        60.0, ge=0, weights=NEVER, help="seconds between updates of report.html; 0: write no report"
    )
    # The checkpoints that a run can return to.
    checkpoint_interval: int = field(
        1000,
        ge=-1,
        weights=when(rolls_back),
        help="steps between checkpoints; 0: only at the end, -1: steps_per_loop (if auto: "
        "summary_interval)",
    )
    max_to_keep: int | None = field(
        5, ge=1, weights=NEVER, help="maximum number of checkpoints to keep; null: all"
    )
    keep_checkpoint_interval: int = field(
        0,
        ge=0,
        weights=NEVER,
        help="checkpoints at multiples of this step, a multiple of checkpoint_interval, are kept "
        "in addition to max_to_keep; 0: none",
    )
    continuous_eval_timeout: int | None = field(
        3600,
        ge=0,
        weights=NEVER,
        help="seconds that continuous_eval waits for a new checkpoint; 0 or null: no limit",
    )
    best_checkpoint_export_subdir: str = field(
        "",
        subdirectory=True,
        weights=NEVER,
        help="subdirectory of the run directory for the best checkpoint; if empty: not saved",
    )
    best_checkpoint_eval_metric: str = field(
        "", weights=NEVER, help="validation metric that determines the best checkpoint"
    )
    best_checkpoint_metric_comp: str = field(
        "higher",
        allowed=("higher", "lower"),
        weights=NEVER,
        help="whether higher or lower values of that metric are better",
    )
    best_checkpoints_to_keep: int = field(
        1, ge=1, weights=NEVER, help="number of best checkpoints to keep, by that metric"
    )
    export_subdir: str = field(
        "",
        subdirectory=True,
        weights=NEVER,
        role="output",
        help="subdirectory of the run directory for the model exported after training; if empty: "
        "none",
    )
    export_formats: list[str] = field(
        (),
        weights=NEVER,
        role="output",
        help=f"formats of the export: {', '.join(FORMAT_NAMES[:-1])} and {FORMAT_NAMES[-1]}; "
        f"if empty: {SAVED_MODEL}",
    )
    early_stopping: EarlyStopping | None = field(
        None, help="criteria for stopping before the last step"
    )
    fine_tuning: FineTuning | None = field(None, help="frozen layers, and learning rates by layer")
    # Without rollbacks, divergence only ends the run.
    loss_upper_bound: float = field(
        1e6,
        le=math.inf,
        weights=when(rolls_back),
        help="training loss above which training counts as diverged; .inf: no bound",
    )
    recovery_begin_steps: int = field(
        0, ge=0, weights=when(rolls_back), help="first step at which loss_upper_bound applies"
    )
    recovery_max_trials: int = field(
        0,
        ge=-1,
        help="maximum rollbacks to the last checkpoint after divergence; 0: stop, -1: disable the "
        "check",
    )
    preemption_on_demand_checkpoint: bool = field(
        True, weights=NEVER, help="save a checkpoint on SIGTERM; SIGHUP and Ctrl-C always save one"
    )
    keep_code_patch: bool = field(
        True,
        weights=NEVER,
        help="save the uncommitted changes of the git repository to code.patch in the run "
        "directory",
    )
    replay_inputs: bool = field(
        True,
        help="on resume, replay pipelines that cannot seek up to the current step; false: restart "
        "them",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields (field, message) for settings that contradict each other."""
        yield from super().problems()
        keep_interval = self.keep_checkpoint_interval
        steps = self.checkpoint_steps(self.train_steps)
        if steps and keep_interval % steps:
            named = f"the steps between checkpoints ({steps})"
            yield not_divisible("keep_checkpoint_interval", keep_interval, steps, named)
        for name in ("best_checkpoint_export_subdir", "export_subdir"):
            got = getattr(self, name)
            if part := own_part(got):
                message = f"{part} in a run directory is for the run's own files\nuse another name"
                yield conflict(name, f"got {got!r}, but {message}")
        best = os.path.normpath(self.best_checkpoint_export_subdir or "..")
        if self.export_subdir and f"{os.path.normpath(self.export_subdir)}/".startswith(f"{best}/"):
            got = f"got {self.export_subdir!r}, which contains the best checkpoints"
            yield conflict("export_subdir", got)
        for name in self.export_formats if self.export_subdir else ():
            if name not in EXPORT_FORMATS:
                message = unknown_name_message("format", name, FORMAT_NAMES)
                yield not_allowed("export_formats", message)

    @property
    def has_length(self) -> bool:
        """Whether the number of training steps or epochs is set."""
        return bool(self.train_steps or self.train_epochs)

    def length_problems(self) -> Iterator[Problem]:
        """Yields (dotted path, message) if a run could not train, because it has no steps."""
        if not self.has_length:
            yield not_set("trainer.train_steps", "is 0; set it, or trainer.train_epochs")

    @property
    def rolls_back(self) -> bool:
        """Whether a run restores a checkpoint after divergence."""
        return self.recovery_max_trials > 0

    @property
    def checks_divergence(self) -> bool:
        """Whether divergence ends a run, or rolls it back."""
        return self.recovery_max_trials >= 0

    def summary_steps(self, train_steps: int) -> int:
        """Returns the number of steps of a record, in a run of so many steps."""
        if isinstance(self.summary_interval, int):
            return self.summary_interval
        return min(max(1, train_steps // _AUTO_RECORDS), _MOST_AUTO_STEPS)

    def checkpoint_steps(self, train_steps: int) -> int:
        """Returns the number of steps between checkpoints; 0 if one is saved only at the end."""
        if self.checkpoint_interval >= 0:
            return self.checkpoint_interval
        # Model Garden saves after each loop. With `auto`, the length of a loop depends on the speed
        # of the machine, so a checkpoint is saved at each record.
        steps = self.steps_per_loop
        return steps if isinstance(steps, int) else self.summary_steps(train_steps)
