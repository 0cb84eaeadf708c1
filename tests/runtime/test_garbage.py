"""The search for garbage that waits for the end of a start."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from orbit_runner.cli.main import main
from orbit_runner.runtime import garbage


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.enable()
    gc.unfreeze()


def test_commands_called_from_a_program_change_nothing() -> None:
    assert main(["--version"]) == main(["list"]) == 0
    assert gc.isenabled()


def test_it_is_put_off_and_resumed() -> None:
    garbage.put_off()
    assert not gc.isenabled()
    garbage.resume()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 1000


def test_who_switched_it_off_before_keeps_it_off() -> None:
    gc.disable()
    garbage.put_off()
    garbage.resume()
    assert not gc.isenabled()


def test_a_process_that_put_nothing_off_is_left_alone() -> None:
    frozen = gc.get_freeze_count()
    garbage.resume()
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


_RUN = """
import gc, os, sys
from orbit_runner.cli import job
states = []
for name in ("started", "trained", "evaluated"):
    def told(self, *what, name=name, original=getattr(job.Begun, name)):
        states.append((name, gc.isenabled()))
        original(self, *what)
        states.append((name, gc.isenabled()))
    setattr(job.Begun, name, told)
def leave(code, leave=os._exit):
    print(states[:4], gc.get_freeze_count() > 100_000, flush=True)
    leave(code)
os._exit = leave
from orbit_runner.cli.main import entry
entry()
"""
_FLAGS = ("--experiment=digits", "--config_file=configs/trainer/smoke.yaml", "--mode=train")


@pytest.mark.parametrize("eager", [False, True])
def test_a_run_searches_again_once_a_loop_is_done(eager: bool, tmp_path: object) -> None:
    flags = [*_FLAGS, f"--model_dir={tmp_path}", f"--runtime.run_eagerly={str(eager).lower()}"]
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *flags], capture_output=True, text=True, check=True
    )
    start, *rest = [("started", False), ("started", eager), ("trained", eager), ("trained", True)]
    assert done.stdout.splitlines()[-1] == f"{[start, *rest]} True"
