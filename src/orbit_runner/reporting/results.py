"""The results of a run, and the table at its end."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orbit_runner.config.serialize import inline_yaml
from orbit_runner.utils.files import to_jsonable
from orbit_runner.utils.flops import format_si
from orbit_runner.utils.streams import line_text

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of a run."""

    experiment: str
    mode: str
    step: int
    seconds: float  # wall time of training and evaluation
    steps_per_second: float | None  # of the last record; None if nothing was trained
    parameters: int  # number of trainable parameters
    metrics: Mapping[str, float]  # of the last evaluation
    best: JsonObject  # best evaluation; empty if it is not kept
    best_metric: str  # metric that determines the best evaluation
    history: Mapping[str, Sequence[float]]  # metric to its value at each evaluation
    fingerprint: str  # SHA-256 of all weights
    model_dir: str
    inexact: Sequence[str] | None = None  # why not reproducible; None if nothing was trained
    tflops_per_second: float | None = None  # 10^12 FLOP/s of the last record; None if unknown
    mfu: float | None = None  # fraction of the peak of the devices; None if unknown
    export_problem: str = ""  # why the export at the end failed; "" if it did not
    non_finite: str = ""  # first weight with NaN or infinite values; "" if all are finite
    # The metrics of the last evaluation that are NaN or infinite.
    non_finite_metrics: Sequence[str] = ()
    # The settings and files that are not those of the run's own validation data.
    data: Mapping[str, object] = dataclasses.field(default_factory=dict)
    # What a constant predicts, such as `majority`, and its result, by metric.
    baselines: Mapping[str, tuple[str, float]] = dataclasses.field(default_factory=dict)

    def as_dict(self) -> JsonObject:
        """Returns the results for `--json`, with null for NaN and infinities."""
        values: JsonObject = to_jsonable(dataclasses.asdict(self))
        return values


def worse_than_constant(
    metrics: Mapping[str, float | None], baselines: Mapping[str, tuple[str, float]]
) -> str:
    """Returns the metrics that are not better than those of a constant; "" if there are none."""
    worse = []
    for name, (constant, result) in baselines.items():
        value = metrics.get(name)
        # A model is better if more classes are right, or errors are smaller.
        if value is not None and not (value > result if constant == "majority" else value < result):
            worse.append(f"{name} {value:.4g} ({constant} {result:.4g})")
    return f"not better than a constant prediction: {', '.join(worse)}" if worse else ""


def run_title(name: str, mode: str) -> str:
    """Returns the title of a run; an experiment of flags alone has no name."""
    return f"{name} · {mode}" if name else mode


def rows(results: Results) -> list[tuple[str, str]]:
    """Returns the rows of the table as (name, value)."""
    speed = f", {results.steps_per_second:.4g} steps/s" if results.steps_per_second else ""
    entries = [("step", f"{results.step} in {results.seconds:.1f} s{speed}")]
    entries += [("data", f"{path}: {inline_yaml(value)}") for path, value in results.data.items()]
    for name, value in results.metrics.items():
        texts = [f"{value:.0f}" if name == "validation_examples" else f"{value:.4f}"]
        if name == results.best_metric and name in results.best:
            best_step = int(results.best["best_ckpt_global_step"])
            texts.append(f"best {results.best[name]:.4f} at step {best_step}")
        if name in results.baselines:
            constant, result = results.baselines[name]
            texts.append(f"{constant} {result:.4f}")
        entries.append((name, "  ".join(texts)))
    if warning := worse_than_constant(results.metrics, results.baselines):
        entries.append(("warning", warning))
    entries.append(("parameters", f"{results.parameters:,}"))
    if results.tflops_per_second and results.steps_per_second:
        entries.append(("compute", _compute(results.tflops_per_second * 1e12, results)))
    entries.append(("weights", f"sha256 {results.fingerprint}"))
    if results.non_finite:
        entries.append(("not finite", results.non_finite))
    if results.non_finite_metrics:
        names = ", ".join(results.non_finite_metrics)
        entries.append(("not finite", f"{names} of the last evaluation"))
    if results.inexact:
        entries += [("not reproducible", reason) for reason in results.inexact]
    entries.append(("run", results.model_dir))
    if results.export_problem:
        entries.append(("not exported", results.export_problem.partition("\n")[0]))
    return entries


def _compute(flops_per_second: float, results: Results) -> str:
    a_step = flops_per_second / (results.steps_per_second or 1.0)
    words = f"{format_si(a_step)}FLOP per step, {format_si(flops_per_second)}FLOP/s"
    return words if results.mfu is None else f"{words}, {results.mfu:.1%} of the devices' peak"


def result_lines(results: Results) -> list[str]:
    """Returns the lines of the table."""
    pairs = (map(line_text, entry) for entry in rows(results))
    title = run_title(results.experiment, results.mode)
    return ["", title, *(f"  {name:<20} {value}" for name, value in pairs)]
