"""The table at the end of a run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from orbit_runner.utils.files import jsonable
from orbit_runner.utils.mfu import short

_BARS = "▁▂▃▄▅▆▇█"


@dataclasses.dataclass(frozen=True)
class Results:
    """What a run ended with.

    Attributes:
        experiment: Its name.
        mode: What it did.
        step: The global step.
        seconds: Wall time of training and evaluation.
        steps_per_second: The speed of the last record; None where nothing was trained.
        parameters: Trainable parameters.
        metrics: The last evaluation.
        best: The best evaluation, where that is kept.
        best_metric: The metric that tells which is best.
        history: The watched metric at each evaluation of this run.
        fingerprint: SHA-256 over all weights.
        inexact: Why the same config need not give the same weights again; None where nothing was
            trained.
        model_dir: The folder of the run.
        tflops_per_second: What the last record computed, in 10^12 floating-point operations a
            second; None where that is not known.
        mfu: Its share of what the devices can do.
        non_finite: The first weight with values that are NaN or infinite; "" where all are finite.
    """

    experiment: str
    mode: str
    step: int
    seconds: float
    steps_per_second: float | None
    parameters: int
    metrics: Mapping[str, float]
    best: Mapping[str, Any]
    best_metric: str
    history: Mapping[str, Sequence[float]]
    fingerprint: str
    model_dir: str
    inexact: Sequence[str] | None = None
    tflops_per_second: float | None = None
    mfu: float | None = None
    non_finite: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Returns the results for `--json`, which has no NaN: null stands for it."""
        values: dict[str, Any] = jsonable(dataclasses.asdict(self))
        return values


def sparkline(values: Sequence[float]) -> str:
    """Draws values as a row of bars.

    Args:
        values: In order.

    Returns:
        One character a value; "" for fewer than two.
    """
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    low, span = min(finite), (max(finite) - min(finite)) or 1.0
    heights = (round((value - low) / span * (len(_BARS) - 1)) for value in finite)
    return "".join(_BARS[height] for height in heights)


def rows(results: Results) -> list[tuple[str, str]]:
    """Returns the table's rows: a name and what it is.

    Args:
        results: What a run ended with.
    """
    speed = f", {results.steps_per_second:.4g} steps/s" if results.steps_per_second else ""
    found = [("step", f"{results.step} in {results.seconds:.1f} s{speed}")]
    for name, value in results.metrics.items():
        if name == "steps_per_second":
            continue
        counts = name == "validation_examples"
        shown = f"{value:.0f}" if counts else f"{value:.4f}"
        notes = [] if counts else [sparkline(results.history.get(name, ()))]
        if name == results.best_metric and name in results.best:
            best_step = int(results.best["best_ckpt_global_step"])
            notes.append(f"best {results.best[name]:.4f} at step {best_step}")
        found.append((name, "  ".join([shown, *filter(None, notes)])))
    found.append(("parameters", f"{results.parameters:,}"))
    if results.tflops_per_second and results.steps_per_second:
        found.append(("compute", _compute(results.tflops_per_second * 1e12, results)))
    found.append(("weights", f"sha256 {results.fingerprint}"))
    if results.non_finite:
        found.append(("not finite", results.non_finite))
    if results.inexact:
        found += [("not reproducible", reason) for reason in results.inexact]
    found.append(("run", results.model_dir))
    return found


def _compute(flops_per_second: float, results: Results) -> str:
    a_step = flops_per_second / (results.steps_per_second or 1.0)
    words = f"{short(a_step)}FLOP a step, {short(flops_per_second)}FLOP/s"
    return words if results.mfu is None else f"{words}, {results.mfu:.1%} of the devices' peak"


def print_results(results: Results) -> None:
    """Prints the table on standard output.

    Args:
        results: What a run ended with.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(f"\n{results.experiment} · {results.mode}", style="bold"))
    for name, value in rows(results):
        # Never wrapped: the fingerprint and the folder are there to be copied.
        console.print(Text.assemble("  ", (f"{name:<20}", "cyan"), " ", value), soft_wrap=True)
