"""`python -m orbit_runner` is `runner`."""

from orbit_runner.cli.main import entry

entry()
