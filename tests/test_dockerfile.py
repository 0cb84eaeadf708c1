"""The Dockerfile, .dockerignore and the lock of the CUDA image, without a build."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import re
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]


def instructions() -> list[tuple[str, str]]:
    """(instruction, arguments) of the Dockerfile, with continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line and line[0] != "#"]
    return [(name, arguments) for name, arguments in lines]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage after those of the stages below it; "" is the last one."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, arguments in instructions():
        if name == "FROM":
            below, _, stage = arguments.partition(" AS ")
            found[stage] = [*found.get(below, [])]
        elif found:
            found[stage].append((name, arguments))
    return found


def sources_of(stage: str) -> list[str]:
    return [
        source
        for name, arguments in stages()[stage]
        if name == "COPY"
        for source in arguments.split()[:-1]
    ]


def is_ignored(path: str) -> bool:
    """As Docker decides it: the last pattern that matches the path or a folder above it wins."""
    ignored = False
    folders = path.split("/")
    above = ["/".join(folders[:end]) for end in range(1, len(folders) + 1)]
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!").strip()
        if not pattern or pattern.startswith("#"):
            continue
        # `**/NAME` is NAME at any depth; `*` of the other patterns does not cross a `/`.
        if pattern.startswith("**/"):
            matches = any(fnmatch.fnmatch(p.rsplit("/", 1)[-1], pattern[3:]) for p in above)
        else:
            depth = pattern.count("/") + 1
            matches = len(above) >= depth and fnmatch.fnmatch(above[depth - 1], pattern)
        if matches:
            ignored = not line.startswith("!")
    return ignored


def pins(lock: str) -> dict[str, set[str]]:
    """The versions of each package; a lock may have several, for different versions of Python."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(
        r"^([a-z\d._-]+)==(\S+)", (ROOT / lock).read_text(encoding="utf-8"), re.M
    ):
        found.setdefault(name, set()).add(version)
    return found


def setting(name: str) -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (value,) = re.findall(rf"^{name} = (.+)$", text, re.M)
    return value


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    for stage in ("cpu", "cuda"):
        sources = sources_of(stage)
        assert {"requirements.lock", "pyproject.toml", "src"} <= {*sources}
        for source in sources:
            assert (ROOT / source).exists(), source
            assert not is_ignored(source), source


def test_what_the_package_is_built_from_is_copied() -> None:
    needed = {
        *re.findall(r'"(\w+)"', setting("license-files")),
        setting("readme").strip('"'),
        *re.findall(r'^"([\w/.]+)" = "orbit_runner/', (ROOT / "pyproject.toml").read_text(), re.M),
    }
    assert {"LICENSE", "README.md", "configs", "experiments"} <= needed
    for stage in ("cpu", "cuda"):
        assert needed <= {*sources_of(stage)}


def test_no_more_than_what_is_copied_is_sent() -> None:
    sent = {path.name for path in ROOT.iterdir() if not is_ignored(path.name)}
    assert sent == {*sources_of("cpu"), *sources_of("cuda")}
    assert is_ignored("docs/api.md")
    assert is_ignored("src/orbit_runner/__pycache__")
    assert is_ignored("src/orbit_runner/errors.pyc")
    assert not is_ignored("src/orbit_runner/errors.py")


def test_the_default_base_has_a_supported_python() -> None:
    (base,) = [
        arguments.removeprefix("BASE=") for name, arguments in instructions() if name == "ARG"
    ]
    version = re.fullmatch(r"python:(\d+\.\d+)-slim(-\w+)?", base)
    assert version, base
    assert version[1] in SpecifierSet(setting("requires-python").strip('"'))


def test_packages_come_from_the_locks_only() -> None:
    for stage, locks in {
        "cpu": ["requirements.lock"],
        "cuda": ["requirements.lock", "requirements-cuda.lock"],
    }.items():
        commands = [
            command.strip()
            for name, arguments in stages()[stage]
            if name == "RUN"
            for command in arguments.split("&&")
            if "pip install" in command
        ]
        assert all("--no-cache-dir" in command for command in commands)
        assert all("--no-deps" in command for command in commands)
        *locked, own = commands
        assert [command.rsplit("/", 1)[-1] for command in locked] == locks
        assert all("--require-hashes" in command for command in locked)
        assert "--no-build-isolation" in own
        assert own.endswith(" /opt/orbit-runner")


def test_each_target_starts_the_runner_as_an_ordinary_user() -> None:
    for stage in ("cpu", "cuda", ""):
        last = dict(stages()[stage])
        assert last["ENTRYPOINT"] == '["runner"]'
        assert last["USER"] == "runner"
    assert stages()[""] == stages()["cpu"]


def test_the_lock_of_cuda_adds_to_the_other_one() -> None:
    cuda, other = pins("requirements-cuda.lock"), pins("requirements.lock")
    assert "nvidia-cudnn-cu12" in cuda
    for name in cuda.keys() & other.keys():
        assert cuda[name] == other[name], name


def test_the_lock_of_cuda_is_what_tensorflow_asks_for() -> None:
    locked = pins("requirements-cuda.lock")
    (tensorflow,) = pins("requirements.lock")["tensorflow"]
    assert importlib.metadata.version("tensorflow") == tensorflow
    asked = [
        requirement
        for requirement in map(Requirement, importlib.metadata.requires("tensorflow") or [])
        if requirement.marker
        and requirement.marker.evaluate({"extra": "and-cuda"})
        and not requirement.marker.evaluate({"extra": ""})
    ]
    assert "tensorflow[and-cuda]" in setting("cuda")
    assert {requirement.name for requirement in asked} == locked.keys()
    for requirement in asked:
        assert all(version in requirement.specifier for version in locked[requirement.name])


def test_the_lock_of_cuda_names_versions_and_hashes_only() -> None:
    lines = (ROOT / "requirements-cuda.lock").read_text(encoding="utf-8").splitlines()
    assert lines
    for line in lines:
        assert re.fullmatch(r"    --hash=sha256:[\da-f]{64}( \\)?|[a-z\d-]+==\S+( ; .+)? \\", line)
