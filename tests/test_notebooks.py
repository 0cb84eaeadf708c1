"""The notebooks run in order; their last cells assert what they claim.

Results are stored in the notebooks. To update them after a change, install `jupyter` in a copy of
`.venv`, run `jupyter nbconvert --to notebook --execute --inplace
--ExecutePreprocessor.record_timing=False notebooks/*.ipynb`, and look at them.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.processes import process

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))


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


@each_notebook
def test_it_is_stored_with_results_and_asserts_its_claims(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    # All cells were run once, in order, in a new kernel.
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert "error" not in {output["output_type"] for output in outputs}
    assert sum(line.startswith("assert ") for line in code[-1]["source"]) >= 4


@pytest.mark.slow
@each_notebook
def test_it_runs(path, tmp_path):
    # What a notebook writes to a temporary directory is removed with that of the test.
    env = {**os.environ, "MPLBACKEND": "Agg", "TMPDIR": str(tmp_path)}
    completed = process(sys.executable, "-c", EXECUTE, path, cwd=tmp_path, env=env, timeout=600)
    assert completed.returncode == 0, completed.stdout + completed.stderr
