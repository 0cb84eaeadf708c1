"""Every command uses the settings that it is given, or rejects them."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.cli.main import COMMANDS, main
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml

# Command: arguments with which it starts, and whether it accepts settings.
ALL = {
    "run": (["run", "--experiment=digits"], "all"),
    "sweep": (["sweep", "s.yaml"], "none"),
    "launch": (["launch"], "none"),
    "server": (["server", "--role=worker", "--experiment=digits"], "all"),
    "list": (["list"], "none"),
    "show": (["show", "--experiment=digits"], "all"),
    "inspect": (["inspect", "digits"], "all"),
    "profile": (["profile", "digits"], "all"),
    "batch": (["batch", "digits", "--step=1"], "all"),
    "seen": (["seen", "digits", "--example=0"], "all"),
    "branch": (["branch", "made", "--at=1", "--model_dir=b"], "all"),
    "explain": (["explain", "seed", "--experiment=digits"], "all"),
    "schema": (["schema", "--experiment=digits"], "all"),
    "completion": (["completion", "bash"], "none"),
    "validate": (["validate", "digits"], "all"),
    "diff": (["diff", "digits", "digits_mlp"], "none"),
    "runs": (["runs", "runs"], "none"),
    "compare": (["compare", "runs/a"], "none"),
    "report": (["report", "runs/a"], "none"),
    "clean": (["clean", "runs"], "none"),
    "verify": (["verify", "runs/a"], "none"),
    "reproduce": (["reproduce", "runs/a"], "some"),
    "replay": (["replay", "runs/a", "--step=1"], "some"),
    "why": (["why", "runs/a", "runs/b"], "none"),
    "evaluate": (["evaluate", "runs/a"], "some"),
    "export": (["export", "runs/a"], "some"),
    "predict": (["predict", "runs/a", "item"], "some"),
    "init": (["init", "a"], "none"),
    "data": (["data", "list"], "none"),
    "data get": (["data", "get", "mnist"], "none"),
    "manifest": (["manifest", "slurm", "--experiment=digits"], "all"),
    "env": (["env"], "none"),
}
SETTINGS = [
    "--runtime.seed=3",
    "--trainer.train_steps=abc",
    "--runtime.sed=1",
    "--no_such_section.seed=1",
    "--task.model.filters[0]=x",
]
_VALID, _BELOW_TASK = SETTINGS[0], SETTINGS[-1]
_CASES = [
    (command, setting)
    for command, (_, takes) in ALL.items()
    for setting in SETTINGS
    if not (takes == "all" and setting == _VALID)
    and not (takes == "some" and setting == _BELOW_TASK)
]
CLUSTER = json.dumps({"chief": ["a:1"], "worker": ["127.0.0.1:2"], "ps": ["c:3"]})
Refuse = Callable[..., str]


@pytest.fixture
def refuse(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Refuse:
    """Runs a command in this process that must exit with 2, and returns its message.

    The working directory contains a run directory, `made`.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made").mkdir()
    config = resolve(Request(experiment="digits")).config
    (tmp_path / "made/config.yaml").write_text(to_yaml(config))

    def run(*arguments: str) -> str:
        assert main(arguments) == 2
        said = capsys.readouterr()
        assert said.out == ""
        return said.err

    return run


def test_table_of_cases_covers_every_command() -> None:
    assert {name.split()[0] for name in ALL} == {*COMMANDS}


@pytest.mark.parametrize(("command", "setting"), _CASES)
def test_invalid_or_unused_setting_is_rejected_by_every_command(
    command: str, setting: str, refuse: Refuse
) -> None:
    arguments, takes = ALL[command]
    flag = setting.split("=")[0]

    message = refuse(*arguments, setting)

    assert flag in message
    if takes == "none":
        prog = "runner data list" if command == "data" else f"runner {command}"
        assert f"{flag}: `{prog}` does not accept settings\n" in message
        assert "\nallowed: " in message


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("show", "\n  seed: 3\n"),
        ("explain", "\n  value      3 (--runtime.seed)\n"),
        ("manifest", "\n  seed: 3\n"),
    ],
)
def test_valid_setting_is_used_by_commands_that_print_the_config(
    command: str,
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, _ = ALL[command]
    assert main(arguments) == 0
    assert expected not in capsys.readouterr().out

    code = main([*arguments, _VALID])

    said = capsys.readouterr()
    assert code == 0, said.err
    assert expected in said.out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["reproduce", "a", "--runtime.seed=3"], "--runtime.seed: `runner reproduce` does not accept this setting\nthe saved config determines"),
        (["reproduce", "a", "--runtime.inter_op_thread=3"], "did you mean 'inter_op_threads'?"),
        (["export", "a", "--trainer.train_steps=3"], "allowed: --task.NAME, --runtime.intra_op_threads,"),
        (["launch", "--runtime.seed=3", "--", "--experiment=digits"], "come after `--`\nallowed: --workers,"),
        (["run", "--experiment=digits", "--pretrain_steps=3"], "--pretrain_steps: has no effect with --mode=train_and_eval"),
        (["server", "--role=data", "--port=1", "--experiment=digits"], "--experiment: no effect here"),
        (["server", "--role=data", "--port=1", "--seed=1"], "--seed: no effect here"),
        (["server", "--role=data", "--port=1", "--index=1"], "--index: no effect here"),
        (["server", "--role=worker", "--cluster=worker=a:1", "--runtime.seed=1"], "--runtime.seed: no effect here, because --cluster describes"),
        (["server", "--role=worker", "--port=7"], "--port: no effect here"),
        (["server", "--gin_param=runtime.sed=1", "--experiment=digits"], "unknown setting 'sed'"),
        (["validate", "digits", "--num_gpus=x"], "runtime.num_gpus — --num_gpus"),
        (["validate", "configs/runtime/cpu.yaml", "--params_override=trainer.train_steps=x"], "trainer.train_steps — --params_override[0]"),
        (["validate", "digits", "--distribution_strategy=mirrored", "--runtime.num_virtual_devices=3"], "64, which is not a multiple of 3 (3 replicas)"),
        (["run", "--experiment=digits", "--progress_interval=-1"], "--progress_interval: got '-1', allowed: a number of at least 0"),
        (["run", "--experiment=digits", "--progress_interval=nan"], "--progress_interval: got 'nan'"),
        (["run", "--experiment=digits", "--stop_at_step=0"], "--stop_at_step: got 0, allowed: at least 1"),
        (["run", "--experiment=digits", "--train_steps=5", "--stop_at_step=6"], "--stop_at_step: got 6, allowed: 1 to 5"),
        (["run", "--experiment=digits", "--mode=x"], "allowed: continuous_eval, continuous_train_and_eval,"),
    ],
)  # fmt: skip
def test_flag_without_effect_is_rejected(
    arguments: list[str], expected: str, refuse: Refuse
) -> None:
    assert expected in refuse(*arguments)


def test_validate_applies_flags_before_checking_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text("task: {name: image_classification}\n")
    assert main(["validate", "a.yaml"]) == 2
    capsys.readouterr()
    settings = ["--params_override=task.model.name=cnn,task.train_data.source=digits,"
                "task.train_data.global_batch_size=8,task.validation_data.source=digits",
                "--task.validation_data.global_batch_size=8",
                "--params_override=trainer.optimizer_config.optimizer.type=sgd,"
                "trainer.optimizer_config.learning_rate.type=constant"]  # fmt: skip

    code = main(["validate", "a.yaml", *settings])

    said = capsys.readouterr()
    assert (code, said.out) == (0, "a.yaml: ok\n"), said.err


@pytest.mark.parametrize(
    "flags",
    [
        ["--config_file=c.yaml"],
        ["--gin_file=g.gin"],
        [f"--params_override=runtime.distribution_strategy=parameter_server,runtime.cluster={CLUSTER}"],
        ["--gin_param=runtime.distribution_strategy = 'parameter_server'", f"--gin_param=runtime.cluster = {CLUSTER}"],
        ["--distribution_strategy=parameter_server", f"--runtime.cluster={CLUSTER}"],
    ],
)  # fmt: skip
def test_server_reads_the_cluster_from_any_config_flag(flags: list[str], refuse: Refuse) -> None:
    Path("c.yaml").write_text(
        f"runtime: {{distribution_strategy: parameter_server, cluster: {CLUSTER}}}\n"
    )
    Path("g.gin").write_text(
        f"runtime.distribution_strategy = 'parameter_server'\nruntime.cluster = {CLUSTER}\n"
    )

    message = refuse("server", "--experiment=digits", *flags, "--role=ps", "--index=4")

    assert "allowed: 0" in message
