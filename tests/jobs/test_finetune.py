"""`--mode=continuous_train_and_eval` fine-tunes once from each new checkpoint."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from orbit_runner.cli.commands.run import COMMAND
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.modes import FINE_TUNING
from orbit_runner.jobs import finetune
from orbit_runner.utils.log import PlainMessages, log_scope
from tests.support.problems import raises
from tests.support.toy import run


def write(folder: Path, name: str, *, whole: bool = True) -> None:
    """Writes the files that announce a checkpoint, without its variables."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\nother: "ckpt-1"\n')
    if whole:
        (folder / f"{name}.index").touch()


def call(*arguments: str) -> int:
    with log_scope(PlainMessages()):
        return COMMAND.main([f"--mode={FINE_TUNING}", *arguments])


@pytest.mark.parametrize("place", ["", "checkpoints"])
def test_newest_checkpoint_is_found_in_either_directory_layout(place, tmp_path):
    assert finetune.newest_checkpoint(tmp_path) is None
    write(tmp_path / place, "ckpt-20", whole=False)
    assert finetune.newest_checkpoint(tmp_path) is None
    write(tmp_path / place, "ckpt-20")
    assert finetune.newest_checkpoint(tmp_path) == tmp_path / place / "ckpt-20"


class Clock:
    """A clock that advances only in `sleep`, which writes checkpoints at certain seconds."""

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
        ({1: "ckpt-5", 8: "ckpt-9"}, None, [5, 9], 19),  # ten seconds without a new checkpoint
        ({1: "ckpt-5", 8: "ckpt-9"}, 9, [5, 9], 8),  # the last step is known
        ({1: "ckpt-5", 50: "ckpt-9"}, 9, [5, 9], 50),  # and waited for
        ({}, None, [], 11),
    ],
)
def test_waiting_for_checkpoints_ends_at_timeout_or_last_step(
    written, last_step, steps, end, tmp_path
):
    clock = Clock(tmp_path, written)
    checkpoints = finetune.checkpoints_iterator(tmp_path, 10, last_step, clock, clock.sleep)
    assert [step for step, _ in checkpoints] == steps
    assert clock.now == end


def test_waiting_for_checkpoints_never_ends_without_a_timeout(tmp_path):
    clock = Clock(tmp_path, {})
    with pytest.raises(AssertionError):
        next(finetune.checkpoints_iterator(tmp_path, None, None, clock, clock.sleep))


def test_checkpoint_without_a_step_in_its_name_is_rejected(tmp_path):
    write(tmp_path, "bert_model")
    with raises("no-checkpoint"):
        next(finetune.checkpoints_iterator(tmp_path, 10, None))


@pytest.mark.parametrize(
    ("flags", "code", "path"),
    [
        ([], "no-checkpoint", "task.init_checkpoint"),
        (["--task.init_checkpoint={}/ckpt-9"], "no-checkpoint", "task.init_checkpoint"),
        (["--task.init_checkpoint=gs://a/b"], "no-checkpoint", "task.init_checkpoint"),
        (["--task.init_checkpoint={}"], "not-set", "--model_dir"),
    ],
)
def test_missing_init_checkpoint_or_model_dir_is_rejected(flags, code, path, tmp_path):
    write(tmp_path, "ckpt-9")
    with raises(code, path):
        call("--experiment=digits", *(flag.format(tmp_path) for flag in flags))


@pytest.mark.slow
def test_each_checkpoint_is_fine_tuned_only_once(tmp_path, capfd):
    before, after = tmp_path / "before", tmp_path / "after"
    three = (("--train_steps", "trainer.train_steps", "3"),)
    run(resolve(Request(experiment="digits", flags=three)).config, before, "train")
    arguments = (
        *("--experiment=digits", "--model_dir", str(after)),
        *(f"--task.init_checkpoint={before}", "--pretrain_steps=3", "--train_steps=2"),
        "--trainer.validation_interval=2",
    )
    assert call(*arguments) == 0
    metrics = json.loads((after / "metrics-3.json").read_text(encoding="utf-8"))
    assert 0 <= metrics["accuracy"] <= 1
    assert (after / "from-3" / "checkpoints" / "ckpt-2.index").exists()
    stderr = capfd.readouterr().err
    assert f"fine-tuning from {before}/checkpoints/ckpt-3" in stderr
    assert call(*arguments) == 0
    assert "fine-tuning" not in capfd.readouterr().err


def test_failed_run_ends_fine_tuning_with_its_exit_code(tmp_path):
    write(tmp_path / "before", "ckpt-9")
    arguments = ("--experiment=digits", "--trainer.train_steps=0", "--trainer.train_epochs=0")
    code = call(
        *arguments, f"--model_dir={tmp_path}/a", f"--task.init_checkpoint={tmp_path}/before"
    )
    assert code == 2
    assert not [*itertools.islice((tmp_path / "a").glob("metrics*"), 1)]
