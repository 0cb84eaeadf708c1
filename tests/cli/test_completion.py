"""Completion: what is offered after the words before the cursor."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orbit_runner.cli.commands.completion import candidates
from orbit_runner.cli.main import COMMANDS
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml

TYPE = "--trainer.optimizer_config.optimizer.type="


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two runs, a config file, and files that are no configs."""
    config = to_yaml(resolve(Request(experiment="ncf_movielens")).config)
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").write_text(config)
    (tmp_path / "runs" / "sweep").mkdir()
    (tmp_path / "over.yaml").write_text("runtime: {seed: 3}\n")
    (tmp_path / "over.gin").write_text("runtime.seed = 3\n")
    (tmp_path / "over.txt").write_text("\n")
    (tmp_path / "my dir").mkdir()
    (tmp_path / "bad.yaml").write_text("task: {name: no_such_task}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offered(*words: str) -> list[str]:
    return [text for text, _ in candidates(words)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sh"], ["show"]),
        (["help", "sh"], ["show"]),
        (["no_such_command", ""], []),
        (["--exp"], ["--experiment="]),
        (["show", "--or"], ["--origins"]),
        (["list", "--off"], ["--official"]),
        (["show", "--experiment=digits"], ["--experiment=digits", "--experiment=digits_mlp"]),
        (["show", "--experiment", "digits_"], ["digits_mlp"]),
        (["--experiment=runs/"], ["--experiment=runs/a", "--experiment=runs/b", "--experiment=runs/sweep/"]),
        (["--experiment=ov"], ["--experiment=over.yaml", "--experiment=over.gin"]),
        (["--config_file=ov"], ["--config_file=over.yaml"]),
        (["--config_file", "configs/trainer/"], ["configs/trainer/ema.yaml", "configs/trainer/smoke.yaml"]),
        (["--config_file=conf"], ["--config_file=configs/"]),
        (["--gin_file=ov"], ["--gin_file=over.gin"]),
        (["verify", "runs/"], ["runs/a", "runs/b", "runs/sweep/"]),
        (["export", "ru"], ["runs/"]),
        (["export", "runs/a", "--format=litert_"], ["--format=litert_float16", "--format=litert_int8"]),
        (["inspect", "digits_"], ["digits_mlp"]),
        (["predict", "runs/"], ["runs/a", "runs/b", "runs/sweep/"]),
        (["predict", "runs/a", "over."], ["over.gin", "over.txt", "over.yaml"]),
        (["diff", "digits", "ncf"], ["ncf_movielens"]),
        (["why", "runs/a", "runs/"], ["runs/a", "runs/b", "runs/sweep/"]),
        (["diff", "digits", "mnist", ""], []),
        (["validate", "digits", "over"], ["over.yaml", "over.gin"]),
        (["data", ""], ["list", "get"]),
        (["data", "get", "ml-1"], ["ml-100k", "ml-1m"]),
        (["data", "get", "--dir=runs/s"], ["--dir=runs/sweep/"]),
        (["manifest", "k"], ["kubernetes"]),
        (["manifest", "vertex", "--ima"], ["--image="]),
        (["manifest", "slurm", "--sweep=over."], ["--sweep=over.yaml"]),
        (["launch", "--wor"], ["--workers="]),
        (["launch", "--workers=2", "--", "--mod"], ["--mode=", "--model_dir="]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["--mode=train_and"], ["--mode=train_and_eval", "--mode=train_and_post_eval"]),
        (["--resume="], ["--resume=same", "--resume=override"]),
        (["--distribution_strategy=m"], ["--distribution_strategy=mirrored", "--distribution_strategy=multi_worker_mirrored"]),
        (["--train_"], ["--train_steps=", "--train_epochs="]),
        (["--tr"], ["--train_steps=", "--train_epochs=", "--trainer."]),
        (["--trainer.train_s"], ["--trainer.train_steps="]),
        (["--trainer.opt"], ["--trainer.optimizer_config."]),
        (["--trainer.train_steps="], []),
        (["--runtime.run_eagerly="], ["--runtime.run_eagerly=true", "--runtime.run_eagerly=false"]),
        (["--runtime.run_eagerly", "t"], ["true"]),
        ([TYPE + "rms"], [TYPE + "rmsprop"]),
        (["--task.init_checkpoint=over.t"], ["--task.init_checkpoint=over.txt"]),
        (["--task.train_data.data_dir=my"], ["--task.train_data.data_dir=my dir/"]),
        (["--gin_param=trainer.train_s"], ["--gin_param=trainer.train_steps="]),
        (["explain", "trainer.train_s"], ["trainer.train_steps"]),
        (["explain", "trai"], ["trainer."]),
        (["diff", "--trainer."], []),
        (["reproduce", "runs/a", "--runtime.in"], ["--runtime.intra_op_threads=", "--runtime.inter_op_threads="]),
        (["reproduce", "runs/a", "--trainer"], []),
        (["branch", "runs/a", "--trainer.train_s"], ["--trainer.train_steps="]),
        (["branch", "runs/a", "--prep"], ["--prepare"]),
        (["--no_such_flag="], []),
        (["--model_dir=s3://bucket/"], []),
    ],
)  # fmt: skip
def test_candidates(words: list[str], expected: list[str]) -> None:
    assert sorted(offered(*words)) == sorted(expected)


def test_the_first_word_is_a_command() -> None:
    assert offered("") == offered() == [*COMMANDS]


def test_settings_are_those_of_the_experiment() -> None:
    depth = "--task.model.depth="
    assert depth in offered("show", "--experiment=resnet_cifar", "--task.model.")
    assert depth not in offered("show", "--experiment=digits", "--task.model.")
    assert depth not in offered("show", "--experiment", "digits", "--task.model.")
    assert depth in offered("--experiment=digits", "--task.model.name=resnet", "--task.model.d")
    of_run = offered("export", "runs/a", "--task.model.")
    assert "--task.model.mf_dim=" in of_run
    assert depth not in of_run


def test_settings_are_those_of_all_tasks_without_an_experiment() -> None:
    assert {"--task.model.depth=", "--task.model.mf_dim="} <= {*offered("--task.model.")}
    assert offered("--task.name=translation", "--task.model.de") == [
        "--task.model.decoder.",
        "--task.model.decode_max_length=",
    ]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("--experiment=ncf_movielens", {"movielens", "synthetic"}),
        ("--task.name=translation", {"parallel_text", "token_records", "synthetic"}),
    ],
)
def test_names_are_those_of_the_task(chosen: str, expected: set[str]) -> None:
    setting = "--task.train_data.source"
    assert {*offered(chosen, setting, "")} == expected


def test_settings_of_model_garden_are_offered_without_its_task() -> None:
    assert offered("--experiment=official/bert/x", "--trainer.train_s") == [
        "--trainer.train_steps="
    ]
    assert offered("--experiment=official/bert/x", "--task.mo") == []


def test_candidates_have_the_help_of_the_setting() -> None:
    assert candidates(["--trainer.train_s"]) == [
        ("--trainer.train_steps=", "number of training steps")
    ]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (r"--model_dir=my\ d", ["--model_dir=my dir/"]),
        ("--model_dir='my d", ["--model_dir=my dir/"]),
        ('"--model_dir=my d', ["--model_dir=my dir/"]),
        ("--model_dir=~/my", ["--model_dir=~/my dir/"]),
    ],
)
def test_quotes_and_the_home_directory_are_understood(
    word: str, expected: list[str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(here))
    assert offered(word) == expected


def _command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orbit_runner", "completion", "--words", *words],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_prints_candidates_with_descriptions() -> None:
    done = _command("--trainer.train_s")
    expected = (0, "--trainer.train_steps=\tnumber of training steps\n", "")
    assert (done.returncode, done.stdout, done.stderr) == expected


@pytest.mark.parametrize(
    "words",
    [
        ["--experiment=bad.yaml", "--trainer.train_s"],
        ["--experiment=no_such", "--trainer.train_s"],
        ["--import=no_such", "--trainer.train_s"],
        ["--import=exits", "--trainer.train_s"],
        ["--import=loads_tensorflow", "--trainer.train_s"],
        ["--config_file=no_such.yaml", "--experiment=digits", "--trainer.train_s"],
    ],
)
def test_nothing_is_printed_if_something_is_wrong(here: Path, words: list[str]) -> None:
    (here / "exits.py").write_text("print('loaded')\nraise SystemExit(3)\n")
    (here / "loads_tensorflow.py").write_text("import tensorflow\n")
    done = _command(*words)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_broken_experiment_raises_a_config_error() -> None:
    with pytest.raises(ConfigError):
        candidates(["--experiment=bad.yaml", "--task.model."])
