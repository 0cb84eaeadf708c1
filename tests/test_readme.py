"""The README shows what actually happens."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from orbit_runner.config.parsing.search_path import experiment_files
from orbit_runner.config.resolve import Request, resolve
from tests.support import warm_runner
from tests.support.processes import process, runner
from tools.reference import DOCS, FILES

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.promise(
    "configs", "all errors of a config are reported at once, with file and line or flag"
)
def test_error_message_in_the_readme_is_exact():
    (block,) = re.findall(r"^```\n\$ (runner .*?)^```", TEXT, re.M | re.S)
    command, _, expected = block.partition("\n")
    completed = runner(*shlex.split(command)[1:], cwd=ROOT)
    assert (completed.returncode, completed.stdout, completed.stderr) == (2, "", expected)


def test_experiment_in_the_readme_resolves(tmp_path):
    (block,) = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.M | re.S)
    (tmp_path / "shown.yaml").write_text(block, encoding="utf-8")
    config = resolve(Request(experiment=str(tmp_path / "shown.yaml"))).config
    assert config.task.name == "image_classification"


def test_page_of_experiments_lists_all_of_them():
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    table = page.partition("\n## ")[0]
    cells = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", table, re.M)
    assert {name for cell in cells for name in re.findall(r"\w+", cell)} == set(experiment_files())


@pytest.mark.promise(
    "commands", "the commands and the program of the README run, and `why` finds the setting"
)
@pytest.mark.slow
def test_commands_of_the_readme_run(tmp_path):
    (block,) = re.findall(r"^```sh\n(runner .*?)^```", TEXT, re.M | re.S)
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    results = [warm_runner.run(*arguments, cwd=tmp_path) for arguments in commands]
    # `why` reports the difference with its exit code.
    assert [completed.returncode for completed in results] == [0, 0, 0, 4], [
        completed.stderr for completed in results
    ]
    assert (tmp_path / "runs/a/report.html").exists()
    assert results[-1].stdout.startswith("task.model.dropout_rate differs (0.4 and 0.2)")


@pytest.mark.promise(
    "commands", "the commands and the program of the README run, and `why` finds the setting"
)
@pytest.mark.slow
def test_program_of_the_readme_runs(tmp_path):
    (program,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    completed = process(sys.executable, "-c", program, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "weights  sha256" in completed.stdout


@pytest.mark.parametrize("page", [*sorted(DOCS.glob("*.md")), ROOT / "README.md"])
def test_relative_links_point_to_existing_files(page):
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)#]+)\)", prose)
    # Only the site has the files that are made from the code; README is read elsewhere, too.
    generated = {name for name in FILES if page.parent == DOCS}
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert {*missing} <= generated
