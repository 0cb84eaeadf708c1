"""`RunRequest`: an experiment, and what a run of it is asked to do."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orbit
import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import EVALUATING, TRAINING
from orbit_runner.storage.staging import localize
from orbit_runner.train.callbacks.base import Callback

if TYPE_CHECKING:
    from orbit_runner.run_directory.data_record import DataRecord
    from orbit_runner.state.initial_weights import AnyTask

Action = Callable[[Any], None]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RunRequest:
    """An experiment, and what a run of it is asked to do; `train_lib.run_experiment` explains it.

    `config` has the paths that are the same on every machine.
    """

    config: ExperimentConfig
    task: AnyTask
    mode: str  # one of `orbit_runner.config.schema.modes.MODES`
    model_dir: Path  # the run directory
    strategy: tf.distribute.Strategy
    run_post_eval: bool = False
    save_summary: bool = True
    asynchronous: bool = False  # whether checkpoints are saved in the background
    callbacks: Sequence[Callback] = ()  # called after those in the config
    # The data, compared with those of the run so far; None: they are compared when it begins.
    data: DataRecord | None = None
    train_actions: Sequence[Action] = ()
    eval_actions: Sequence[Action] = ()
    controller_cls: type[orbit.Controller] = orbit.Controller
    summary_manager: orbit.utils.SummaryManagerInterface | None = None
    eval_summary_manager: orbit.utils.SummaryManagerInterface | None = None
    stop_at_step: int | None = None
    resume: str = "same"

    @functools.cached_property
    def local_config(self) -> ExperimentConfig:
        """The experiment, with the paths that this machine uses."""
        config: ExperimentConfig = localize(self.config)
        return config

    @property
    def trains(self) -> bool:
        """Whether the mode trains."""
        return self.mode in TRAINING

    @property
    def evaluates(self) -> bool:
        """Whether anything is evaluated."""
        return self.mode in EVALUATING or self.run_post_eval

    @property
    def follows(self) -> bool:
        """Whether the mode evaluates the checkpoints of a run in training."""
        return self.mode == "continuous_eval"
