"""`runner list --official`, in a process of its own: it imports what nothing else does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_every_experiment_is_listed_with_its_module_or_the_reason(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from official.core import config_definitions, exp_factory\n"
        "exp_factory.register_config_factory('own/one')(config_definitions.ExperimentConfig)\n"
    )
    command = [sys.executable, "-m", "orbit_runner", "list", "--official", "--json"]

    done = subprocess.run(
        [*command, "--import=mine"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    there = found["experiments of Model Garden"]
    assert there["official/resnet_imagenet"] == "official.vision.configs.image_classification"
    assert there["official/bert/squad"].startswith("official.nlp.configs.")
    assert {*found["registered elsewhere"]} == {"official/own/one"}
    broken = found["not importable in this installation"]
    assert broken["official/panoptic_fpn_coco"].endswith("No module named 'official.projects.uvit'")
    assert not {*broken} & {*there}
