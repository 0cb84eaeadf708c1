"""The wheel, installed in another environment: it includes experiments and fragments."""

import json
import os
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from orbit_runner.version import __version__
from tests.support.processes import process
from tools.wheel_check import MAX_WHEEL_BYTES, build, build_wheel, metadata_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent


def _run(*command: str | Path, cwd: Path) -> str:
    # Without the checkout.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    completed = process(*[str(part) for part in command], cwd=cwd, env=environ)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is built from it."""
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory, built):
    """A virtual environment with the wheel in it, and this one's packages but not its checkout."""
    folder = tmp_path_factory.mktemp("elsewhere")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    wheel = built[1]
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    site = _run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    # A .pth in a directory that a .pth adds is not read, so the editable checkout stays out.
    Path(site.strip(), "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    _run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    (folder / "empty").mkdir()
    return folder


def test_the_sdist_has_what_the_wheel_is_built_from(built, tmp_path):
    with zipfile.ZipFile(built[1]) as wheel, zipfile.ZipFile(build_wheel(ROOT, tmp_path)) as direct:
        contents = {name: direct.read(name) for name in direct.namelist()}
        assert {name: wheel.read(name) for name in wheel.namelist()} == contents


def test_the_sdist_has_all_files_of_the_repository(built):
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {*_run("git", "ls-files", cwd=ROOT).splitlines()} - names == set()


def test_the_wheel_is_small_and_has_no_tests_or_tools(built):
    with zipfile.ZipFile(built[1]) as wheel:
        names = wheel.namelist()
    assert built[1].stat().st_size <= MAX_WHEEL_BYTES
    assert {name.partition("/")[0] for name in names} == {
        "orbit_runner",
        f"orbit_runner-{__version__}.dist-info",
    }
    assert "orbit_runner/py.typed" in names
    assert f"orbit_runner-{__version__}.dist-info/licenses/LICENSE" in names
    assert [name for name in names if name.endswith(".pyc")] == []


def test_the_metadata_name_version_and_license(built):
    metadata = metadata_of(built[1])
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert metadata["Version"] == citation["version"] == __version__
    assert metadata["License-Expression"] == citation["license"] == "Apache-2.0"
    assert not any(text.startswith("License ::") for text in metadata.get_all("Classifier", []))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{__version__}]" in changelog


def test_installed_runner_lists_all_experiments_and_fragments(elsewhere):
    binaries, folder = elsewhere / "venv" / "bin", elsewhere / "empty"
    code = "import orbit_runner; print(orbit_runner.__file__)"
    assert str(elsewhere) in _run(binaries / "python", "-c", code, cwd=folder)
    listed = json.loads(_run(binaries / "runner", "list", "--json", cwd=folder))
    assert set(listed["experiments"]) == {
        path.stem for path in (ROOT / "experiments").iterdir() if path.is_file()
    }
    assert set(listed["fragments"]) == {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "configs").rglob("*")
        if path.is_file() and path.parent.name not in ("sweeps", "clusters")
    }


def test_the_installed_runner_writes_projects(elsewhere):
    command = [elsewhere / "venv" / "bin" / "runner", "init", "flowers", "--json"]
    listed = json.loads(_run(*command, cwd=elsewhere / "empty"))
    folder = elsewhere / "empty" / "flowers"
    written = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert written == {*listed["files"]}


def test_the_installed_runner_trains(elsewhere):
    printed = _run(
        elsewhere / "venv" / "bin" / "runner",
        "--experiment=digits",
        "--config_file=configs/trainer/smoke.yaml",
        "--model_dir=run",
        "--json",
        cwd=elsewhere / "empty",
    )
    assert json.loads(printed)["step"] == 3
    assert (elsewhere / "empty" / "run" / "checkpoints" / "ckpt-3.index").exists()
