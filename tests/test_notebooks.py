"""The notebooks: they have results, run in order, and assert what they claim."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
# What each notebook has to assert about its own results, in its last cell of code.
CLAIMS = {
    "train_and_inspect": [
        "terminal = orbit_runner.load('runs/terminal')",
        "assert result.weights == resumed.weights == terminal.weights",
        "assert resumed.history['accuracy'] == result.history['accuracy']",
        "assert len(watch.probabilities) == len(result.history['accuracy']) == 10",
        "assert all(map(np.array_equal, loaded.get_weights(), result.model.get_weights()))",
        "assert accuracy > 0.8",
    ],
    "why_two_runs_differ": [
        "second = orbit_runner.load('runs/second')",
        "assert second.weights != first.weights == again.weights",
        "assert 'first differing tensor: output of dropout at step 1' in why.stdout",
        "assert reproduce.returncode in (0, 4)",
        "assert threads < 0.0001 < both",
    ],
}
# Executes the cells of a notebook in one namespace, with the standard library only.
EXECUTE = """
import json, pathlib, sys
namespace = {"__name__": "__main__"}
for cell in json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        magic, _, rest = (source := "".join(cell["source"])).partition("\\n")
        if magic.startswith("%%writefile "):
            pathlib.Path(magic.split()[1]).write_text(rest, encoding="utf-8")
        else:
            exec(compile(source, cell["id"], "exec"), namespace)
"""


each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return cells


def code_of(path: Path) -> list[str]:
    return [python_of(cell) for cell in cells_of(path) if cell["cell_type"] == "code"]


def python_of(cell: dict[str, Any]) -> str:
    return "".join(line for line in cell["source"] if not line.startswith("%%"))


def test_each_notebook_has_claims() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(CLAIMS)


@each_notebook
def test_it_asserts_what_it_claims(path: Path) -> None:
    asserts = [ast.unparse(node) for node in ast.parse(code_of(path)[-1]).body]
    assert asserts == CLAIMS[path.stem]


@pytest.mark.slow
@each_notebook
def test_it_runs(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(path)],
        cwd=tmp_path,
        # What a notebook writes to a temporary directory is removed with that of the test.
        env={**os.environ, "MPLBACKEND": "Agg", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
