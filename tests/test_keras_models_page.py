"""The documentation page on Keras models: its files are extracted, and its commands are run."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.processes import process

PAGE = (Path(__file__).parents[1] / "docs" / "keras_models.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`(\w+\.\w+)`:\n\n```\w+\n(.*?)^```", PAGE, re.M | re.S))


@pytest.mark.slow
def test_documented_model_trains_resumes_and_predicts(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    (commands,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    completed = process("bash", "-euo", "pipefail", "-c", commands, cwd=tmp_path, env=environment)
    assert completed.returncode == 0, completed.stderr

    assert json.loads(completed.stdout.splitlines()[-1])["class"] == 0
    written = yaml.safe_load((tmp_path / "runs" / "wide" / "config.yaml").read_text())
    assert written["task"]["model"]["arguments"] == {"units": 32, "dropout": 0.2}
    (program,) = re.findall(r"^```python\n(import orbit_runner\n.*?)^```", PAGE, re.M | re.S)
    weights = set()
    for _ in range(2):
        completed = process(sys.executable, "-c", program, cwd=tmp_path)
        assert completed.returncode == 0, completed.stderr
        accuracy, sha256 = completed.stdout.split()
        weights.add(sha256)
        assert float(accuracy) > 0.8
    assert len(weights) == 1
