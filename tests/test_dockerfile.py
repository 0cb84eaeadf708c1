"""The Dockerfile and the lock of the CUDA image, without a build."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]


def instructions() -> list[tuple[str, str]]:
    """(instruction, arguments) of the Dockerfile, with continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line and line[0] != "#"]
    return [(name, arguments) for name, arguments in lines]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage after those of the stages below it; "" is the last one."""
    commands: dict[str, list[tuple[str, str]]] = {}
    for name, arguments in instructions():
        if name == "FROM":
            below, _, stage = arguments.partition(" AS ")
            commands[stage] = [*commands.get(below, [])]
        elif commands:
            commands[stage].append((name, arguments))
    return commands


def sources_of(stage: str) -> list[str]:
    return [
        source
        for name, arguments in stages()[stage]
        if name == "COPY"
        for source in arguments.split()[:-1]
    ]


def pins(lock: str) -> dict[str, set[str]]:
    """The versions of each package; a lock may have several, for different versions of Python."""
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(
        r"^([a-z\d._-]+)==(\S+)", (ROOT / lock).read_text(encoding="utf-8"), re.M
    ):
        versions.setdefault(name, set()).add(version)
    return versions


def setting(name: str) -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (value,) = re.findall(rf"^{name} = (.+)$", text, re.M)
    return value


def test_what_is_copied_exists():
    for stage in ("cpu", "cuda"):
        sources = sources_of(stage)
        assert {"requirements.lock", "pyproject.toml", "src"} <= {*sources}
        for source in sources:
            assert (ROOT / source).exists(), source


def test_what_the_package_is_built_from_is_copied():
    needed = {
        *re.findall(r'"(\w+)"', setting("license-files")),
        setting("readme").strip('"'),
        *re.findall(r'^"([\w/.]+)" = "orbit_runner/', (ROOT / "pyproject.toml").read_text(), re.M),
    }
    assert {"LICENSE", "README.md", "configs", "experiments"} <= needed
    for stage in ("cpu", "cuda"):
        assert needed <= {*sources_of(stage)}


def test_the_lock_of_cuda_adds_to_the_other_one():
    cuda, other = pins("requirements-cuda.lock"), pins("requirements.lock")
    assert "nvidia-cudnn-cu12" in cuda
    for name in cuda.keys() & other.keys():
        assert cuda[name] == other[name], name


def test_the_lock_of_cuda_is_what_tensorflow_asks_for():
    locked = pins("requirements-cuda.lock")
    (tensorflow,) = pins("requirements.lock")["tensorflow"]
    assert importlib.metadata.version("tensorflow") == tensorflow
    requirements = [
        requirement
        for requirement in map(Requirement, importlib.metadata.requires("tensorflow") or [])
        if requirement.marker
        and requirement.marker.evaluate({"extra": "and-cuda"})
        and not requirement.marker.evaluate({"extra": ""})
    ]
    assert "tensorflow[and-cuda]" in setting("cuda")
    assert {requirement.name for requirement in requirements} == locked.keys()
    for requirement in requirements:
        assert all(version in requirement.specifier for version in locked[requirement.name])
