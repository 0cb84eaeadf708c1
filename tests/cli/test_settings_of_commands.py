"""Settings that commands use, and flags that have no effect."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml
from tests.support.problems import fails


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which contains a run directory, `made`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made").mkdir()
    config = resolve(Request(experiment="digits")).config
    (tmp_path / "made/config.yaml").write_text(to_yaml(config))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["show", "--experiment=digits"], "\n  seed: 3\n"),
        (["help", "seed", "--experiment=digits"], "\n  value      3 (--runtime.seed)\n"),
    ],
)
def test_valid_setting_is_used_by_commands_that_print_the_config(
    arguments: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 0
    assert expected not in capsys.readouterr().out

    code = main([*arguments, "--runtime.seed=3"])

    said = capsys.readouterr()
    assert code == 0, said.err
    assert expected in said.out


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        (["reproduce", "a", "--runtime.seed=3"], "unknown-flag", "--runtime.seed"),
        (["reproduce", "a", "--runtime.inter_op_thread=3"], "unknown-flag", "--runtime.inter_op_thread"),
        (["export", "a", "--trainer.train_steps=3"], "unknown-flag", "--trainer.train_steps"),
        (["launch", "--runtime.seed=3", "--", "--experiment=digits"], "unknown-flag", "--runtime.seed"),
        (["run", "--experiment=digits", "--pretrain_steps=3"], "no-effect", "--pretrain_steps"),
        (["server", "--role=worker", "--cluster=worker=a:1", "--experiment=digits"], "unknown-flag", ""),
        (["server", "--role=worker", "--cluster=worker=a:1", "--runtime.seed=1"], "unknown-flag", "--runtime.seed"),
        (["validate", "digits", "--num_gpus=x"], "wrong-type", "runtime.num_gpus"),
        (["validate", "configs/runtime/cpu.yaml", "--params_override=trainer.train_steps=x"], "wrong-type", "trainer.train_steps"),
        (["validate", "digits", "--distribution_strategy=mirrored", "--runtime.num_virtual_devices=3", "--task.validation_data.global_batch_size=129"], "not-divisible", "task.train_data.global_batch_size"),
        (["run", "--experiment=digits", "--progress_interval=-1"], "wrong-usage", ""),
        (["run", "--experiment=digits", "--progress_interval=nan"], "wrong-usage", ""),
        (["run", "--experiment=digits", "--stop_at_step=0"], "out-of-range", "--stop_at_step"),
        (["run", "--experiment=digits", "--train_steps=5", "--stop_at_step=6"], "unknown-step", "--stop_at_step"),
        (["run", "--experiment=digits", "--mode=x"], "not-allowed", "--mode"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("folder")
def test_flag_without_effect_is_rejected(arguments: list[str], code: str, path: str) -> None:
    fails(arguments, code, path)


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
