"""Pauses of Python's garbage collection: when they end, and what they leave alone."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from orbit_runner.cli.main import main
from orbit_runner.utils import garbage_collection


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage_collection, "_freezes_after_pauses", False)
    gc.unfreeze()  # Other tests, and conftest.py, may have frozen objects.
    yield
    gc.enable()
    gc.unfreeze()


def test_commands_called_in_process_do_not_change_garbage_collection() -> None:
    before = gc.get_freeze_count()
    assert main(["--help"]) == main(["list"]) == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() <= before  # Frozen objects may be freed.


@pytest.mark.parametrize("freezes", [False, True])
def test_collection_is_paused_only_inside_the_block(freezes: bool) -> None:
    if freezes:
        garbage_collection.freeze_after_pauses()
    with garbage_collection.paused_collection_scope():
        assert not gc.isenabled()
        with garbage_collection.paused_collection_scope():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    assert (gc.get_freeze_count() > 1000) is freezes


def test_collection_disabled_by_the_program_stays_disabled() -> None:
    gc.disable()
    with garbage_collection.paused_collection_scope():
        pass
    assert not gc.isenabled()


_RUN = """
import gc, os
from orbit_runner.cli.main import entry
from orbit_runner.train import trainer
states = []
original = trainer.Trainer._replica_step
def step(self, *args):
    states.append(gc.isenabled())
    return original(self, *args)
trainer.Trainer._replica_step = step
def leave(code, leave=os._exit):
    print(states[0], gc.isenabled(), gc.get_freeze_count() > 100_000, flush=True)
    leave(code)
os._exit = leave
entry()
"""
_FLAGS = ("--experiment=digits", "--config_file=configs/trainer/smoke.yaml", "--mode=train")


@pytest.mark.slow
@pytest.mark.parametrize("eager", [False, True])
def test_collection_is_paused_while_the_first_step_is_traced(eager: bool, tmp_path: object) -> None:
    flags = [*_FLAGS, f"--model_dir={tmp_path}", f"--runtime.run_eagerly={str(eager).lower()}"]
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *flags], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == f"{eager} True True"
