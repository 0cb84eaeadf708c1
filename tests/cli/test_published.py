"""`runner reproduce EXPERIMENT`: compares with the published fingerprints."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.parsing.search_path import shipped_root
from orbit_runner.determinism.published_fingerprints import Published, PublishedRun, read_published
from orbit_runner.determinism.published_fingerprints import write_published as write
from tools.published_fingerprints import NAMES

Cli = Callable[..., subprocess.CompletedProcess[str]]


def test_published_fingerprints_are_of_the_experiments_without_data() -> None:
    published = read_published()
    assert tuple(published.runs) == NAMES
    assert "tensorflow 2." in published.versions()
    assert "glibc " in published.versions()


def test_published_fingerprints_are_read_as_written(tmp_path: Path) -> None:
    runs = {"a": PublishedRun(step=3, weights="0" * 64, config="1" * 64)}
    published = Published(numerics={"numpy": "2"}, runs=runs)
    write(published, tmp_path / "published.json")
    assert read_published(tmp_path / "published.json") == published


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_published_fingerprint_is_true(name: str, cli: Cli) -> None:
    done = cli("reproduce", name, "--json", "--quiet")
    found, run = json.loads(done.stdout), read_published().runs[name]
    if any("→" in note for note in found["notes"]):
        pytest.skip(f"other versions: {', '.join(found['notes'])}")
    assert (done.returncode, found["weights"]) == (0, run.weights)
    assert found["notes"] == []
    assert found["again"] == ""


@pytest.mark.slow
def test_other_settings_are_reported_with_the_difference(cli: Cli, tmp_path: Path) -> None:
    text = (shipped_root() / "experiments" / "breast_cancer.yaml").read_text()
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "breast_cancer.yaml").write_text(
        text.replace("seed: 17", "seed: 18")
    )
    done = cli("reproduce", "breast_cancer", "--model_dir=again")
    assert done.returncode == 4, done.stderr
    first, *rows = done.stdout.splitlines()
    assert first.startswith("differs: `breast_cancer` does not have the published weights at step")
    assert "the experiment has other settings than the published one" in done.stdout
    assert f"  published    sha256 {read_published().runs['breast_cancer'].weights}" in rows
    assert (tmp_path / "again" / "checkpoints").is_dir()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mnist"], "no fingerprint of the experiment 'mnist' is published\npublished: digits,"),
        (["digits", "--last=3"], "--last: cannot be combined with the published experiment"),
        (["digits", "--runtime.intra_op_threads=2"], "--runtime.intra_op_threads: cannot be"),
        (["digit"], "digit is not a directory"),
    ],
)
def test_mistakes_are_reported(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_run_directory_takes_precedence_over_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "digits"]) == 2
    assert "published" not in capsys.readouterr().err
