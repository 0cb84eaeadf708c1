"""Numbers out of bounds, in files and in flags."""

from __future__ import annotations

import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.trainer import TrainerConfig
from orbit_runner.train.schedule import make_plan
from tests.support.problems import check, fails, raises


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("runtime.seed", 2**32),
        ("runtime.intra_op_threads", 10**6),
        ("runtime.num_gpus", -2),
        ("task.train_data.global_batch_size", 2 * 10**9),
        ("task.model.filters", "[32, 100000]"),
        ("task.model.dropout_rate", 1),
        ("task.train_data.random_erasing.probability", 1.5),
        ("trainer.train_steps", "9" * 3000),
        ("trainer.train_epochs", ".inf"),
        ("trainer.checkpoint_interval", -2),
        ("trainer.optimizer_config.learning_rate.constant.learning_rate", ".nan"),
        ("trainer.optimizer_config.optimizer.adam.epsilon", "1e-60"),
        ("trainer.optimizer_config.optimizer.adam.beta_1", "1.0"),
    ],
)
def test_error_message_states_the_allowed_bound(refused, path, text):
    for request in (
        {"params_overrides": (f"{path}={text}",)},
        {"flags": (("--x", path, str(text)),)},
    ):
        (problem,) = refused(**request)

        check([problem], ("out-of-range", path))
        assert len(problem.message) < 300


def test_epochs_that_exceed_the_step_limit_are_rejected():
    trainer = TrainerConfig(train_epochs=1e6)

    with raises("out-of-range", "trainer.train_epochs"):
        make_plan(trainer, 50_000.0)


def test_zero_train_steps_is_rejected_and_error_names_the_flag(here):
    arguments = ["run", "--experiment=digits", "--train_steps=0"]
    fails(arguments, "not-set", "trainer.train_steps", origin="--train_steps")


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ("keep_checkpoint_interval=2500", "not-divisible"),
        ("keep_checkpoint_interval=500", "not-divisible"),
        ("keep_checkpoint_interval=30 checkpoint_interval=-1 steps_per_loop=20", "not-divisible"),
        ("keep_checkpoint_interval=30 checkpoint_interval=0", "conflict"),
        ("keep_checkpoint_interval=1000 max_to_keep=null", "no-effect"),
        (
            "best_checkpoints_to_keep=3 best_checkpoint_export_subdir='' "
            "best_checkpoint_eval_metric=''",
            "no-effect",
        ),
    ],
)
def test_checkpoint_settings_that_contradict_others_are_errors(flags, code):
    parts = [("checkpoint_interval", "1000"), *(flag.split("=", 1) for flag in flags.split())]
    settings = tuple((f"--trainer.{n}", f"trainer.{n}", v) for n, v in parts)
    with raises(code, f"trainer.{flags.partition('=')[0]}", kind=ConfigError):
        resolve(Request(experiment="digits", flags=settings))
