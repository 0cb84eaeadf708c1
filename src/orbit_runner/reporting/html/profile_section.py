"""The section of a report about the profile of its run."""

from __future__ import annotations

import functools
from html import escape
from pathlib import Path

from orbit_runner.errors import RunnerError, first_line
from orbit_runner.profiling.profile import profile_of
from orbit_runner.profiling.trace_files import TraceFiles, newest_trace
from orbit_runner.reporting.html.page import table
from orbit_runner.reporting.text.profile import (
    KIND_HEAD,
    PART_HEAD,
    advice,
    kind_rows,
    kind_title,
    part_rows,
    part_title,
    verdict,
)

_ROWS = 10


def profile_content(run: Path) -> str:
    """Returns the newest profile of a run as HTML; "" if it has no trace."""
    trace = newest_trace(run)
    return "" if trace is None else _content(trace)


# A report is written again and again during a run, and reading a trace can take seconds.
@functools.lru_cache(maxsize=1)
def _content(trace: TraceFiles) -> str:
    try:
        profile = profile_of(trace)
    except RunnerError as error:
        return f"<p class=bad>{escape(first_line(error))}</p>"
    items = "".join(f"<li>{escape(text)}</li>" for text in advice(profile))
    return "".join(
        [
            f"<p>{escape(verdict(profile))}</p>",
            f"<ul>{items}</ul>" if items else "",
            f"<p class=soft>{escape(kind_title(profile))}</p>",
            table(KIND_HEAD, kind_rows(profile, _ROWS), numbers=True),
            f"<p class=soft>{escape(part_title(profile))}</p>",
            table(PART_HEAD, part_rows(profile, _ROWS), numbers=True),
        ]
    )
