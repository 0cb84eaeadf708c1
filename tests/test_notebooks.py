"""The notebooks: their cells run in order, and what they claim is asserted in them."""

from __future__ import annotations

import ast
import json
import os
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
        "assert last_fingerprint(first) == last_fingerprint(second) == attempt['weights']",
        "assert list(watch.norms) == [record['step'] for record in validation]",
        "assert all(map(np.array_equal, loaded.get_weights(), model.get_weights()))",
        "assert accuracy > 0.9",
    ],
    "why_two_runs_differ": [
        "assert first_difference == 5",
        "assert conditions == {'intra-op threads': ('1', '2')}",
        "assert exit_code in (0, 4)",
        "assert rounding < 0.0001 < largest",
    ],
}
# Executes the cells of a notebook in one namespace, with the standard library only.
EXECUTE = """
import json, pathlib, sys
namespace = {"__name__": "__main__"}
for cell in json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), cell["id"], "exec"), namespace)
"""

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return cells


def code_of(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in cells_of(path) if cell["cell_type"] == "code"]


def test_each_notebook_has_claims() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(CLAIMS)


@each_notebook
def test_it_is_stored_without_results(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    ids = [cell["id"] for cell in notebook["cells"]]

    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}, cell["id"]
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["id"]


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
