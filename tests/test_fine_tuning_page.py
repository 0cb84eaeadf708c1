"""The documentation page on fine-tuning: its files and commands are run exactly as printed."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.cli.main import main

PAGE = (Path(__file__).parents[1] / "docs" / "fine_tuning.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_documented_commands_fine_tune_on_more_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = dict(re.findall(r"^`(\w+\.\w+)`:\n\n```\w+\n(.*?)^```", PAGE, re.M | re.S))
    assert sorted(files) == ["five.yaml", "save_digits.py", "ten.yaml"]
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    script, *commands = re.findall(r"^\$ (.*)$", PAGE, re.M)
    subprocess.run([sys.executable, *shlex.split(script)[1:]], check=True, cwd=tmp_path)
    for command in commands:
        name, *arguments = shlex.split(command)
        assert name == "runner"
        assert main(arguments) == 0

    table = re.findall(r"^```text\n(.*?)^```", PAGE, re.M | re.S)[0]
    assert table in capsys.readouterr().err
    first, second = (_last_start(tmp_path / "runs" / name) for name in ("five", "ten"))
    assert "layers" not in first
    assert second["metrics"]["accuracy"] > 0.9
    assert [(row["first"], row["frozen"], row["factor"]) for row in second["layers"]] == [
        ("conv1", "yes", None),
        ("conv2", "until step 100", 0.1),
        ("dense", "until step 50", 1.0),
        ("logits", "no", 1.0),
    ]
    assert main(["inspect", "ten.yaml"]) == 0
    assert table.partition("\n")[2] in capsys.readouterr().out


def _last_start(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())["attempts"][-1]
    return found
