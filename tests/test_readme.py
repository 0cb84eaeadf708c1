"""The README shows what actually happens."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_runner.cli.main import COMMANDS
from orbit_runner.config.parsing.search_path import experiment_files
from orbit_runner.config.resolve import Request, resolve

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_error_message_in_the_readme_is_exact() -> None:
    (block,) = re.findall(r"^```\n\$ (runner .*?)^```", TEXT, re.M | re.S)
    command, _, expected = block.partition("\n")
    done = subprocess.run(
        [sys.executable, "-m", "orbit_runner", *shlex.split(command)[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


def test_experiment_in_the_readme_resolves(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.M | re.S)
    (tmp_path / "shown.yaml").write_text(block, encoding="utf-8")
    shown = resolve(Request(experiment=str(tmp_path / "shown.yaml"))).config
    assert shown.task.name == "image_classification"


def test_readme_tables_list_all_experiments_and_commands() -> None:
    cells = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", TEXT, re.M)
    listed = {name for cell in cells for name in re.findall(r"\w+", cell)}
    assert listed == set(experiment_files())
    for command in COMMANDS:
        assert re.search(rf"^\| [^|]*`runner \[?{command}\b", TEXT, re.M), command


@pytest.mark.parametrize("page", [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"])
def test_relative_links_point_to_existing_files(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)#]+)\)", prose)
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []
