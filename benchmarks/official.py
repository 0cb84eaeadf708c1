"""Experiments of Model Garden: training and evaluation in this runner and in Model Garden's.

Both use the same settings, strategy and data, and take turns in one process. The smaller the
network, the more the runner, and not TensorFlow, determines the result; with `mock`, it is almost
the only factor.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.harness import Figure, alternate, table
from benchmarks.official_cases import Case, cases
from benchmarks.official_data import write_all
from benchmarks.official_runs import model_garden, this_runner

_THEIRS = "Model Garden's runner"


def report(rounds: int = 7) -> str:
    """Measures each case, or those in the environment variable `CASES` (`name,name`)."""
    wanted = os.environ.get("CASES", "").split(",")
    with tempfile.TemporaryDirectory() as folder:
        write_all(Path(folder) / "data")
        found = cases(Path(folder) / "data").values()
        pairs = [
            _measure(case, Path(folder), rounds)
            for case in found
            if wanted == [""] or case.name in wanted
        ]
    versus = "this runner / Model Garden's own, one device"
    training = [figure for train, _ in pairs for figure in train]
    evaluation = [figure for _, evaluate in pairs for figure in evaluate]
    return "\n".join(
        [
            table(f"training, experiments of Model Garden: {versus}", "steps/s", training),
            table(f"evaluation, the same: {versus}", "examples/s", evaluation),
        ]
    )


def _measure(case: Case, folder: Path, rounds: int) -> tuple[list[Figure], list[Figure]]:
    place = folder / case.name
    runners = {
        _THEIRS: model_garden(case, place / "theirs"),
        "this runner": this_runner(case, place / "ours"),
    }

    def figures(kind: str) -> list[Figure]:
        contenders = {
            f"{case.name}, {name}": (
                (lambda made=made: made.train(case.steps)) if kind == "train" else made.evaluate
            )
            for name, made in runners.items()
        }
        return alternate(contenders, baseline=f"{case.name}, {_THEIRS}", rounds=rounds)[1:]

    return figures("train"), figures("evaluate")
