"""The tree of runs that `runner runs --tree` draws: each branch below the run that it continues."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_runner.run_directory.run_summary import RunSummary

# Before a run, before the last run of its parent, and the same for the lines below them.
_LINES = ("├─ ", "└─ ", "│  ", "   ")
_ASCII = ("|- ", "`- ", "|  ", "   ")


def tree_rows(
    runs: Sequence[RunSummary], *, can_draw_lines: bool = True
) -> list[tuple[RunSummary, str]]:
    """Returns the runs in the order of a tree, each with its name behind the lines of the tree.

    Branches follow the run that they continue, the earliest first; the other runs keep their
    order. A branch whose parent is not among the runs is not below any of them.
    """
    by_path = {run.path.resolve(): run for run in runs}
    branches: dict[Path, list[RunSummary]] = {}
    first = []
    for path, run in by_path.items():
        parent = run.parent.resolve() if run.parent is not None else None
        if parent is None or parent not in by_path or _is_own_ancestor(path, parent, by_path):
            first.append(run)
        else:
            branches.setdefault(parent, []).append(run)
    lines = _LINES if can_draw_lines else _ASCII
    return [row for run in first for row in _rows(run, branches, "", "", lines)]


def _is_own_ancestor(path: Path, parent: Path, runs: dict[Path, RunSummary]) -> bool:
    """Returns whether a run is among its own ancestors, which only edited records can cause."""
    seen: set[Path] = set()
    at: Path | None = parent
    while at is not None and at not in seen:
        if at == path:
            return True
        seen.add(at)
        above = runs[at].parent if at in runs else None
        at = above.resolve() if above is not None else None
    return False


def _rows(
    run: RunSummary,
    branches: dict[Path, list[RunSummary]],
    before: str,
    below: str,
    lines: tuple[str, str, str, str],
) -> Iterator[tuple[RunSummary, str]]:
    """Yields a run and its branches; `before` and `below` are the lines at and under its name."""
    where = f" at {run.branch_step:,}" if run.branch_step is not None else ""
    if where and not before and run.parent is not None:
        where += f" of {os.path.relpath(run.parent)}"
    yield run, f"{before}{os.path.relpath(run.path)}{where}"
    found = sorted(
        branches.get(run.path.resolve(), []), key=lambda one: (one.branch_step or 0, one.path)
    )
    branch, last, through, beside = lines
    for index, one in enumerate(found):
        is_last = index == len(found) - 1
        yield from _rows(
            one,
            branches,
            below + (last if is_last else branch),
            below + (beside if is_last else through),
            lines,
        )
