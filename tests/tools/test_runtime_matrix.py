"""The matrix of experiments and runtimes: a sample of its cells, what it keeps and writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import runtime_matrix
from tools.runtime_matrix import (
    EXPERIMENTS,
    FAILS,
    FRAGMENTS,
    PAGE,
    PASSES,
    REFUSED,
    SAMPLE,
    make_page,
    read_results,
    run_fragment,
)


@pytest.mark.slow
@pytest.mark.parametrize(("experiment", "fragment"), SAMPLE)
def test_cell_of_the_sample_trains_and_evaluates(
    experiment: str, fragment: str, tmp_path: Path
) -> None:
    path = tmp_path / "results.jsonl"
    run_fragment(fragment, [experiment], path, seconds=300)

    result = read_results(path)[experiment, fragment]
    assert (result["outcome"], result["reason"]) == (PASSES, "")


@pytest.mark.slow
def test_every_cell_is_checked_without_tensorflow(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tools.runtime_matrix import *\n"
        "found = [check_cell(e, f, Path(sys.argv[1])) for e in EXPERIMENTS for f in FRAGMENTS]\n"
        "assert 'tensorflow' not in sys.modules\n"
        "print(sum(isinstance(each, str) for each in found), len(found))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        cwd=runtime_matrix.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    refused, cells = map(int, done.stdout.split())
    assert cells == len(EXPERIMENTS) * len(FRAGMENTS) == 15 * 12
    assert refused == 0


@pytest.mark.slow
def test_process_that_is_killed_fails_one_cell_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "tools" / "runtime_matrix.py"
    worker.parent.mkdir()
    worker.write_text(
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(runtime_matrix.ROOT)!r})\n"
        "sys.path.remove(os.getcwd())\n"
        "sys.modules.pop('tools', None)\n"
        "from tools import runtime_matrix as real\n"
        "def train(resolved, model_dir):\n"
        "    if model_dir.name == 'diabetes':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    if model_dir.name == 'mnist':\n"
        "        raise ValueError('no room')\n"
        "real.train_cell = train\n"
        "real.main()\n"
    )
    monkeypatch.setattr(runtime_matrix, "ROOT", tmp_path)
    path = tmp_path / "results.jsonl"

    run_fragment("cpu", ["breast_cancer", "diabetes", "digits", "mnist"], path, seconds=60)

    results = read_results(path)
    assert {name: result["outcome"] for (name, _), result in results.items()} == {
        "breast_cancer": PASSES,
        "diabetes": FAILS,
        "digits": PASSES,
        "mnist": FAILS,
    }
    assert "signal 9" in results["diabetes", "cpu"]["reason"]
    assert results["mnist", "cpu"]["reason"] == "ValueError: no room"


def _result(experiment: str, fragment: str, outcome: str, reason: str = "") -> Any:
    return (experiment, fragment), {"outcome": outcome, "reason": reason}


def test_page_counts_outcomes_and_groups_reasons() -> None:
    results = dict(
        [
            _result("digits", "cpu", PASSES),
            _result("digits", "xla", REFUSED, "no kernel"),
            _result("mnist", "xla", REFUSED, "no kernel"),
            _result("mnist", "cpu", FAILS, "ValueError: no room"),
        ]
    )
    page = make_page(results)
    assert (
        "**180 cells: 1 pass, 2 are refused before TensorFlow is imported, 1 fail, 176 not run.**"
    ) in page
    assert "| `digits` | passes | not run | not run | refused |" in page
    assert "- refused: no kernel: `digits` with `xla`, `mnist` with `xla`\n" in page


def test_documentation_page_has_every_cell() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert rows == [*FRAGMENTS, *EXPERIMENTS]
    assert " fail, " not in page.replace(" 0 fail, ", "")


def test_results_of_other_versions_and_incomplete_lines_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    runtime_matrix._append(path, "digits", "cpu", FAILS, "first")
    runtime_matrix._append(path, "digits", "cpu", PASSES)
    other = json.loads(path.read_text().splitlines()[0]) | {"versions": {}, "fragment": "xla"}
    with path.open("a") as file:
        file.write(json.dumps(other) + '\n{"experiment": "mnist", "frag')
    assert [*read_results(path)] == [("digits", "cpu")]
    assert read_results(path)["digits", "cpu"]["outcome"] == PASSES
