"""The documentation page on callbacks: its files are run exactly as printed."""

import re
import sys
from pathlib import Path

import pytest

from orbit_runner.cli.main import main

PAGE = (Path(__file__).parents[1] / "docs" / "callbacks.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_documented_callback_stops_the_run(here, capsys, monkeypatch):
    for name, content in re.findall(r"^`(\w+\.\w+)`:\n\n```\w+\n(.*?)^```", PAGE, re.M | re.S):
        (here / name).write_text(content)
    monkeypatch.syspath_prepend(str(here))
    (command,) = re.findall(r"^\$ runner (.*)$", PAGE, re.M)
    fewer = ["--trainer.validation_interval=50", "--model_dir=a", "--runtime.intra_op_threads=0"]
    try:
        assert main([*command.split(), *fewer]) == 0
    finally:
        sys.modules.pop("my_callbacks", None)
    captured = capsys.readouterr()
    assert "accuracy of at least 0.8 in 2 evaluations" in captured.out + captured.err
