"""`--mode=continuous_train_and_eval`: each new checkpoint is fine-tuned from, once."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from orbit_runner.cli import finetune
from orbit_runner.cli.commands.run import run_parser
from orbit_runner.cli.flags.config_flags import parse
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.errors import RunnerError
from tests.support.toy import run


def write(folder: Path, name: str, *, whole: bool = True) -> None:
    """Writes what tells of a checkpoint, without its variables."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\nother: "ckpt-1"\n')
    if whole:
        (folder / f"{name}.index").touch()


def call(*arguments: str) -> int:
    return finetune.main(arguments, parse(run_parser(), arguments))


@pytest.mark.parametrize("place", ["", "checkpoints"])
def test_the_newest_checkpoint_of_either_runner_is_found(place: str, tmp_path: Path) -> None:
    assert finetune.newest_checkpoint(tmp_path) is None
    write(tmp_path / place, "ckpt-20", whole=False)
    assert finetune.newest_checkpoint(tmp_path) is None
    write(tmp_path / place, "ckpt-20")
    assert finetune.newest_checkpoint(tmp_path) == tmp_path / place / "ckpt-20"


class Clock:
    """A clock that runs only while one sleeps; something is written at certain seconds."""

    def __init__(self, folder: Path, written: dict[int, str]) -> None:
        self.now, self._folder, self._written = 0.0, folder, written

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert self.now < 100
        self.now += seconds
        if self.now in self._written:
            write(self._folder, self._written[int(self.now)])


@pytest.mark.parametrize(
    ("written", "last_step", "steps", "end"),
    [
        ({1: "ckpt-5", 8: "ckpt-9"}, None, [5, 9], 19),  # ten seconds without a new one
        ({1: "ckpt-5", 8: "ckpt-9"}, 9, [5, 9], 8),  # the last step is known
        ({1: "ckpt-5", 50: "ckpt-9"}, 9, [5, 9], 50),  # and waited for
        ({}, None, [], 11),
    ],
)
def test_it_ends_when_no_more_will_come(
    written: dict[int, str], last_step: int | None, steps: list[int], end: int, tmp_path: Path
) -> None:
    clock = Clock(tmp_path, written)
    found = finetune.new_checkpoints(tmp_path, 10, last_step, clock, clock.sleep)
    assert [step for step, _ in found] == steps
    assert clock.now == end


def test_without_a_timeout_it_waits_for_ever(tmp_path: Path) -> None:
    clock = Clock(tmp_path, {})
    with pytest.raises(AssertionError):
        next(finetune.new_checkpoints(tmp_path, None, None, clock, clock.sleep))


def test_a_checkpoint_without_a_step_in_its_name_is_told(tmp_path: Path) -> None:
    write(tmp_path, "bert_model")
    with pytest.raises(RunnerError, match="named after its step"):
        next(finetune.new_checkpoints(tmp_path, 10, None))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], r"task\.init_checkpoint .*\n    is not set"),
        (["--task.init_checkpoint={}/ckpt-9"], "expected a folder of this machine"),
        (["--task.init_checkpoint=gs://a/b"], "expected a folder of this machine"),
        (["--task.init_checkpoint={}"], "--model_dir: is not set"),
    ],
)
def test_what_it_needs_is_told(flags: list[str], message: str, tmp_path: Path) -> None:
    write(tmp_path, "ckpt-9")
    with pytest.raises(RunnerError, match=message):
        call("--experiment=digits", *(flag.format(tmp_path) for flag in flags))


@pytest.mark.slow
def test_each_checkpoint_is_fine_tuned_from_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    three = (("--train_steps", "trainer.train_steps", "3"),)
    run(resolve(Request(experiment="digits", flags=three)).config, before, "train")
    asked = (
        *("--experiment=digits", f"--mode={finetune.MODE}", "--model_dir", str(after)),
        *(f"--task.init_checkpoint={before}", "--pretrain_steps=3", "-train_steps=2"),
        "--trainer.validation_interval=2",
    )
    assert call(*asked) == 0
    metrics = json.loads((after / "metrics-3.json").read_text(encoding="utf-8"))
    assert 0 <= metrics["accuracy"] <= 1
    assert (after / "from-3" / "checkpoints" / "ckpt-2.index").exists()
    told = capfd.readouterr().err
    assert f"fine-tuning from {before}/checkpoints/ckpt-3" in told
    assert call(*asked) == 0
    assert "fine-tuning" not in capfd.readouterr().err


def test_a_run_that_fails_ends_it_with_its_code(tmp_path: Path) -> None:
    write(tmp_path / "before", "ckpt-9")
    asked = ("--experiment=digits", "--trainer.train_steps=0", "--trainer.train_epochs=0")
    code = call(*asked, f"--model_dir={tmp_path}/a", f"--task.init_checkpoint={tmp_path}/before")
    assert code == 2
    assert not [*itertools.islice((tmp_path / "a").glob("metrics*"), 1)]
