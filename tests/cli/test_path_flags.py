"""Paths of unsupported kinds are rejected with the argument's name, and no directory is made."""

from __future__ import annotations

from pathlib import Path

import pytest

import orbit_runner
from orbit_runner.run_directory.paths import unsuitable_directory_reason
from tests.support import keras_models
from tests.support.problems import error_of, fails, raises
from tests.sweep.sweep_files import TEXT

_CLUSTER = ["--experiment=digits", "--distribution_strategy=multi_worker_mirrored"]


@pytest.mark.parametrize("command", [["verify"], ["--experiment=digits", "--model_dir"]])
def test_url_with_password_is_rejected_without_printing_the_password(command):
    *before, last = command
    url = "s3://me:hunter2@bucket/run"
    arguments = [*command, url] if last == "verify" else [*before, f"{last}={url}"]

    error = error_of(arguments)

    assert "…@bucket/run" in str(error)
    assert "hunter2" not in str(error)


def _fill(folder: Path, kind: str) -> Path:
    if kind == "project":
        (folder / "src").mkdir()
        (folder / "config.yaml").touch()
    elif kind == "repository":
        (folder / ".git").mkdir()
    elif kind == "files":
        for number in range(4):
            (folder / f"notes-{number}.txt").touch()
    elif kind == "runs":
        (folder / "a").mkdir()
        (folder / "a" / "run.json").touch()
    return Path("/") if kind == "root" else folder


@pytest.mark.parametrize("kind", ["project", "repository", "files", "runs", "home", "root"])
def test_directory_of_other_things_is_unsuitable(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path if kind == "home" else tmp_path / "home"))

    assert unsuitable_directory_reason(_fill(tmp_path, kind)) != ""


@pytest.mark.parametrize("command", ["run", "api", "sweep", "launch"])
def test_unsuitable_directory_is_refused_before_anything_is_written(command, tmp_path):
    folder = tmp_path / "place"
    folder.mkdir()
    _fill(folder, "files")
    before = {*folder.iterdir()}
    (tmp_path / "s.yaml").write_text(TEXT)
    arguments = {
        "run": ["--experiment=digits", f"--model_dir={folder}"],
        "sweep": ["sweep", str(tmp_path / "s.yaml"), f"--model_dir={folder}"],
        "launch": ["launch", "--workers=2", "--", *_CLUSTER, f"--model_dir={folder}"],
    }
    if command == "api":
        with raises("bad-path", "--model_dir"):
            orbit_runner.run(
                keras_models.classifier, keras_models.classes(), model_dir=folder, epochs=1
            )
    else:
        fails(arguments[command], "bad-path", "--model_dir")
    assert {*folder.iterdir()} == before


@pytest.mark.parametrize("names", [[], [".lock", "src/"], ["run.json", "src/"], ["a.log", "logs/"]])
def test_directory_that_is_empty_or_of_a_run_is_accepted(names, tmp_path):
    for name in names:
        path = tmp_path / name
        path.mkdir() if name.endswith("/") else path.touch()

    assert unsuitable_directory_reason(tmp_path) == ""
    assert unsuitable_directory_reason(tmp_path / "new") == ""
