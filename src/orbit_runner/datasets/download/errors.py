"""Errors of downloads."""

from __future__ import annotations

from orbit_runner import exit_codes
from orbit_runner.errors import RunnerError


class DownloadError(RunnerError):
    """A dataset could not be downloaded, although the command is correct."""

    exit_code = exit_codes.CRASHED


class Dropped(Exception):
    """A transfer ended early; a retry may succeed."""


class Unavailable(Exception):
    """An address does not provide the file; a retry would not help."""
