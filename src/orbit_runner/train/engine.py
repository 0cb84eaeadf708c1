"""`EngineBuilder`: builds the trainer and the evaluator of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import LOGICAL_REPLICAS
from orbit_runner.data.step_batches import Chunks
from orbit_runner.distribute.process_group import is_asynchronous, local_strategy
from orbit_runner.errors import SettingError, unknown_name_message
from orbit_runner.model_garden.task_adapter import section_of
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.tasks.multitask import EvalTask, build_eval_tasks, model_of
from orbit_runner.train.evaluator import Evaluator
from orbit_runner.train.inputs.distribute import Partition, distribute
from orbit_runner.train.inputs.resident_batches import resident_batches
from orbit_runner.train.logical_replicas import LogicalEvaluator, LogicalTrainer, ShardEvaluator
from orbit_runner.train.multitask import TRAINERS, JointTrainer, MultiEvaluator, TaskEvaluator
from orbit_runner.train.parameter_servers import AsyncTrainer, ChiefEvaluator
from orbit_runner.train.schedule import Plan
from orbit_runner.train.trainer import LoopParts, Trainer

if TYPE_CHECKING:
    from orbit_runner.train.inputs.distribute import DataSection, Dataset


@dataclasses.dataclass(frozen=True)
class EngineBuilder:
    """Builds the trainer and the evaluator of a run."""

    config: ExperimentConfig
    adapter: TaskAdapter
    strategy: tf.distribute.Strategy
    state: TrainState
    logging_dir: str  # the run directory

    def build_trainer(self, plan: Plan, loop: LoopParts | None = None) -> Trainer:
        """Returns the trainer. Must be called in the strategy's scope.

        Raises SettingError if the settings do not allow the task to be trained.
        """
        loop = loop or LoopParts()
        if self.adapter.subtasks:
            return self._build_joint_trainer(plan, loop)
        data = section_of(self.config.for_task.task, "train_data")
        if is_asynchronous(self.strategy):
            return AsyncTrainer(self.config, self.adapter, self.state, plan, self.strategy, loop)

        def make_dataset(start_step: int) -> Dataset:
            return self._distribute_train_data(self.adapter, data, start_step)

        def make_chunks() -> Chunks | None:
            return resident_batches(
                self.config, self.strategy, self.adapter, self._seed_section(data)
            )

        cls = LogicalTrainer if self.config.runtime.logical_replicas else Trainer
        return cls(
            self.config,
            self.adapter.task,
            self.state,
            plan,
            self.strategy,
            make_dataset,
            make_chunks,
            loop,
        )

    def _build_joint_trainer(self, plan: Plan, loop: LoopParts) -> JointTrainer:
        self._reject_parameter_server()
        if self.config.runtime.logical_replicas:
            reason = "is not supported when several tasks are trained; omit it"
            raise SettingError(LOGICAL_REPLICAS, reason, code="not-supported")
        kind = self.config.for_task.trainer.trainer_type
        if kind not in TRAINERS:
            raise SettingError(
                "trainer.trainer_type",
                unknown_name_message("trainer", kind, list(TRAINERS)),
                code="not-allowed",
            )

        joint = self.adapter.task
        parts = self.adapter.subtasks

        def make_datasets(start_step: int) -> dict[str, Dataset]:
            return {
                name: self._distribute_train_data(
                    parts[name],
                    section_of(parts[name].task.task_config, "train_data", name),
                    count,
                )
                for name, count in trainer.batch_counts(start_step).items()
            }

        trainer = TRAINERS[kind](
            self.config, joint, self.state, plan, self.strategy, make_datasets, loop=loop
        )
        return trainer

    def _distribute_train_data(
        self, task: TaskAdapter, data: DataSection, start_step: int
    ) -> Dataset:
        replays = self.config.trainer.replay_inputs
        return distribute(
            self.strategy, task, self._seed_section(data), self.config.runtime, start_step,
            replays=replays,
        )  # fmt: skip

    def _seed_section(self, data: DataSection) -> DataSection:
        return resolve_data_config(data, self.config.runtime, int(self.state.recoveries.numpy()))

    def build_evaluator(self, steps: int) -> Evaluator | MultiEvaluator:
        """Returns the evaluator. Must be called in the scope of the strategy that evaluates.

        `steps` is the number of batches of an evaluation, or -1 if it is not known. Raises
        SettingError if the settings do not allow the task to be evaluated.
        """
        eval_tasks = self._tasks_to_evaluate()
        if eval_tasks:
            self._reject_parameter_server()
            return MultiEvaluator(
                {
                    name: TaskEvaluator(
                        self._build_task_evaluator(name, eval_task), eval_task.steps
                    )
                    for name, eval_task in eval_tasks.items()
                },
                self.state,
            )
        data = section_of(self.config.for_task.task, "validation_data")
        return self._build_single_evaluator(self.adapter, data, self.state, steps)

    def _tasks_to_evaluate(self) -> dict[str, EvalTask]:
        if self.adapter.subtasks:
            steps = self.adapter.task.multi.task_eval_steps
            return {n: EvalTask(p.task, steps.get(n)) for n, p in self.adapter.subtasks.items()}
        with self.strategy.scope():
            return build_eval_tasks(self.config, self.logging_dir)

    def _build_task_evaluator(self, name: str, eval_task: EvalTask) -> Evaluator:
        # Without the average, because `MultiEvaluator` applies it once for all tasks.
        state = dataclasses.replace(self.state, model=model_of(self.state.model, name), ema=None)
        data = section_of(eval_task.task.task_config, "validation_data", name)
        steps = eval_task.steps or self.config.trainer.validation_steps
        return self._build_single_evaluator(TaskAdapter(eval_task.task), data, state, steps)

    def _build_single_evaluator(
        self, task: TaskAdapter, data: DataSection, state: TrainState, steps: int
    ) -> Evaluator:
        config = self.config
        strategy = local_strategy(self.strategy)
        logical = config.runtime.logical_replicas
        cls: Callable[..., Evaluator] = (
            ChiefEvaluator if is_asynchronous(self.strategy) else Evaluator
        )
        # Model Garden's pipelines end with a part of a batch, which cannot be cut equally.
        takes_single_shards = bool(logical and (task.gathers_outputs or not task.starts_at_step))
        if logical:
            cls = partial(ShardEvaluator if takes_single_shards else LogicalEvaluator, logical)

        def make_dataset() -> Dataset:
            seeded = resolve_data_config(data, config.runtime)
            return distribute(
                strategy, task, seeded, config.runtime, must_end=steps < 0,
                takes_single_shards=takes_single_shards,
            )  # fmt: skip

        def make_chunks() -> Chunks | None:
            if task.gathers_outputs or takes_single_shards:
                return None
            return resident_batches(
                config, strategy, task, resolve_data_config(data, config.runtime)
            )

        return cls(
            task.task,
            state,
            strategy,
            make_dataset,
            seed=config.runtime.seed,
            counted=task.num_examples(data) is not None,
            full_batches=task.full_batches(data),
            gathers_outputs=task.gathers_outputs,
            partition=Partition(config, self.strategy, is_training=False),
            make_chunks=make_chunks,
        )

    def _reject_parameter_server(self) -> None:
        if is_asynchronous(self.strategy):
            raise SettingError(
                "runtime.distribution_strategy",
                "parameter_server supports only one task; use another strategy",
                code="not-supported",
            )
