"""`runner run` starts to check the checkpoint it resumes from before it imports tensorflow."""

from pathlib import Path

import pytest

from orbit_runner.checkpoint import early_check
from orbit_runner.cli.commands import run


def test_checkpoint_check_begins_before_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    monkeypatch.setattr(early_check, "start_check", lambda folder: happened.append(folder.name))

    def started(*_: object) -> None:
        happened.append("started")
        raise SystemExit

    monkeypatch.setattr(run, "prepare_process", started)
    arguments = ["--experiment=digits_mlp", "--mode=train", f"--model_dir={tmp_path / 'own'}"]
    with pytest.raises(SystemExit):
        run.COMMAND.main(arguments)
    assert happened == ["own", "started"]
