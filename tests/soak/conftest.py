"""Options of `make soak SUITE=long`."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak-steps", type=int, default=0, help="training steps of each long run")
    parser.addoption("--restarts", type=int, default=0, help="restarts of the run that restarts")
