"""The pages of the documentation: their commands run, and their tables are complete."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import yaml

import orbit_runner
from orbit_runner import exit_codes
from orbit_runner.cli import main as cli
from tests.support.processes import process, runner

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def shell_blocks(page: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", text_of(page), re.M | re.S)


def files_of(page: str) -> dict[str, str]:
    """Returns the files that a page shows, by the name above each."""
    return dict(re.findall(r"^`(\w+\.\w+)`:\n\n```\w+\n(.*?)^```", text_of(page), re.M | re.S))


def run_blocks(page: str, folder: Path) -> str:
    """Runs the commands of a page in order, as a user with an activated environment does."""
    blocks = shell_blocks(page)
    assert blocks
    completed = process(
        "bash",
        "-euo",
        "pipefail",
        "-c",
        "\n".join(blocks),
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "files", "shown"),
    [
        ("first_run.md", {"runs", "flowers", "iris.csv", "dropout.yaml", "schema.json",
                           "digits.json"},
         ["weights              sha256", r"^\s*dropout_rate: 0\.2 +# dropout\.yaml:3$",
          r"^task\.model\.dropout_rate +0\.4 +0\.2$", "^equal: "]),
        ("configs.md", set(),
         [r"experiments/digits\.yaml: ok", "seed: 5 +# --seed$",
          r"^task\.model\.name +cnn +mlp$"]),
        ("model_garden.md", {"runs", "records.py", "small.yaml", "train.tfrecord",
                             "validation.tfrecord"},
         ["weights              sha256"]),
    ],
)  # fmt: skip
def test_the_commands_of_a_page(page, files, shown, tmp_path):
    for name, content in files_of(page).items():
        (tmp_path / name).write_text(content, encoding="utf-8")

    output = run_blocks(page, tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == files
    for pattern in shown:
        assert re.search(pattern, output, re.M), pattern


def test_the_error_of_a_config_is_the_one_shown(tmp_path):
    (block,) = re.findall(r"^```\n(task\..*?)^```", text_of("configs.md"), re.M | re.S)
    config = (ROOT / "experiments" / "digits.yaml").read_text(encoding="utf-8")
    (tmp_path / "bad.yaml").write_text(config.replace("filters:", "filter:"), encoding="utf-8")
    completed = runner("show", "--check", "bad.yaml", cwd=tmp_path)
    indented = re.sub(r"^", "  ", block, flags=re.M).rstrip()

    assert completed.returncode == 2
    assert indented in completed.stderr


def test_the_example_of_bases(here, capsys):
    page = text_of("configs.md")
    name = "sweep/small.yaml"
    (block,) = re.findall(rf"^```yaml\n# {re.escape(name)}\n(.*?)^```", page, re.M | re.S)
    path = here / name
    path.parent.mkdir()
    path.write_text(f"# {name}\n{block}", encoding="utf-8")
    (path.parent / "common.yaml").write_text("runtime: {seed: 99}", encoding="utf-8")

    assert cli.main(["show", "--origins", f"--experiment={name}"]) == 0

    lines = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    expected = {
        "name: small # --experiment",
        "seed: 99 # sweep/common.yaml:1",
        "train_steps: 6 # sweep/small.yaml:4",
        "source: synthetic # configs/trainer/smoke.yaml:5",
    }
    assert expected <= lines


@pytest.mark.slow
def test_the_example_of_a_rehearsal_is_what_inspect_shows(monkeypatch, capsys):
    page = text_of("clusters.md")
    (command,) = re.findall(r"^    runner (inspect .*(?:\n {11}.*)*)$", page, re.M)
    (printed,) = re.findall(r"^```\n(rehearsal: .*?)^```", page, re.M | re.S)
    monkeypatch.setenv("COLUMNS", "100")
    # Only a terminal has a width.
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)

    assert cli.main([*command.replace("\\\n", "").split(), "--quiet"]) == 0

    assert printed in capsys.readouterr().out


def test_the_api_page_lists_every_public_name():
    listed = re.findall(r"^::: orbit_runner\.([\w.]+)$", text_of("api.md"), re.M)
    modules = orbit_runner._MODULES

    assert sorted(listed) == sorted(f"{modules[name]}.{name}" for name in modules)


@pytest.mark.promise("commands", "the exit codes are those of the list in *Configs*")
def test_the_page_of_exit_codes_is_complete():
    section = text_of("configs.md").partition("\n## Exit codes\n")[2]
    table = " ".join(re.findall(r"^\| ([\d, ]+|128 \+ n) \|", section, re.M))
    listed = {int(code) for code in re.findall(r"\d+", table)}
    docstring = cli.main.__doc__ or ""
    own = {int(code) for code in re.findall(r"\b(\d+) \w", docstring)}
    named = {code for code in vars(exit_codes).values() if isinstance(code, int)}
    literal = {
        int(code)
        for path in (ROOT / "src" / "orbit_runner").rglob("*.py")
        for code in re.findall(r"^    exit_code = (\d+)$", path.read_text(encoding="utf-8"), re.M)
    }

    assert own | named <= listed
    assert {1, 2, 3, 4, 5, 6, 138} == named
    assert literal <= {0}


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    in_navigation = set(re.findall(r": ([\w/]+\.md)$", text, re.M))

    assert yaml.safe_load(text)["strict"] is True
    assert {path.name for path in DOCS.glob("*.md")} <= in_navigation
