"""Files that a flag names: devices and pipes are written to, links are followed, and the rest."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.utils.files import write_output
from tests.support.problems import error_of, fails

_NULL = os.makedev(1, 3)


@pytest.fixture
def null(tmp_path):
    """A null device in the temporary directory, so that a mistake does not replace the real one."""
    path = tmp_path / "null"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, _NULL)
        path.open("wb").close()
    except OSError as error:
        pytest.skip(f"devices cannot be created here: {error.strerror}")
    return path


@pytest.fixture
def received(tmp_path):
    """A named pipe, and what a thread reads from it."""
    path, content = tmp_path / "pipe", list[bytes]()
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: content.append(path.read_bytes()), daemon=True)
    reader.start()
    yield path, content
    reader.join(20)


def _report(run: Path, target: Path | str) -> int:
    return main(["report", str(run), f"--html={target}"])


def test_device_is_written_to_and_stays_a_device(run, null):
    assert _report(run, null) == 0
    assert main(["compare", str(run), str(run), f"--html={null}"]) == 0

    assert stat.S_ISCHR(null.stat().st_mode)
    assert {path.name for path in run.parent.iterdir()} == {"a", "null"}


def test_full_device_is_an_error(tmp_path):
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        write_output(Path("/dev/full"), b"content")


def test_named_pipe_is_written_to(run, received):
    pipe, content = received
    assert _report(run, pipe) == 0

    assert stat.S_ISFIFO(pipe.stat().st_mode)
    while not content:
        pass
    assert content[0].startswith(b"<!doctype html>")
    assert content[0].rstrip().endswith(b"</html>")


@pytest.mark.parametrize("there", [True, False])
def test_link_is_followed(run, tmp_path, there):
    target, link = tmp_path / "pages" / "page.html", tmp_path / "link.html"
    target.parent.mkdir()
    if there:
        target.write_text("old")
    link.symlink_to(os.path.relpath(target, tmp_path))

    assert _report(run, link) == 0
    assert link.is_symlink()
    assert target.read_text().startswith("<!doctype html>")
    assert [path.name for path in target.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "digits", "--html={}"],
        ["batch", "digits", "--step=1", "--images={}"],
        ["compare", "a", "a", "--html={}"],
        ["report", "a", "--html={}"],
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_directory_in_place_of_a_file_is_refused_and_kept(arguments, run, monkeypatch):
    monkeypatch.chdir(run.parent)
    Path("place").mkdir()
    path = arguments[-1].partition("=")[0]

    fails([argument.format("place") for argument in arguments], "bad-path", path)
    assert {path.name for path in run.parent.iterdir()} == {"a", "place"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--experiment=digits", "--model_dir={}"],
        ["export", "a", "--to={}"],
        ["data", "get", "mnist", "--dir={}"],
        ["init", "{}"],
        ["sweep", "s.yaml", "--model_dir={}"],
        ["branch", "a", "--at=1", "--model_dir={}"],
        ["reproduce", "a", "--model_dir={}"],
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_other_file_in_place_of_a_directory_is_refused_and_kept(arguments, run, monkeypatch):
    monkeypatch.chdir(run.parent)
    from tests.sweep.sweep_files import TEXT

    Path("s.yaml").write_text(TEXT)
    Path("file").write_text("mine")
    Path("link").symlink_to("missing")
    for name in ("file", "link"):
        before = Path(name).lstat()

        error = error_of([argument.format(name) for argument in arguments])
        assert name in str(error)
        assert os.path.samestat(before, Path(name).lstat())
        assert {path.name for path in Path().iterdir()} == {"a", "file", "link", "s.yaml"}


def _shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    text = command.replace("runner", f"{sys.executable} -m orbit_runner")
    return subprocess.run(
        text, shell=True, cwd=folder, executable="/bin/bash", capture_output=True, text=True
    )


def test_standard_output_may_be_named(run):
    completed = _shell("(echo first; runner report a --html=/dev/stdout) > page.html", run.parent)

    assert completed.returncode == 0, completed.stderr
    page = (run.parent / "page.html").read_text()
    assert page.startswith("first\n<!doctype html>")
    assert page.rstrip().endswith("</html>")
