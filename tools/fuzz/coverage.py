"""Lets atheris, which is not among the locked packages, choose cases by the code that they reach.

It must be installed by hand: it has no wheels for every Python that is supported.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

from orbit_runner.errors import RunnerError
from tools.fuzz.target import Case, Target, kept_contents


def fuzz(target: Target, cases: int) -> int:
    """Runs a target until `cases` cases are done. The process exits at the first problem."""
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        raise RunnerError("--atheris: is not installed; install it: pip install atheris") from None
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        case = Case(target, Path(scratch))
        corpus = Path(scratch) / "corpus"
        corpus.mkdir()
        contents = [*case.seeds, *(path.read_bytes() for path in kept_contents(target.name))]
        for number, content in enumerate(contents):
            (corpus / str(number)).write_bytes(content)
        atheris.instrument_all()
        # Its flags: the number of cases, and a timeout in seconds.
        atheris.Setup(["fuzz", f"-runs={cases}", "-timeout=10", str(corpus)], case.run)
        atheris.Fuzz()
    return 0
