"""Commands that read runs finish if values in the files of a run have other types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbit_runner.cli.main import main
from tests.support.run_directories import write_run

_START: dict[str, Any] = {
    "argv": ["runner", "--experiment=digits"],
    "mode": "train_and_eval",
    "seed": 17,
    "started": "2026-11-20T10:00:00+0000",
    "finished": "2026-11-20T10:01:30+0000",
    "outcome": "done",
    "experiment": "digits",
    "changes": {},
    "best": {"metric": "accuracy", "directory": "best"},
    "software": {"tensorflow": "2.20.0"},
    "code": {"revision": "ab", "patch": "code.patch", "changed": {"a.py": "cd"}, "notes": []},
    "devices": {"gpus": [], "cpu_cores": 1},
    "replicas": 1,
    "train_steps": 300,
    "step": 300,
    "metrics": {"accuracy": 0.5},
    "weights": "ab" * 32,
    "inexact": [],
    "non_finite": "",
}
_PATHS = [
    *((name,) for name in _START),
    *((name, key) for name, value in _START.items() if isinstance(value, dict) for key in value),
]
_VALUES = (None, -1, 10**30, float("inf"), "x", [[]], {"a": []}, True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The directory of a run for each value, and of a correct one."""
    folder = tmp_path_factory.mktemp("folder")
    for name in (*map(str, range(len(_VALUES))), "correct"):
        run = write_run(folder / "runs" / name, accuracies={100: 0.7}, weights={100: "aa" * 32})
        # Most of the time would go into parsing a file with all settings.
        (run / "config.yaml").write_text("base: digits\n")
    return folder


@pytest.mark.parametrize("path", _PATHS, ids=".".join)
def test_value_of_another_type_in_run_json_is_not_a_crash(path, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    for number, value in enumerate(_VALUES):
        start = json.loads(json.dumps(_START))
        section = start[path[0]] if len(path) == 2 else start
        section[path[-1]] = value
        (folder / f"runs/{number}/run.json").write_text(json.dumps({"attempts": [start]}))
    for command in (
        *(["report", f"runs/{number}"] for number in range(len(_VALUES))),
        ["compare", "runs"],
        ["runs", "--where=seed < 20"],
        ["why", "runs/4", "runs/correct", "--recorded"],
        ["batch", "runs/4", "--example=3"],
    ):
        assert main(command) in (0, 2, 4), command
        assert "".join(capsys.readouterr()).strip()
