"""The pages of the documentation: their commands run, and their tables are complete."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml

import orbit_runner
from orbit_runner import exit_codes
from orbit_runner.cli import main as cli
from tests.support import warm_runner
from tests.support.docs import DOCS, ROOT, blocks, text_of, write_files
from tests.support.processes import process, runner

# What makes runs short: (text of a command, what replaces it).
SHORTER = (
    ("runner --experiment=digits ", "runner --experiment=digits --trainer.train_epochs=3 "),
    ("--trainer.train_epochs=50", "--trainer.train_epochs=4"),
)


def run_commands(page: str, folder: Path) -> str:
    """Runs the commands of a page in order, and returns what they print."""
    printed = []
    for block in blocks(page, "sh"):
        for text, shorter in SHORTER:
            block = block.replace(text, shorter)
        lines = [shlex.split(line, comments=True) for line in block.splitlines()]
        if all(words[0] == "runner" and not {"|", ">"} & {*words} for words in lines):
            commands = [warm_runner.run(*words[1:], cwd=folder) for words in lines]
        else:
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            shell = ("bash", "-euo", "pipefail", "-c", block)
            commands = [process(*shell, cwd=folder, env={**os.environ, "PATH": path})]
        for completed in commands:
            assert completed.returncode == 0, completed.stderr
            printed.append(completed.stdout)
    return "".join(printed)


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
        ("keras_models.md", {"runs", "flowers.py", "flowers.yaml", "exported"},
         ['"class": 0']),
    ],
)  # fmt: skip
def test_the_commands_of_a_page(page, files, shown, tmp_path):
    if page in ("model_garden.md", "keras_models.md"):
        write_files(page, tmp_path)

    output = run_commands(page, tmp_path)

    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == files
    for pattern in shown:
        assert re.search(pattern, output, re.M), pattern


@pytest.mark.slow
def test_the_program_for_a_keras_model(tmp_path):
    write_files("keras_models.md", tmp_path)
    programs = blocks("keras_models.md", "python")
    (program,) = (text for text in programs if text.startswith("import orbit_runner"))
    completed = process(sys.executable, "-c", program, cwd=tmp_path)

    assert completed.returncode == 0, completed.stderr
    assert float(completed.stdout.split()[0]) > 0.8


@pytest.mark.slow
def test_the_callback_stops_the_run(here, capsys, monkeypatch):
    write_files("callbacks.md", here)
    monkeypatch.syspath_prepend(str(here))
    (command,) = re.findall(r"^\$ runner (.*)$", text_of("callbacks.md"), re.M)
    fewer = ["--trainer.validation_interval=50", "--model_dir=a", "--runtime.intra_op_threads=0"]
    try:
        assert cli.main([*command.split(), *fewer]) == 0
    finally:
        sys.modules.pop("my_callbacks", None)

    captured = capsys.readouterr()
    assert "accuracy of at least 0.8 in 2 evaluations" in captured.out + captured.err


@pytest.mark.slow
def test_the_task_of_the_page_trains(tmp_path):
    write_files("own_task.md", tmp_path)
    text = text_of("own_task.md")
    (hook,) = re.findall(r"^```python\n(    def report_examples.*?)^```", text, re.M | re.S)
    with (tmp_path / "moons/task.py").open("a") as file:
        file.write(f"\n{hook}")
    (command,) = re.findall(r"^```sh\nrunner (--.*)\n```", text, re.M)

    # The script, not `python -m`, which searches the current directory anyway.
    script = Path(sys.executable).with_name("runner")
    completed = process(script, *command.split(), "--json", cwd=tmp_path)

    assert completed.returncode == 0, completed.stderr
    results = json.loads(completed.stdout)
    assert results["step"] == 600
    assert results["metrics"]["validation_examples"] == 1000
    assert results["metrics"]["accuracy"] > 0.97
    examples = json.loads((tmp_path / "runs/moons/report_data/evaluation.json").read_text())
    assert examples["head"] == ["point", "label", "prediction"]
    assert len(examples["rows"]) == 50
    assert sum(label == prediction for _, label, prediction in examples["rows"]) >= 45


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
