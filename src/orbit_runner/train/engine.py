"""`EngineBuilder`: builds the trainer and the evaluator of a run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.chunks import Chunks
from orbit_runner.distribute.process_group import is_asynchronous, local_strategy
from orbit_runner.errors import SettingError
from orbit_runner.model_garden.task_adapter import section_of
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.adapter import TaskAdapter
from orbit_runner.tasks.multitask import EvalTask, build_eval_tasks, model_of
from orbit_runner.train.evaluator import (
    Evaluator,
    TaskEvaluation,
    evaluate_on_replica,
)
from orbit_runner.train.inputs.batches import Batches, resident_batches
from orbit_runner.train.inputs.distribute import Partition, distribute
from orbit_runner.train.logical_replicas import Shards, sum_gradients_over_shards
from orbit_runner.train.multitask import build_steps
from orbit_runner.train.parameter_servers import WorkerBatches, copy_to_chief
from orbit_runner.train.schedule import Plan
from orbit_runner.train.step_profiler import StepProfiler
from orbit_runner.train.steps import TrainStep, build_task_step, run_on_replica
from orbit_runner.train.trainer import Trainer

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

    def build_trainer(
        self,
        plan: Plan,
        *,
        profiler: StepProfiler | None = None,
        records_in_graph: bool = False,
    ) -> Trainer:
        """Returns the trainer. Must be called in the strategy's scope.

        Raises SettingError if the settings do not allow the task to be trained.
        """
        runtime = self.config.runtime
        step, batches = self._several_tasks() if self.adapter.subtasks else self._single_task()
        if is_asynchronous(self.strategy):
            # The workers share a loop, so none of them knows when a record ends.
            records_in_graph = False
        elif not runtime.logical_replicas:
            step = run_on_replica(step, self.state, runtime.seed)
        return Trainer(
            self.config, self.state, plan, self.strategy, step, batches,
            profiler=profiler, records_in_graph=records_in_graph,
        )  # fmt: skip

    def _single_task(self) -> tuple[TrainStep, Batches]:
        config = self.config
        strategy = self.strategy
        adapter = self.adapter
        data = section_of(config.for_task.task, "train_data")
        step = build_task_step(config, adapter.task, self.state, strategy)
        if is_asynchronous(strategy):
            return step, WorkerBatches(config, adapter, self.state, strategy)
        if config.runtime.logical_replicas:
            step = sum_gradients_over_shards(step, config, adapter.task, self.state, strategy)

        def make_dataset(start_step: int) -> Dataset:
            return self._distribute_train_data(adapter, data, start_step)

        def make_chunks() -> Chunks | None:
            return resident_batches(config, strategy, adapter, self._seed_section(data))

        return step, Batches(strategy, make_dataset, make_chunks)

    def _several_tasks(self) -> tuple[TrainStep, Batches]:
        self._reject_parameter_server()
        tasks = self.adapter.subtasks
        steps = build_steps(self.config, self.adapter.task, self.state)

        def make_datasets(start_step: int) -> dict[str, Dataset]:
            return {
                name: self._distribute_train_data(
                    tasks[name],
                    section_of(tasks[name].task.task_config, "train_data", name),
                    count,
                )
                for name, count in steps.batch_counts(start_step).items()
            }

        step = TrainStep(
            build=steps.build,
            metrics=steps.metrics,
            owner=self.adapter.task.multi,
            repeats=1 if steps.has_one_graph else None,
        )
        return step, Batches(self.strategy, make_datasets, take=steps.take)

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

    def build_evaluator(self, steps: int) -> Evaluator:
        """Returns the evaluator. Must be called in the scope of the strategy that evaluates.

        `steps` is the number of batches of an evaluation, or -1 if it is not known. Raises
        SettingError if the settings do not allow the task to be evaluated.
        """
        state = self.state
        weights_scope: Callable[[], contextlib.AbstractContextManager[None]] = (
            contextlib.nullcontext if state.ema is None else state.ema.applied_scope
        )
        evaluations = {}
        for name, eval_task in self._tasks_to_evaluate().items():
            self._reject_parameter_server()
            evaluations[name] = self._build_evaluation(
                TaskAdapter(eval_task.task),
                section_of(eval_task.task.task_config, "validation_data", name),
                dataclasses.replace(state, model=model_of(state.model, name)),
                eval_task.steps or self.config.trainer.validation_steps,
                eval_task.steps,
            )
        if not evaluations:
            if is_asynchronous(self.strategy):
                strategy = local_strategy(self.strategy)
                state, weights_scope = copy_to_chief(self.adapter, state, strategy)
            data = section_of(self.config.for_task.task, "validation_data")
            evaluations[""] = self._build_evaluation(self.adapter, data, state, steps)
        # The average of the weights is evaluated, if one is kept.
        return Evaluator(evaluations, weights_scope)

    def _tasks_to_evaluate(self) -> dict[str, EvalTask]:
        if self.adapter.subtasks:
            steps = self.adapter.task.multi.task_eval_steps
            return {n: EvalTask(p.task, steps.get(n)) for n, p in self.adapter.subtasks.items()}
        with self.strategy.scope():
            return build_eval_tasks(self.config, self.logging_dir)

    def _build_evaluation(
        self,
        task: TaskAdapter,
        data: DataSection,
        state: TrainState,
        expected_steps: int,  # -1 if the dataset must end
        own_steps: int | None = None,
    ) -> TaskEvaluation:
        config = self.config
        runtime = config.runtime
        strategy = local_strategy(self.strategy)
        logical = runtime.logical_replicas
        # Model Garden's pipelines end with a part of a batch, which cannot be cut equally.
        takes_single_shards = bool(logical and (task.gathers_outputs or not task.starts_at_step))
        run_step = evaluate_on_replica(runtime.seed)
        steps_per_batch = 1
        if logical:
            shards = Shards(logical, strategy.num_replicas_in_sync, runtime.seed, "evaluation")
            run_step = shards.evaluate_in_order if takes_single_shards else shards.evaluate
            steps_per_batch = shards.each if takes_single_shards else 1

        def make_dataset(_: int) -> Dataset:
            return distribute(
                strategy, task, resolve_data_config(data, runtime), runtime,
                must_end=expected_steps < 0, takes_single_shards=takes_single_shards,
            )  # fmt: skip

        def make_chunks() -> Chunks | None:
            if task.gathers_outputs or takes_single_shards:
                return None
            return resident_batches(config, strategy, task, resolve_data_config(data, runtime))

        is_counted = task.num_examples(data) is not None
        return TaskEvaluation(
            task.task,
            state,
            strategy,
            Batches(strategy, make_dataset, make_chunks, counted=is_counted),
            run_step,
            Partition(config, self.strategy, is_training=False),
            steps=own_steps,
            steps_per_batch=steps_per_batch,
            # A step with a part of a batch may have the last rows.
            full_batches=0 if takes_single_shards else task.full_batches(data),
            gathers=task.gathers_outputs,
        )

    def _reject_parameter_server(self) -> None:
        if is_asynchronous(self.strategy):
            raise SettingError(
                "runtime.distribution_strategy",
                "parameter_server supports only one task; use another strategy",
                code="not-supported",
            )
