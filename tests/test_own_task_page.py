"""The documentation page on custom tasks: its files are extracted, and its command is run."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.support.processes import process

PAGE = Path(__file__).parent.parent / "docs" / "own_task.md"


@pytest.mark.slow
def test_documented_custom_task_trains(tmp_path):
    text = PAGE.read_text(encoding="utf-8")
    files = re.findall(r"^`([\w/]+\.(?:py|yaml))`:\n\n```\w+\n(.*?)^```", text, re.M | re.S)
    assert [name for name, _ in files] == ["moons/config.py", "moons/task.py", "moons.yaml"]
    (hook,) = re.findall(r"^```python\n(    def report_examples.*?)^```", text, re.M | re.S)
    files[1] = files[1][0], f"{files[1][1]}\n{hook}"
    for name, content in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    (command,) = re.findall(r"^```sh\nrunner (--.*)\n```", text, re.M)
    # The script, not `python -m`, which searches the current directory anyway.
    runner = Path(sys.executable).with_name("runner")
    completed = process(str(runner), *command.split(), "--json", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    results = json.loads(completed.stdout)
    assert results["step"] == 600
    assert results["metrics"]["validation_examples"] == 1000
    assert results["metrics"]["accuracy"] > 0.97
    examples = json.loads((tmp_path / "runs/moons/report_data/evaluation.json").read_text())
    assert examples["head"] == ["point", "label", "prediction"]
    right = sum(label == prediction for _, label, prediction in examples["rows"])
    assert len(examples["rows"]) == 50
    assert right >= 45
