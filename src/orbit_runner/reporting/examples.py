"""The examples of a step, and a replayed step. Does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_runner.reporting.document import (
    Part,
    Section,
    Text,
    example_table,
    limited_examples,
)
from orbit_runner.reporting.numbers import short_number
from orbit_runner.step.examples import StepExamples
from orbit_runner.step.results import (
    LOSS,
    Examination,
    ExampleLoss,
    FirstBadValue,
    VariableStep,
)

_EXAMPLES = 16
_VARIABLES = 24


def step_section(step: StepExamples, name: str, source: str) -> Section:
    """Returns a step: a title, and a table of its examples."""
    seed = f"seed {step.seed}"
    if step.recoveries:
        times = "recovery" if step.recoveries == 1 else "recoveries"
        seed += f" after {step.recoveries} {times} from divergence"
    return Section(
        f"step {step.step:,} of {name}: {step.rows:,} examples of {source}, {seed}",
        limited_examples(step.chosen, step.rows),
    )


def examination_sections(examination: Examination, *, every: bool = False) -> Iterator[Section]:
    """Yields the sections of an examined step. With `every`, all rows are shown."""
    loss = "not computed" if examination.loss is None else short_number(examination.loss)
    yield Section("", [Text(f"loss {loss}, {examination.rows:,} examples")])
    bad = examination.first_bad
    if bad is not None:
        title = f"first bad value: {location_text(bad)}"
        yield Section(title, [*_first_bad(examination, bad)])
    for title, rows, most in (
        (
            f"examples, worst first ({examination.losses})",
            [*map(_example, examination.examples)],
            _EXAMPLES,
        ),
        (
            "variables: norms of weight, gradient and update",
            [*map(_variable, examination.variables)],
            _VARIABLES,
        ),
    ):
        yield Section(title, limited_examples(rows if every else rows[:most], len(rows)))


def _first_bad(examination: Examination, bad: FirstBadValue) -> Iterator[Part]:
    if bad.message:
        yield Text(bad.message)
    if bad.source:
        yield Text(f"it came from the {bad.source} of the step")
    culprits = examination.culprits
    if len(culprits) == examination.rows > 1:
        yield Text("in all examples of the batch")
    elif culprits:
        yield Text("in these examples:")
        yield example_table([_example(example) for example in culprits])
    else:
        yield Text("no example of the batch is known to have it")


def location_text(bad: FirstBadValue) -> str:
    """Returns where the first bad value is, in one line."""
    kind = {"nan": "NaN", "inf": "infinity", "error": "error"}[bad.kind]
    where = "the loss function" if bad.layer == LOSS else f"layer {bad.layer}" if bad.layer else ""
    pass_of = {"forward": "forward pass", "backward": "backward pass", "update": "update"}
    parts = [where, bad.op and f"op {bad.op}", pass_of.get(bad.phase, "")]
    if bad.replica is not None:
        parts.append(f"replica {bad.replica}")
    return ", ".join([kind, *(part for part in parts if part)])


def _example(example: ExampleLoss) -> dict[str, object]:
    loss = example.error or ("?" if example.loss is None else short_number(example.loss))
    return {"row": example.row, "loss": loss, **example.about}


def _variable(variable: VariableStep) -> dict[str, str]:
    row = {
        "variable": variable.name,
        "weight": short_number(variable.weight_norm),
        "gradient": "none"
        if variable.gradient_norm is None
        else short_number(variable.gradient_norm),
        "update": short_number(variable.update_norm),
    }
    bad = {
        "weights": variable.non_finite_weights,
        "gradients": variable.non_finite_gradients,
        "updated": variable.non_finite_updated,
    }
    counts = ", ".join(f"{count:,} {name}" for name, count in bad.items() if count)
    return {**row, "not finite": counts} if counts else row
