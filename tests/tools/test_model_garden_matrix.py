"""The script behind `docs/official_experiments.md`: what it runs, keeps and writes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.errors import RunnerError
from orbit_runner.model_garden import catalogue, loading
from tools.model_garden_matrix import __main__ as script
from tools.model_garden_matrix import results, run, stages, table
from tools.model_garden_matrix.recipes import recipes

VERSIONS = {"Python": "3.11", "tensorflow": "2.20.0"}


def _outcomes(done: int, reason: str) -> dict[str, str]:
    told = [*[stages.OK] * done, reason, "", "", ""]
    return dict(zip(stages.STAGES, told, strict=False))


def _result(name: str, done: int = 4, reason: str = "", there: int | None = None) -> Any:
    return {
        "name": name,
        "outcomes": _outcomes(done, reason),
        "model_garden": None if there is None else _outcomes(there, "ValueError: a|b"),
        "seconds": 1.0,
        "versions": results.versions(),
    }


def test_results_page_summarizes_stages_and_reasons() -> None:
    found = {
        "whole": _result("whole"),
        "ours": _result("ours", 2, "no such field", there=4),
        "theirs": _result("theirs", 1, "no such module", there=1),
    }
    page = table.table(["whole", "theirs", "ours", "left"], found, VERSIONS)
    assert page.splitlines()[2] == (
        "**4 experiments: 3 resolve, 2 build, 1 train, 1 evaluate.** "
        "1 fail in Model Garden itself, 1 only in this runner. 1 not run."
    )
    assert "Python 3.11, tensorflow 2.20.0" in page
    assert page[page.index("| experiment") :].splitlines() == [
        "| experiment | resolves | builds | trains | evaluates | reason |",
        "| --- | --- | --- | --- | --- | --- |",
        "| `left` |  |  |  |  | not run |",
        "| `ours` | yes | yes | no |  | only in this runner: no such field |",
        "| `theirs` | yes | no |  |  | in Model Garden itself: ValueError: a\\|b |",
        "| `whole` | yes | yes | yes | yes |  |",
    ]


def test_failure_that_model_garden_does_not_share_is_blamed_on_this_runner() -> None:
    result = _result("x", 1, "told here", there=3)
    assert table.failure_reason(result) == "only in this runner: told here"


def test_documentation_page_lists_every_experiment() -> None:
    page = table.PAGE.read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert rows == sorted(catalogue.experiments())


def test_every_experiment_has_a_recipe() -> None:
    assert sorted(recipes()) == sorted(catalogue.experiments())


def test_latest_result_of_the_current_versions_wins(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results.append(path, _result("a", 1, "at first"))
    results.append(path, _result("b") | {"versions": {**results.versions(), "Python": "2.7"}})
    results.append(path, _result("a"))
    with path.open("a") as file:
        file.write(json.dumps(_result("c"))[:-30])
    assert results.read(path) == {"a": _result("a")}


@pytest.mark.parametrize(
    ("flags", "runs"),
    [
        ([], ["bert/squad_qat"]),
        (["--again"], ["bert/squad", "bert/squad_qat"]),
        (["--anew"], ["bert/squad", "bert/squad_qat", "bert/tagging"]),
    ],
)
def test_experiments_with_results_run_again_only_with_flags(
    flags: list[str], runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.jsonl"
    results.append(path, _result("bert/squad", 2, "fails", there=2))
    results.append(path, _result("bert/tagging"))
    monkeypatch.setattr(run, "run_one", lambda name, *_: _result(name))
    names = ["bert/squad*", "bert/tagging"]
    assert script.main([*names, "--results", str(path), *flags]) == 0
    lines = [json.loads(line)["name"] for line in path.read_text().splitlines()]
    assert lines == ["bert/squad", "bert/tagging", *runs]


@pytest.mark.parametrize(("done", "code"), [(4, 0), (3, 1)])
def test_sample_fails_if_one_of_its_experiments_fails(
    done: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "run_one", lambda name, *_: _result(name, done, "told"))
    path = tmp_path / "results.jsonl"
    assert script.main(["--sample", "--results", str(path)]) == code
    assert sorted(results.read(path)) == sorted(script.SAMPLE)


def test_unknown_experiment_suggests_the_nearest_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.jsonl"
    assert script.main(["bert/tagging", "bert/taging", "--results", str(path)]) == 2
    said = capsys.readouterr().err
    assert "unknown experiment 'bert/taging'; did you mean 'bert/tagging'?" in said
    assert not path.exists()


def test_timeout_is_recorded_at_the_stage_in_progress(tmp_path: Path) -> None:
    result = run.run_one("mock", tmp_path, seconds=0.1)
    assert result["outcomes"] == _outcomes(0, "timed out after 0.1 s")
    assert result["model_garden"] == _outcomes(0, "timed out after 0.1 s")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("two\nlines"), "ValueError: two"),
        (RunnerError("--x: bad\n  give y"), "--x: bad give y"),
        (
            TypeError(
                'in user code:\n\n    File "a.py", line 1\n        f(x)\n\n    KeyError: "y"'
            ),
            'KeyError: "y"',
        ),
        (
            RuntimeError(
                "Graph execution error:\n\nDetected at node X defined at (most recent call last):\n"
                "<stack traces unavailable>\nShapes differ [Op:F]"
            ),
            "RuntimeError: Shapes differ [Op:F]",
        ),
        (KeyError(), "KeyError: "),
    ],
)
def test_failure_reason_is_the_line_that_states_the_error(error: Exception, reason: str) -> None:
    assert stages.reason_of(error) == reason


def test_failure_reason_contains_no_local_paths(tmp_path: Path) -> None:
    text = f"no {tmp_path}/data/a, see /usr/lib/python3/site-packages/official/b.py"
    assert stages.strip_paths(text, tmp_path) == "no FOLDER/data/a, see official/b.py"


@pytest.mark.slow
def test_sample_experiment_passes_all_stages(tmp_path: Path) -> None:
    assert "mock" in script.SAMPLE
    path = tmp_path / "results.jsonl"
    command = [sys.executable, "-m", "tools.model_garden_matrix", "mock", "--results", str(path)]
    subprocess.run(command, cwd=run.ROOT, check=True)
    (result,) = results.read(path).values()
    assert result["outcomes"] == dict.fromkeys(stages.STAGES, stages.OK)
    assert result["model_garden"] is None


@pytest.mark.wide
@pytest.mark.parametrize("name", sorted(recipes()))
def test_a_recipe_resolves(name: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    small = tmp_path / "small.json"
    small.write_text(json.dumps(recipes()[name](tmp_path / "data")))
    reason = loading.try_import(catalogue.experiments()[name].module)

    refused = pytest.raises(ConfigError) if reason else contextlib.nullcontext()
    with refused as caught:
        resolve(Request(experiment=f"official/{name}", config_files=(str(small),)))
    assert not reason or reason in str(caught.value)
