"""`runner init`: the project that it writes works as it is, and nothing is overwritten."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from orbit_runner.cli.main import main
from orbit_runner.init import new_project
from tests.support import warm_runner
from tests.support.problems import fails, output_of

SRC = Path(new_project.__file__).parents[2]
FILES = [
    ".gitignore",
    "Makefile",
    "README.md",
    "churn/__init__.py",
    "churn/config.py",
    "churn/data.py",
    "churn/task.py",
    "data/train.csv",
    "data/validation.csv",
    "experiments/churn.yaml",
    "pyproject.toml",
    "tests/test_churn.py",
]


pytestmark = pytest.mark.usefixtures("here")


def _shell(folder: Path, command: str) -> str:
    """Runs a command as in a terminal in which the environment of this Python is active."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    python_path = os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PATH": path, "PYTHONPATH": python_path.rstrip(os.pathsep)}
    completed = subprocess.run(
        command, shell=True, cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, f"{command}\n{completed.stdout}\n{completed.stderr}"
    return completed.stdout + completed.stderr


def _files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_init_prints_each_file_and_the_next_commands(here, capsys):
    assert main(["init", "my own/churn"]) == 0

    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert captured.err == ""
    assert lines[-5:] == ["", "next:", "  cd 'my own/churn'", "  make test", "  make run"]
    assert sorted(line.split()[0] for line in lines[:-5]) == FILES
    assert all(len(line.split()) > 2 for line in lines[:-5])
    assert _files(here / "my own/churn") == FILES
    output = json.loads(output_of(["init", "a", "--name=churn", "--json"]))
    assert (output["directory"], output["name"], sorted(output["files"])) == ("a", "churn", FILES)
    assert output["next"] == ["cd a", "make test", "make run"]


def test_no_file_of_the_template_is_left_out():
    there = {path for path in _files(new_project.TEMPLATE) if "__pycache__" not in path}

    assert there == {path.replace(".gitignore", "gitignore") for path in new_project.FILES}


def test_the_names_of_the_template_are_replaced(here):
    # A name that contains both placeholders.
    assert main(["init", "a", "--name=my_project_MyProject_2"]) == 0

    text = "".join((here / "a" / path).read_text() for path in _files(here / "a"))
    assert "class MyProjectMyProject2Task(Task):" in text
    assert 'task="my_project_MyProject_2.task:MyProjectMyProject2Task"' in text
    assert set(re.findall(r"\w*my_project\w*", text)) == {
        "my_project_MyProject_2",
        "test_my_project_MyProject_2",
    }


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("churn", "churn"),
        ("My-Churn.2", "my_churn_2"),
        ("2024", "project_2024"),
        ("_x_", "x"),
        ("a/b/", "b"),
        (".", "here"),
        ("~/in_home", "in_home"),
    ],
)
def test_the_name_of_the_package_is_that_of_the_directory(here, monkeypatch, folder, name):
    (here / "here").mkdir()
    monkeypatch.chdir(here / "here")
    monkeypatch.setenv("HOME", str(here))

    assert main(["init", folder]) == 0

    root = Path(folder).expanduser()
    assert (root / name / "task.py").is_file()
    assert (root / f"experiments/{name}.yaml").is_file()


@pytest.mark.parametrize("name", ["a-b", "2x", "größe", "a_", "_", "", "a.b", "../b", "class"])
def test_invalid_name_is_refused(here, name):
    fails(["init", "x", f"--name={name}"], "not-allowed", "--name")

    assert _files(here) == []


def test_a_new_repository_is_empty(here):
    (here / "churn/.git").mkdir(parents=True)

    assert main(["init", "churn"]) == 0


@pytest.mark.parametrize(
    ("folder", "code"),
    [
        ("full", "already-exists"),
        ("file", "wrong-file-type"),
        ("link", "wrong-file-type"),
        ("file/churn", "not-writable"),
        ("/proc/churn", "not-writable"),
        ("a" * 300, "not-writable"),
        ("gs://bucket/churn", "bad-path"),
        ("~nobody_here/churn", "bad-path"),
        ("", "not-set"),
        ("日本", "not-allowed"),
        ("/", "not-allowed"),
    ],
)
def test_unusable_directory_is_rejected(here, folder, code):
    (here / "full").mkdir()
    (here / "full/mine.txt").write_text("mine")
    (here / "file").touch()
    (here / "link").symlink_to("nowhere")

    fails(["init", folder], code, "DIR")

    assert _files(here) == ["file", "full/mine.txt"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("experiments/churn.yaml", "train.csv", "x.csv", "churn.yaml:11\n    cannot read data/x"),
        ("data/train.csv", "5.1,3.5", "5.1,x", "data/train.csv:2: got {'sepal_length': '5.1'"),
    ],
)
def test_a_mistake_in_the_project_is_one_message(here, file, old, new, message):
    assert main(["init", "churn"]) == 0
    path = here / "churn" / file
    path.write_text(path.read_text().replace(old, new, 1))

    completed = warm_runner.run("--experiment=churn", cwd=here / "churn")

    assert completed.returncode == 2
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.promise("commands", "`runner init` writes a project whose tests pass")
@pytest.mark.slow
def test_the_commands_of_the_readme_work(here):
    assert main(["init", "churn"]) == 0
    text = (here / "churn/README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    commands = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]

    outputs = {command: _shell(here / "churn", command) for command in commands}

    assert commands[:2] == ["make test", "make run"]
    assert "Ran 3 tests" in outputs["make test"]
    assert outputs["make test"].endswith("OK\n")
    assert "task.hidden_units" in outputs["runner show --experiment=churn --diff=runs/wide"]
    assert outputs["runner reproduce runs/wide"].startswith("equal: ")
    assert [name for name in _files(here / "churn/runs/wide") if name == "data.json"]
    record = json.loads((here / "churn/runs/wide/data.json").read_text())
    digests = [row["digest"] for rows in record["sections"].values() for row in rows]
    assert len(digests) == 2
    assert all(digest.startswith("sha256:") for digest in digests)


@pytest.mark.slow
def test_make_writes_the_schema_that_the_experiment_names(here):
    jsonschema = pytest.importorskip("jsonschema")  # The lock has it from Python 3.11 on.
    assert main(["init", "churn"]) == 0
    folder = here / "churn"
    experiment = (folder / "experiments/churn.yaml").read_text()

    _shell(folder, "make schema.json")

    named = experiment.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    schema = json.loads((folder / "experiments" / named).read_text())
    validator = jsonschema.Draft7Validator(schema)
    content = yaml.safe_load(experiment)
    assert [error.message for error in validator.iter_errors(content)] == []
    content["task"]["hidden_units"] = 0
    assert [error.json_path for error in validator.iter_errors(content)] == ["$.task.hidden_units"]
    assert "up to date" in _shell(folder, "make schema.json")
