"""The examples of a step, and the steps of an example, as text. Does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orbit_runner.step.examples import StepExamples

Row = Mapping[str, Any]
_WIDEST = 60
_NUMBERS = ("row", "example", "step", "epoch", "position", "worker", "replica", "record", "offset",
            "line", "user", "item", "label")  # fmt: skip


def format_step(found: StepExamples, name: str, source: str) -> Iterator[str]:
    """Yields the lines of a step: a title, and a table of its examples."""
    seed = f"seed {found.seed}"
    if found.recoveries:
        times = "recovery" if found.recoveries == 1 else "recoveries"
        seed += f" after {found.recoveries} {times} from divergence"
    skipped = "; skipped: it changes no weight" if found.skipped else ""
    yield f"step {found.step:,} of {name}: {found.rows:,} examples of {source}, {seed}{skipped}"
    yield from format_rows(found.chosen)
    yield from more_rows(found.count - len(found.chosen))


def format_rows(rows: Sequence[Row]) -> Iterator[str]:
    """Yields the lines of a table: a column for each name in any of the rows."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    texts = [names, *([_text(row.get(name)) for name in names] for row in rows)]
    sizes = [max(len(line[n]) for line in texts) for n in range(len(names))]
    for line in texts:
        cells = [
            f"{text:>{size}}" if name in _NUMBERS else f"{text:<{size}}"
            for name, text, size in zip(names, line, sizes, strict=True)
        ]
        yield f"  {'  '.join(cells)}".rstrip()


def more_rows(count: int) -> Iterator[str]:
    """Yields a line with the number of rows that are not shown, if there are any."""
    if count > 0:
        yield f"  … and {count:,} more; --all shows all of them"


def _text(value: Any, *, inner: bool = False) -> str:
    """Returns a value as a cell; of a long path, only the end is kept."""
    if value is None or value == {}:
        return "-" if value is None else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        parts = (f"{key} {_text(one, inner=True)}" for key, one in value.items())
        return (", " if inner else "; ").join(parts)
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    text = str(value)
    return text if len(text) <= _WIDEST or " " in text else f"…{text[1 - _WIDEST :]}"
