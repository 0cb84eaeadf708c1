"""`runner run` given bad input: exit code 2, one message on standard error, no traceback."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

Refused = Callable[..., str]


def _mnist(folder: Path, *, truncated: bool) -> None:
    folder.mkdir()
    for name, count in (("train", 50), ("t10k", 20)):
        images = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28) + bytes(count * 784)
        labels = struct.pack(">4BI", 0, 0, 8, 1, count) + bytes(count)
        if truncated and name == "train":
            images = images[:-5]
        (folder / f"{name}-images-idx3-ubyte").write_bytes(images)
        with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(labels)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--experiment=digits", "--task.model.dropout_rat=0.1"],
            ["task.model.dropout_rat — --task.model.dropout_rat", "did you mean 'dropout_rate'"],
        ),
        (
            ["--experiment=digits", "--config_file=typo.yaml"],
            ["trainer.optimizer_config.optimizer.adam.beta1 — typo.yaml:4", "mean 'beta_1'"],
        ),
        (
            ["--experiment=digits", "--train_steps=abc"],
            ["trainer.train_steps — --train_steps", "'abc', expected an integer"],
        ),
        (
            ["--experiment=digits", "--params_override=task.name=image_clasification"],
            ["task.name — --params_override[0]", "did you mean 'image_classification'"],
        ),
        (["--experiment=digts"], ["--experiment", "did you mean 'digits'"]),
        (
            ["--experiment=digits", "--distribution_strategy=miror"],
            [
                "runtime.distribution_strategy — --distribution_strategy",
                "did you mean 'mirrored'",
                "allowed: 'off', 'one_device', 'mirrored'",
            ],
        ),
        (["--experiment=digits", "--mode=trian"], ["--mode", "did you mean 'train'"]),
        (
            ["--experiment=digits", "--config_file=twice.yaml"],
            ["trainer.train_steps — twice.yaml:3", "twice.yaml:2"],
        ),
        (
            [
                "--experiment=digits",
                "--distribution_strategy=mirrored",
                "--runtime.num_virtual_devices=3",
                "--task.validation_data.global_batch_size=129",
            ],
            [
                "task.train_data.global_batch_size — experiments/digits.yaml:",
                "64, which is not a multiple of 3 (3 replicas)",
                "nearest: 63 and 66",
            ],
        ),
        (
            ["--experiment=mnist", "--data_dir=nowhere"],
            ["task.train_data.data_dir — --data_dir", "directory nowhere not found"],
        ),
        (
            ["--experiment=mnist", "--data_dir=truncated"],
            ["task.train_data.data_dir — --data_dir", "train-images-idx3-ubyte"],
        ),
        (["--experiment=digits", "--model_dir=/proc/x"], ["--model_dir", "cannot write to /proc"]),
        (["--experiment=digits", "--model_dir=a_file/x"], ["--model_dir", "cannot write to"]),
        (["--experiment=digits", "--model_dir=a_file"], ["--model_dir", "a_file is a file"]),
        (["--experiment=digits", "--sed=3"], ["unknown flag --sed", "did you mean '--seed'"]),
        (["--experiment=digits", "--resume=overide"], ["--resume", "'overide'"]),
        (["--mode=train"], ["task.name", "no task is set"]),
        (
            ["--experiment=digits", "--mode=eval", "--model_dir=empty"],
            ["--model_dir", "no checkpoint found in empty/checkpoints"],
        ),
        (
            ["--experiment=digits", "--train_steps=0", "--train_epochs=0"],
            ["trainer.train_steps", "set it, or trainer.train_epochs"],
        ),
    ],
    ids=lambda value: " ".join(value)[:60] if "--" in value[0] else "",
)
def test_invalid_settings_are_rejected_before_importing_tensorflow(
    arguments: list[str],
    said: list[str],
    tmp_path: Path,
    without_tensorflow: dict[str, str],
    refused: Refused,
) -> None:
    (tmp_path / "typo.yaml").write_text(
        "trainer:\n  optimizer_config:\n    optimizer:\n      adam: {beta1: 0.5}\n"
    )
    (tmp_path / "twice.yaml").write_text("trainer:\n  train_steps: 5\n  train_steps: 6\n")
    (tmp_path / "a_file").write_text("")
    _mnist(tmp_path / "truncated", truncated=True)
    found = refused(tmp_path, *arguments, env=without_tensorflow)
    for text in said:
        assert text in found
    assert not (tmp_path / "runs").exists()


def test_all_errors_are_reported_in_one_message(
    tmp_path: Path, without_tensorflow: dict[str, str], refused: Refused
) -> None:
    found = refused(
        tmp_path,
        "--experiment=mnist",
        "--data_dir=nowhere",
        "--mode=trian",
        "--model_dir=/proc/x",
        env=without_tensorflow,
    )
    assert "4 problems" in found


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--num_gpus=4", "--distribution_strategy=mirrored"],
            ["runtime.num_gpus — --num_gpus", "got 4, but this machine has"],
        ),
        (
            ["--trainer.best_checkpoint_eval_metric=acuracy"],
            [
                "trainer.best_checkpoint_eval_metric — --trainer.best_checkpoint_eval_metric",
                "did you mean 'accuracy'",
            ],
        ),
        (
            ["--task.init_checkpoint=nowhere"],
            ["task.init_checkpoint — --task.init_checkpoint", "no checkpoint at 'nowhere'"],
        ),
    ],
)
def test_settings_unsuited_to_machine_or_model_are_rejected(
    arguments: list[str], said: list[str], tmp_path: Path, refused: Refused
) -> None:
    found = refused(tmp_path, "--experiment=digits", "--model_dir=run", *arguments)
    for text in said:
        assert text in found
