"""`runner show --schema`: the schema of all settings, of an experiment, and of a custom task."""

from __future__ import annotations

import json

import pytest

from orbit_runner.cli.main import main
from tests.support.problems import output_of

TASK = """
import dataclasses
from orbit_runner import TaskConfig, field, register_task

@dataclasses.dataclass(frozen=True, kw_only=True)
class SchemaTaskConfig(TaskConfig):
    horizon: int = field(30, ge=1, help="days to look ahead")

register_task("schema_task", config=SchemaTaskConfig, task="schema_task:Task")
"""


pytestmark = pytest.mark.usefixtures("here")


def test_flags_change_the_defaults(capsys):
    assert main(["show", "--schema", "--experiment=digits", "--runtime.seed=5"]) == 0

    captured = capsys.readouterr()
    runtime = json.loads(captured.out)["definitions"]["RuntimeConfig"]["properties"]
    assert captured.err == ""
    assert (runtime["seed"]["default"], runtime["intra_op_threads"]["default"]) == (5, 1)


def test_imported_tasks_are_described(here, monkeypatch):
    from orbit_runner.registry import TASKS

    monkeypatch.setattr(TASKS, "_entries", {**TASKS._entries})
    monkeypatch.syspath_prepend(str(here))
    (here / "schema_task.py").write_text(TASK)

    definitions = json.loads(output_of(["show", "--schema", "--import=schema_task"]))["definitions"]
    horizon = definitions["SchemaTaskConfig"]["properties"]["horizon"]
    assert (horizon["description"], horizon["minimum"]) == ("days to look ahead", 1)
