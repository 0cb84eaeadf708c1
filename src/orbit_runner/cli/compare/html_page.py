"""Writes the HTML page of `runner compare --html`."""

from __future__ import annotations

import sys
from pathlib import Path

from orbit_runner.errors import RunnerError
from orbit_runner.utils.files import write_output


def write_page(path: Path, page: str) -> None:
    """Writes a page, and prints its path on standard error."""
    try:
        write_output(path, page)
    except OSError as error:
        raise RunnerError(f"--html: cannot write {path}: {error.strerror}") from error
    print(f"the comparison is in {path}", file=sys.stderr)
