"""What goes wrong between here and a public data set."""

from __future__ import annotations

from orbit_runner.errors import RunnerError


class DownloadError(RunnerError):
    """A data set that could not be got, through no mistake in the command."""

    exit_code = 1


class Dropped(Exception):
    """A transfer that ended early and may go better in a moment."""


class Unavailable(Exception):
    """An address that gives nothing, however often it is asked."""
