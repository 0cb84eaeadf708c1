"""The completion scripts in shells; that of zsh is the one of bash."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbit_runner.cli.completion import SCRIPTS, candidates
from orbit_runner.cli.main import main

_READY, _DONE = "the shell is ready", "the line is complete"
_TIMEOUT = 60.0
# What is typed before Tab, and the line after it.
LINES = [
    ("runner laun", "runner launch "),
    ("true; runner laun", "true; runner launch "),
    ("runner show --orig", "runner show --origins "),
    ("runner launch --workers=2 -- --experi", "runner launch --workers=2 -- --experiment "),
    ("runner --config_file=over", "runner --config_file=over.yaml "),
    ("runner verify runs/dig", "runner verify runs/digits/"),
]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with files to complete, and the command `runner` in `bin`."""
    (tmp_path / "runs/digits").mkdir(parents=True)
    (tmp_path / "over.yaml").touch()
    (tmp_path / "bin").mkdir()
    runner = tmp_path / "bin/runner"
    runner.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m orbit_runner "$@"\n')
    runner.chmod(0o755)
    return tmp_path


def _environment(here: Path) -> dict[str, str]:
    path = os.pathsep.join([str(here / "bin"), os.environ["PATH"]])
    kept = {name: text for name, text in os.environ.items() if name != "BASH_ENV"}
    return {**kept, "PATH": path, "HOME": str(here), "ZDOTDIR": str(here), "TERM": "dumb",
            "INPUTRC": os.devnull}  # fmt: skip


class _Terminal:
    """An interactive shell in a pseudo-terminal."""

    def __init__(self, command: list[str], here: Path) -> None:
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(here)
            os.execvpe(command[0], command, _environment(here))

    def send(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def read_until(self, text: str) -> str:
        """Returns what is printed up to and including a text."""
        said, end = "", time.monotonic() + _TIMEOUT
        while text not in said:
            assert time.monotonic() < end, said
            if select.select([self._fd], [], [], 0.1)[0]:
                said += os.read(self._fd, 65536).decode(errors="replace")
        return said

    def close(self) -> None:
        os.close(self._fd)
        os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)


@pytest.fixture
def start(here: Path) -> Iterator[Callable[..., _Terminal]]:
    """Starts an interactive shell with the script, after the given commands."""
    started: list[_Terminal] = []

    def run(*command: str, setup: str) -> _Terminal:
        started.append(terminal := _Terminal([*command], here))
        # The quotes keep the echo of the command from looking like its output.
        terminal.send(f"{setup}; echo '{_READY[:4]}''{_READY[4:]}'\n")
        terminal.read_until(_READY)
        return terminal

    yield run
    for terminal in started:
        terminal.close()


def _line_after_tab(terminal: _Terminal, here: Path, typed: str) -> str:
    """Returns the line after Tab. A key of the shell writes it to a file."""
    terminal.send(f"{typed}\t\x18\x18")
    terminal.read_until(_DONE)
    terminal.send("\x15")
    return (here / "line").read_text()


@pytest.mark.slow
def test_bash_completes_lines(here: Path, start: Callable[..., _Terminal]) -> None:
    setup = (
        "bind 'set enable-bracketed-paste off'; source <(runner --completion bash); "
        f"_save() {{ printf %s \"$READLINE_LINE\" > line; echo '{_DONE}'; }}; "
        "bind -x '\"\\C-x\\C-x\": _save'"
    )
    terminal = start("bash", "--norc", "--noprofile", "-i", setup=setup)

    found = [_line_after_tab(terminal, here, typed) for typed, _ in LINES]

    assert found == [line for _, line in LINES]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_offers_the_completed_word(here: Path) -> None:
    for typed, line in LINES:
        code = f"runner --completion fish | source; complete --do-complete='{typed}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", code],
            cwd=here, env=_environment(here), capture_output=True, text=True, check=True,
        )  # fmt: skip
        words = [one.partition("\t")[0] for one in done.stdout.splitlines()]
        assert words == line.split()[-1:], typed


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("runner lau", ["launch"]),
        ("runner no_such_command --", []),
        ("runner --experi", ["--experiment"]),
        ("runner run --experi", ["--experiment"]),
        ("runner data ", ["list", "get"]),
        ("runner data get --d", ["--dir"]),
        ("runner launch --workers 2 --exp", []),
        ("runner verify runs/a", []),
        ("runner --mode tr", []),
    ],
)
def test_commands_and_flags_are_candidates(line: str, expected: list[str]) -> None:
    assert candidates(line) == expected


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--completion", shell]) == 0

    assert capsys.readouterr().out == f"{SCRIPTS[shell]}\n"
