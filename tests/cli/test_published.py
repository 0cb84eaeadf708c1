"""`runner reproduce EXPERIMENT`: compares with the published fingerprints."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.parsing.search_path import shipped_root
from orbit_runner.determinism.portable import Published, PublishedRun, read_published
from tests.support.problems import output_of
from tests.support.processes import runner
from tools.published_fingerprints import NAMES
from tools.published_fingerprints import write_published as write


def reproduce(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `runner reproduce` in a new process: portable numerics precede TensorFlow's import."""
    return runner("reproduce", *arguments, cwd=folder)


def test_published_fingerprints_are_of_the_experiments_without_data():
    published = read_published()
    assert tuple(published.runs) == NAMES
    assert "tensorflow 2." in published.versions()
    assert "glibc " in published.versions()


def test_published_fingerprints_are_read_as_written(tmp_path):
    runs = {"a": PublishedRun(step=3, weights="0" * 64, config="1" * 64)}
    published = Published(numerics={"numpy": "2"}, runs=runs)
    write(published, tmp_path / "published.json")
    assert read_published(tmp_path / "published.json") == published


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_published_fingerprint_is_true(name, tmp_path):
    completed = reproduce(tmp_path, name, "--json", "--quiet")
    output, run = json.loads(completed.stdout), read_published().runs[name]
    if any("→" in note for note in output["notes"]):
        pytest.skip(f"other versions: {', '.join(output['notes'])}")
    assert (completed.returncode, output["weights"]) == (0, run.weights)
    assert output["notes"] == []
    assert output["again"] == ""


@pytest.mark.slow
def test_other_settings_are_reported_with_the_difference(tmp_path):
    text = (shipped_root() / "experiments" / "breast_cancer.yaml").read_text()
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "breast_cancer.yaml").write_text(
        text.replace("seed: 17", "seed: 18")
    )
    completed = reproduce(tmp_path, "breast_cancer", "--model_dir=again")
    assert completed.returncode == 4, completed.stderr
    first, *rows = completed.stdout.splitlines()
    assert first.startswith("differs: `breast_cancer` does not have the published weights at step")
    assert "the experiment has other settings than the published one" in completed.stdout
    assert f"  published    sha256 {read_published().runs['breast_cancer'].weights}" in rows
    assert (tmp_path / "again" / "checkpoints").is_dir()


def test_run_directory_takes_precedence_over_an_experiment(here, capsys):
    (here / "digits").mkdir()
    for arguments in (
        ["show", "--experiment=digits"],
        ["reproduce", "digits", "--runtime.intra_op_threads=2"],
    ):
        assert main(arguments) == (0 if arguments[0] == "show" else 2)
        error = capsys.readouterr().err
    assert "--runtime.intra_op_threads: cannot be combined with the published experiment" in error

    (here / "digits" / "config.yaml").write_text(output_of(["show", "--experiment=digits_mlp"]))
    for arguments in (["show", "--experiment=digits"], ["reproduce", "digits"]):
        assert main(arguments) == (0 if arguments[0] == "show" else 2)
        error = capsys.readouterr().err
    assert "no intact checkpoint" in error
