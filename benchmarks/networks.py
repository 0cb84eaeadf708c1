"""The networks of the benchmarks, from one with almost no work per step to realistic ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.harness import amount
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schedule_length import follow_run
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.registry import TASKS
from orbit_runner.train import run_builder
from orbit_runner.train.request import RunRequest
from orbit_runner.train.run import Run

_SYNTHETIC = "configs/data/synthetic.yaml"
ENDLESS_STEPS = 100_000_000


@dataclasses.dataclass(frozen=True)
class Network:
    """An experiment, and the amount of training in a round.

    Attributes:
        name: The name in tables.
        experiment: A shipped experiment.
        changes: Overrides, `path=value`.
        files: Config fragments.
        steps: Training steps per round, which take about a second.
        compiles: Whether XLA makes it faster on a CPU.
    """

    name: str
    experiment: str
    changes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    steps: int = 100
    compiles: bool = False

    def config(self, *more: str) -> ExperimentConfig:
        """Returns the config, with further overrides `path=value`.

        Training does not end, and nothing interrupts a round. A schedule of the length of the run
        (`auto`) has its number of steps, which a bare loop and Model Garden need.
        """
        loops = (
            "trainer.train_epochs=0",
            f"trainer.train_steps={ENDLESS_STEPS}",
            f"trainer.summary_interval={self.steps}",
            f"trainer.checkpoint_interval={ENDLESS_STEPS}",
            f"trainer.validation_interval={ENDLESS_STEPS}",
        )
        overrides = (*loops, *self.changes, *more)
        request = Request(
            experiment=self.experiment, config_files=self.files, params_overrides=overrides
        )
        return follow_run(resolve(request).config, ENDLESS_STEPS)


_NETWORKS = (
    Network(
        "small mlp on digits",
        "digits_mlp",
        (
            "task.model.hidden_units=[32]",
            "task.model.dropout_rate=0",
            "trainer.optimizer_config.optimizer.type=sgd",
        ),
        steps=8000,
        compiles=True,
    ),
    Network(
        "mlp on digits", "digits_mlp", ("task.model.dropout_rate=0",), steps=4000, compiles=True
    ),
    Network("mlp with dropout on digits", "digits_mlp", steps=3000, compiles=True),
    Network("cnn on digits", "digits", steps=300),
    Network(
        "ResNet-20",
        "resnet_cifar",
        ("task.train_data.synthetic.num_examples=10000",),
        files=(_SYNTHETIC,),
        steps=8,
    ),
    Network(
        "Transformer tiny",
        "transformer_multi30k",
        ("task.vocab_size=500", "trainer.optimizer_config.ema=null"),
        files=(_SYNTHETIC,),
        steps=4,
    ),
    Network(
        "NeuMF",
        "ncf_movielens",
        ("task.train_data.synthetic.num_examples=100000",),
        files=(_SYNTHETIC,),
        steps=400,
    ),
)  # fmt: skip
NETWORKS = tuple(dataclasses.replace(network, steps=amount(network.steps)) for network in _NETWORKS)


def task_of(config: ExperimentConfig) -> Any:
    """Returns the task of an experiment."""
    return TASKS.get(config.task.name or "").load()(config.task)


def build_run(
    config: ExperimentConfig,
    folder: Path,
    *,
    evaluates: bool = False,
    asynchronous: bool = False,
    strategy: tf.distribute.Strategy | None = None,
) -> Run:
    """Builds a run.

    Args:
        config: The config of the experiment.
        folder: The run directory.
        evaluates: Whether the run also evaluates.
        asynchronous: Whether checkpoints are saved in the background.
        strategy: The strategy; one CPU if None.
    """
    strategy = strategy or tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        task = task_of(config)
    return run_builder.build_run(
        RunRequest(
            config=config,
            task=task,
            mode="train_and_eval" if evaluates else "train",
            model_dir=folder,
            strategy=strategy,
            asynchronous=asynchronous,
        )
    )
