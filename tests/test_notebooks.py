"""The notebooks: they have results, run in order, and assert what they claim."""

from __future__ import annotations

import ast
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import orbit_runner

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
# A cell that calls one of these, or ends with the value of a name, shows something.
SHOWS = {"print", "runner", "plt.show", "orbit_runner.run", "orbit_runner.runs"}
# What would differ on each machine and day: paths, dates and times.
VARIES = re.compile(r"/(root|home|tmp|work|usr|opt|var|Users)/|\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d")
MOST_BYTES = 200_000

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return cells


def code_of(path: Path) -> list[str]:
    return [python_of(cell) for cell in cells_of(path) if cell["cell_type"] == "code"]


def python_of(cell: dict[str, Any]) -> str:
    return "".join(line for line in cell["source"] if not line.startswith("%%"))


def shows_something(cell: dict[str, Any]) -> bool:
    if cell["source"][0].startswith("%%writefile"):
        return True  # the name of the file
    statements = ast.parse(python_of(cell)).body
    run = [node for node in statements if not isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    calls = [node for top in run for node in ast.walk(top) if isinstance(node, ast.Call)]
    last = statements[-1]
    return any(ast.unparse(call.func) in SHOWS for call in calls) or (
        isinstance(last, ast.Expr) and isinstance(last.value, (ast.Name, ast.Attribute))
    )


def test_each_notebook_has_claims() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(CLAIMS)


@each_notebook
def test_it_is_stored_with_results(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    ids = [cell["id"] for cell in notebook["cells"]]
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]

    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert len(set(ids)) == len(ids)
    assert {cell["id"]: cell["metadata"] for cell in notebook["cells"] if cell["metadata"]} == {}
    # All cells were run once, in order, in a new kernel.
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert [cell["id"] for cell in code if cell["outputs"]] == [
        cell["id"] for cell in code if shows_something(cell)
    ]
    assert path.stat().st_size < MOST_BYTES


@each_notebook
def test_its_results_do_not_depend_on_the_machine(path: Path) -> None:
    for cell in cells_of(path):
        for output in cell.get("outputs", []):
            assert output["output_type"] != "error", cell["id"]
            assert output.get("name") != "stderr", cell["id"]
            texts = [output.get("text", []), output.get("data", {}).get("text/plain", [])]
            texts.append(output.get("data", {}).get("text/html", []))
            text = "".join("".join(lines) for lines in texts)
            assert VARIES.search(text) is None, cell["id"]
            assert platform.node() not in re.findall(r"[\w.-]+", text), cell["id"]


@each_notebook
def test_it_imports_public_names_only(path: Path) -> None:
    for node in ast.walk(ast.parse("\n".join(code_of(path)))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("orbit_runner"):
            assert node.module == "orbit_runner"
            assert {alias.name for alias in node.names} <= set(orbit_runner.__all__)
        if isinstance(node, ast.Import):
            assert not [a.name for a in node.names if a.name.startswith("orbit_runner.")]


@each_notebook
def test_it_asserts_what_it_claims(path: Path) -> None:
    asserts = [ast.unparse(node) for node in ast.parse(code_of(path)[-1]).body]
    assert asserts == CLAIMS[path.stem]


@each_notebook
def test_its_links_lead_somewhere(path: Path) -> None:
    prose = "\n".join("".join(c["source"]) for c in cells_of(path) if c["cell_type"] == "markdown")
    targets = [part.partition(")")[0] for part in prose.split("](")[1:]]
    assert targets
    assert [target for target in targets if not (path.parent / target).is_file()] == []


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
