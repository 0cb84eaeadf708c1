"""Ctrl-C while a command starts prints one line and exits with code 130."""

import os
from pathlib import Path

import pytest

from tests.support.processes import runner

# Python imports this at startup. It sends SIGINT just before a given module is imported.
_SITE = """
import os, signal, sys, weakref

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            sys.meta_path.remove(self)
            def interrupt(reference):
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(100):  # Python's handler runs between two instructions.
                    pass
            if not os.environ.get("IN_CALLBACK"):
                return interrupt(None)
            target = Finder()
            reference = weakref.ref(target, interrupt)
            del target

sys.meta_path.insert(0, Finder())
"""
LAUNCH = "launch --workers=1 -- --experiment=digits --distribution_strategy=multi_worker_mirrored"


def interrupted(command: str, module: str, folder: Path, **environ: str) -> list[str]:
    (folder / "sitecustomize.py").write_text(_SITE)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    completed = runner(
        *command.split(),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "INTERRUPT_AT": module, **environ},
        timeout=600,
    )
    assert completed.returncode == 130, completed.stderr
    assert completed.stdout == ""
    return completed.stderr.splitlines()


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("command", "module", "callback"),
    [
        ("list", "orbit_runner.errors", ""),
        ("list", "argparse", "1"),
        (
            "server --role=ps --cluster=worker=127.0.0.1:5000;ps=127.0.0.1:5001",
            "orbit_runner.distribute.tf_environment",
            "",
        ),
        (f"{LAUNCH} --model_dir=a", "orbit_runner.config.parsing.gin_files", "1"),
    ],
)
def test_interrupt_during_imports_prints_one_line(command, module, callback, tmp_path):
    lines = interrupted(command, module, tmp_path, IN_CALLBACK=callback)

    assert lines == ["runner: interrupted"]


@pytest.mark.slow
def test_interrupt_while_importing_tensorflow_prints_no_traceback(tmp_path):
    module = "tensorflow.python.eager.context"
    lines = interrupted("--experiment=digits --model_dir=a", module, tmp_path)

    assert lines == ["importing tensorflow …", "runner: interrupted"]
