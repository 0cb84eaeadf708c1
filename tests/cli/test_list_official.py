"""`runner list --official`, in separate processes: it imports what nothing else does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_runner.model_garden import catalogue


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with a separate cache directory."""
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}


@pytest.mark.slow
def test_every_experiment_is_listed_with_module_or_import_error(
    tmp_path: Path, cache: dict[str, str], without_tensorflow: dict[str, str]
) -> None:
    (tmp_path / "mine.py").write_text(
        "from official.core import config_definitions, exp_factory\n"
        "exp_factory.register_config_factory('own/one')(config_definitions.ExperimentConfig)\n"
    )
    command = [sys.executable, "-m", "orbit_runner", "list", "--official", "--json"]

    done = subprocess.run(
        [*command, "--import=mine"],
        cwd=tmp_path,
        env=cache,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    there = found["experiments of Model Garden"]
    assert there["official/resnet_imagenet"] == "official.vision.configs.image_classification"
    assert there["official/bert/squad"].startswith("official.nlp.configs.")
    assert {*found["registered elsewhere"]} == {"official/own/one"}
    broken = found["not importable in this installation"]
    assert broken["official/panoptic_fpn_coco"].endswith("No module named 'official.projects.uvit'")
    assert not {*broken} & {*there}

    # TensorFlow itself prints nothing, and the second call does not import it.
    assert all(
        line.startswith(("importing 3", "… still importing")) for line in _lines(done.stderr)
    )
    again = subprocess.run(
        command,
        cwd=tmp_path,
        env={**without_tensorflow, "XDG_CACHE_HOME": cache["XDG_CACHE_HOME"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (again.returncode, again.stderr) == (0, "")
    assert json.loads(again.stdout) == {kind: n for kind, n in found.items() if "else" not in kind}


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


@pytest.mark.sample(2)
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"a": 1}', b'{"a": [1, 2, 3]}'])
def test_corrupt_cache_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = catalogue._cache_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(content)

    assert catalogue.read_cache() is None


def test_unwritable_cache_directory_is_tolerated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    found = catalogue.check_imports(lambda modules: dict.fromkeys(modules, ""))

    assert "bert/squad" in found
    assert catalogue.read_cache() is None


def test_changed_files_invalidate_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    catalogue.check_imports(lambda modules: dict.fromkeys(modules, "no"))
    before = catalogue.read_cache()
    assert before is not None
    assert {reason for _, reason in before.values()} == {"no"}
    files = [*catalogue._source_files()]

    monkeypatch.setattr(catalogue, "_source_files", lambda: iter(files[1:]))

    assert catalogue.read_cache() is None
