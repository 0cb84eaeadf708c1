"""A replayed step as text. Does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orbit_runner.reporting.text.step import format_rows, more_rows
from orbit_runner.step.results import (
    LOSS,
    Examination,
    ExampleLoss,
    FirstBadValue,
    LayerOutput,
    VariableStep,
)

_EXAMPLES = 16
_VARIABLES = 24


def format_examination(
    found: Examination, *, layers: Sequence[str] = (), every: bool = False
) -> Iterator[str]:
    """Yields the lines of an examined step.

    `layers` are the layers whose outputs are shown; without them, those with bad values are. With
    `every`, all examples, variables and layers are shown.
    """
    loss = "not computed" if found.loss is None else _number(found.loss)
    yield f"loss {loss}, {found.rows:,} examples"
    if found.first_bad is not None:
        yield from ("", *_first_bad(found, found.first_bad))
    yield from ("", f"examples, worst first ({found.losses})")
    yield from _limited_rows([_example(one) for one in found.examples], _EXAMPLES, every=every)
    yield from ("", "variables: norms of weight, gradient and update")
    yield from _limited_rows([_variable(one) for one in found.variables], _VARIABLES, every=every)
    shown = [one for one in found.layers if every or _is_shown(one, layers)]
    if shown:
        yield from ("", "outputs of layers")
        yield from format_rows([_layer(one) for one in shown])


def _is_shown(one: LayerOutput, layers: Sequence[str]) -> bool:
    return one.layer in layers if layers else one.non_finite > 0


def _limited_rows(rows: Sequence[Mapping[str, Any]], most: int, *, every: bool) -> Iterator[str]:
    shown = rows if every else rows[:most]
    if shown:
        yield from format_rows(shown)
    yield from more_rows(len(rows) - len(shown))


def _first_bad(found: Examination, bad: FirstBadValue) -> Iterator[str]:
    yield f"first bad value: {location_text(bad)}"
    if bad.message:
        yield f"  {bad.message}"
    if bad.source:
        yield f"  it came from the {bad.source} of the step"
    culprits = found.culprits
    if len(culprits) == found.rows > 1:
        yield "  in all examples of the batch"
    elif culprits:
        yield from ("  in these examples:", *format_rows([_example(one) for one in culprits]))


def location_text(bad: FirstBadValue) -> str:
    """Returns where the first bad value is, in one line."""
    kind = {"nan": "NaN", "inf": "infinity", "error": "error"}[bad.kind]
    where = "the loss function" if bad.layer == LOSS else f"layer {bad.layer}" if bad.layer else ""
    pass_of = {"forward": "forward pass", "backward": "backward pass", "update": "update"}
    parts = [where, bad.op and f"op {bad.op}", pass_of.get(bad.phase, "")]
    if bad.replica is not None:
        parts.append(f"replica {bad.replica}")
    return ", ".join([kind, *(part for part in parts if part)])


def _example(one: ExampleLoss) -> dict[str, Any]:
    loss = one.error or ("?" if one.loss is None else _number(one.loss))
    return {"row": one.row, "loss": loss, **one.about}


def _variable(one: VariableStep) -> dict[str, Any]:
    row = {
        "variable": one.name,
        "weight": _number(one.weight_norm),
        "gradient": "none" if one.gradient_norm is None else _number(one.gradient_norm),
        "update": _number(one.update_norm),
    }
    bad = {
        "weights": one.non_finite_weights,
        "gradients": one.non_finite_gradients,
        "updated": one.non_finite_updated,
    }
    found = ", ".join(f"{count:,} {name}" for name, count in bad.items() if count)
    return {**row, "not finite": found} if found else row


def _layer(one: LayerOutput) -> dict[str, Any]:
    numbers = {"min": one.min, "mean": one.mean, "max": one.max}
    return {
        "layer": one.layer,
        "shape": "×".join(map(str, one.shape)),
        **{name: "-" if value is None else _number(value) for name, value in numbers.items()},
        "not finite": f"{one.non_finite:,}",
    }


def _number(value: float) -> str:
    return f"{value:.4g}"
