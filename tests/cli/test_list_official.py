"""`runner list --official`, in separate processes: it imports what nothing else does."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support.processes import process


@pytest.mark.slow
def test_every_experiment_is_listed_with_its_module(tmp_path, without_tensorflow):
    (tmp_path / "mine.py").write_text(
        "from official.core import config_definitions, exp_factory\n"
        "exp_factory.register_config_factory('own/one')(config_definitions.ExperimentConfig)\n"
    )
    command = [sys.executable, "-m", "orbit_runner", "list", "--official", "--json"]

    completed = process(*command, "--import=mine", cwd=tmp_path)

    assert completed.returncode == 0, completed.stderr
    listing = json.loads(completed.stdout)
    there = listing["experiments of Model Garden"]
    assert there["official/resnet_imagenet"] == "official.vision.configs.image_classification"
    assert there["official/bert/squad"].startswith("official.nlp.configs.")
    assert {*listing["registered elsewhere"]} == {"official/own/one"}

    # Nothing is imported without `--import`.
    second = process(*command, cwd=tmp_path, env=without_tensorflow)
    assert (second.returncode, second.stderr) == (0, "")
    assert json.loads(second.stdout) == {"experiments of Model Garden": there}
