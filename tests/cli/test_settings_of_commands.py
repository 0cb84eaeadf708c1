"""Settings that commands use, and flags that have no effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbit_runner.cli.main import main


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
