"""The workflows of GitHub run on each supported Python, and call targets that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = ROOT / ".github" / "workflows"
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.M))


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def supported_pythons() -> set[str]:
    """Returns the versions that pyproject.toml allows."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    match = re.search(r'^requires-python = ">=3\.(\d+),<3\.(\d+)"$', text, re.M)
    assert match is not None
    return {f"3.{minor}" for minor in range(int(match[1]), int(match[2]))}


@pytest.mark.parametrize("name", ["ci", "nightly"])
def test_each_job_runs_on_every_supported_python(name: str) -> None:
    for job in jobs(WORKFLOWS / f"{name}.yml").values():
        assert set(job["strategy"]["matrix"]["python"]) >= supported_pythons()
        assert job["env"]["PYTHON"] == "python${{ matrix.python }}"


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.stem)
def test_each_make_command_has_a_target(path: Path) -> None:
    called = [
        name
        for job in jobs(path).values()
        for command in commands(job)
        for names in re.findall(r"\bmake (.+)", command)
        for name in names.split()
    ]
    assert {*called} <= TARGETS


def test_there_are_at_most_ten_targets() -> None:
    assert len(TARGETS) <= 10


def test_pull_requests_run_the_quick_checks_and_nights_all_tests() -> None:
    ci, nightly = WORKFLOWS / "ci.yml", WORKFLOWS / "nightly.yml"
    checks = commands(jobs(ci)["checks"])

    assert checks == [
        "make lint",
        "make test",
        "make docs",
        ".venv/bin/python -m pytest tests/model_garden/test_sample.py",
        "BENCHMARKS=short make bench",
    ]
    assert commands(jobs(nightly)["locked"]) == ["make test test-slow"]


def test_newest_packages_run_with_warnings_as_errors() -> None:
    text = "\n".join(commands(jobs(WORKFLOWS / "nightly.yml")["newest"]))
    assert "--upgrade-strategy=eager" in text
    assert "filterwarnings=error" in text
    assert "requirements.lock" not in text
