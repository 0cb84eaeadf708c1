"""Builds the package, and uses it as a user does: `python -m tools.wheel_check`.

Writes the sdist, and the wheel that is built from it, to `dist/`. Installs the wheel in a new
virtual environment, with the newest packages that it allows, and runs it in an empty directory:
the version, the list of experiments, a run of `digits`, and `runner reproduce digits`, which fails
if the weights are not the published ones. `--extras` installs the extras, too.

Requires hatchling, and a package index that pip can use; it takes minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_WHEEL_BYTES = 3_000_000
# For contributors, from the lock files.
_DEVELOPMENT = {"dev", "docs"}
# Gigabytes, which are of use beside a GPU only. pip finds a set of versions, and installs nothing.
_NOT_INSTALLED = {"cuda"}
# Prints the modules of the packages of the extras, after their import.
_IMPORT_EXTRAS = """
import importlib, os, sys
from importlib import metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
os.environ["TF_USE_LEGACY_KERAS"] = "1"  # As the runner does.
modules = {}
for module, names in metadata.packages_distributions().items():
    for name in names:
        modules.setdefault(canonicalize_name(name), []).append(module)
for requirement in map(Requirement, metadata.requires("orbit-runner")):
    for extra in sys.argv[1:]:
        if requirement.marker and requirement.marker.evaluate({"extra": extra}):
            if not requirement.marker.evaluate({"extra": ""}):
                found = modules[canonicalize_name(requirement.name)]
                name = canonicalize_name(requirement.name).replace("-", "_")
                # tf2onnx installs modules `tests` and `examples`, too.
                for module in [name] if name in found else sorted(found):
                    importlib.import_module(module)
                    print(f"[{extra}] import {module}", flush=True)
"""


def build(directory: Path) -> tuple[Path, Path]:
    """Builds the sdist from the checkout, and the wheel from the sdist; returns their paths."""
    _hatchling("sdist", ROOT, directory)
    (sdist,) = directory.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked, filter="data")
        (source,) = Path(unpacked).iterdir()
        wheel = build_wheel(source, directory)
    return sdist, wheel


def build_wheel(source: Path, directory: Path) -> Path:
    """Builds a wheel from a directory with the sources, and returns its path."""
    _hatchling("wheel", source, directory)
    (wheel,) = directory.glob("*.whl")
    return wheel


def _hatchling(target: str, source: Path, directory: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)


def metadata_of(wheel: Path) -> Message:
    """Returns the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def _tracked() -> set[str]:
    """Returns the files in git."""
    command = ["git", "ls-files", "-z"]
    completed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return {name for name in completed.stdout.split("\0") if name}


def try_wheel(wheel: Path, python: str, *, with_extras: bool) -> None:
    """Installs a wheel in a new environment, and runs it. Raises `CalledProcessError`."""
    extras = sorted({*metadata_of(wheel).get_all("Provides-Extra", [])} - _DEVELOPMENT)
    installed = [name for name in extras if name not in _NOT_INSTALLED] if with_extras else []
    with tempfile.TemporaryDirectory() as name:
        environment, empty = Path(name, "venv"), Path(name, "empty")
        empty.mkdir()
        _run(python, "-m", "venv", environment, cwd=empty)
        new_python = environment / "bin" / "python"
        pip = (new_python, "-m", "pip", "--disable-pip-version-check", "--quiet")
        _run(*pip, "install", f"{wheel}[{','.join(installed)}]" if installed else wheel, cwd=empty)
        _run(*pip, "check", cwd=empty)
        runner = environment / "bin" / "runner"
        _run(runner, "--version", cwd=empty)
        _run(runner, "list", "--json", cwd=empty, is_shown=False)
        _run(runner, "--experiment=digits", "--model_dir=run", "--quiet", cwd=empty)
        _run(runner, "verify", "run", cwd=empty)
        # The published weights, because no directory has that name.
        _run(runner, "reproduce", "digits", cwd=empty)
        if with_extras:
            _run(new_python, "-c", _IMPORT_EXTRAS, *installed, cwd=empty)
            for extra in extras:
                # As messages say it. The index is asked for the packages of the extra alone.
                _run(*pip, "install", "--dry-run", f"orbit-runner[{extra}]", cwd=empty)


def _run(*command: str | Path, cwd: Path, is_shown: bool = True) -> None:
    start = time.monotonic()
    words = [str(word) for word in command]
    # Without the checkout.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    output = None if is_shown else subprocess.DEVNULL
    subprocess.run(words, cwd=cwd, check=True, env=environ, stdout=output)
    command_text = " ".join(word if "\n" not in word else "…" for word in words)
    print(f"{time.monotonic() - start:4.0f} s  {command_text}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds and tries the package; returns 1 if a file is wrong or a command fails."""
    parser = argparse.ArgumentParser(prog="wheel_check", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="Python of the new environment")
    parser.add_argument("--extras", action="store_true", help="install and import the extras")
    flags = parser.parse_args(arguments)
    directory = ROOT / "dist"
    directory.mkdir(exist_ok=True)
    for old in (*directory.glob("*.whl"), *directory.glob("*.tar.gz")):
        old.unlink()
    sdist, wheel = build(directory)
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()} - {"PKG-INFO"}
    with zipfile.ZipFile(wheel) as archive_of_wheel:
        count = len(archive_of_wheel.namelist())
    print(f"{sdist.relative_to(ROOT)}: {sdist.stat().st_size:,} bytes, {len(packed):,} files")
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size:,} bytes, {count:,} files")
    problems = [f"{name}: in the sdist, but not in git" for name in sorted(packed - _tracked())]
    if wheel.stat().st_size > MAX_WHEEL_BYTES:
        problems.append(f"{wheel.name}: more than {MAX_WHEEL_BYTES:,} bytes")
    if problems:
        print(*problems, sep="\n", file=sys.stderr)
        return 1
    try:
        try_wheel(wheel, flags.python, with_extras=flags.extras)
    except subprocess.CalledProcessError as error:
        print(f"failed with exit code {error.returncode}: {error.cmd}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
