"""Chooses how progress is shown."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from orbit_runner.reporting.progress.lines import JsonProgress, PlainProgress, QuietProgress

if TYPE_CHECKING:
    from orbit_runner.reporting.progress.live import LiveProgress
    from orbit_runner.reporting.progress.notebook import NotebookProgress


def make_progress(
    kind: str = "auto",
    *,
    interval: float = 10.0,
    brief: bool = False,
    title: str = "",
    place: str = "",
) -> PlainProgress | QuietProgress | JsonProgress | LiveProgress | NotebookProgress:
    """Returns the object that shows progress, which is not shown yet.

    `kind` is a value of `--progress`, and `interval` the seconds between lines. `brief` is for a
    process whose progress another process shows, too. `title` and `place`, such as the run
    directory, are the first line of the live display.
    """
    if kind == "none":
        return QuietProgress()
    if kind == "json":
        return JsonProgress(interval, brief=brief)
    if kind in ("auto", "bar") and "IPython" in sys.modules and not brief:
        from orbit_runner.reporting.progress.notebook import NotebookProgress, notebook_display

        display = notebook_display()
        if display is not None:
            return NotebookProgress(display, title, place)
    if kind == "plain" or brief or not can_draw(forced=kind == "bar"):
        return PlainProgress(interval, brief=brief)
    from orbit_runner.reporting.progress.live import LiveProgress

    return LiveProgress(title, place)


def can_draw(*, forced: bool) -> bool:
    """Returns whether standard error is a terminal that can move its cursor and shows UTF-8."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return False
    return forced or "utf" in sys.stderr.encoding.lower()
