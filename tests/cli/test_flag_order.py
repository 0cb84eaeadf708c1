"""Of the flags that set the same setting, the last one on the command line wins."""

from __future__ import annotations

import itertools
import json

import pytest

from orbit_runner.cli.command import parse_flags
from orbit_runner.cli.commands.run import COMMAND
from orbit_runner.cli.flags.config_flags import build_request
from orbit_runner.config.resolve import ResolvedConfig, resolve

# The spellings of a flag. `N` is the number of steps.
SPELLINGS = {
    "a setting": ["--trainer.train_steps=N"],
    "a setting and a word": ["--trainer.train_steps", "N"],
    "a short flag": ["--train_steps=N"],
    "a short flag and a word": ["--train_steps", "N"],
    "an assignment": ["--params_override=runtime.seed=5,trainer.train_steps=N"],
    "YAML text": ["--params_override={trainer: {train_steps: N}}"],
    "a file of overrides": ["--params_override=N.yaml"],
    "gin": ["--gin_param=trainer.train_steps = N"],
    "gin of Model Garden": ["--gin_params", "trainer.train_steps=N"],
}


@pytest.fixture(autouse=True)
def files(here):
    """Files that set the number of steps in their names."""
    for steps in (10, 20):
        (here / f"{steps}.yaml").write_text(json.dumps({"trainer": {"train_steps": steps}}))
        (here / f"{steps}.gin").write_text(f"trainer.train_steps = {steps}\n")


def resolved(*arguments: str, experiment: str = "digits") -> ResolvedConfig:
    flags = [f"--experiment={experiment}", *arguments]
    return resolve(build_request(parse_flags(COMMAND.parser(), flags)))


def words(spelling: str, steps: int) -> list[str]:
    return [word.replace("N", str(steps)) for word in SPELLINGS[spelling]]


@pytest.mark.parametrize(("first", "second"), [*itertools.pairwise([*SPELLINGS, "a setting"])])
def test_the_last_flag_wins(first, second):
    assert resolved(*words(first, 10), *words(second, 20)).config.trainer.train_steps == 20
    assert resolved(*words(second, 10), *words(first, 20)).config.trainer.train_steps == 20
    # Files are below all flags.
    files = ("--config_file=20.yaml", "--gin_file=20.gin")
    assert resolved(*files, *words(first, 10), *files).config.trainer.train_steps == 10


def test_of_two_alternatives_the_last_flag_wins():
    trainer = resolved("--trainer.train_steps=10", "--train_epochs=3").config.trainer
    assert (trainer.train_steps, trainer.train_epochs) == (0, 3)

    trainer = resolved(
        "--train_epochs=3", "--params_override=trainer.train_steps=10"
    ).config.trainer
    assert (trainer.train_steps, trainer.train_epochs) == (10, 0)


def test_a_flag_that_sets_two_settings_is_overridden_in_one():
    data_dir, both = "--task.train_data.data_dir=a", "--data_dir=b"

    task = resolved(both, data_dir, experiment="mnist").config.task
    assert (task.train_data.data_dir, task.validation_data.data_dir) == ("a", "b")
    task = resolved(data_dir, both, experiment="mnist").config.task
    assert (task.train_data.data_dir, task.validation_data.data_dir) == ("b", "b")
