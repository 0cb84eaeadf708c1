"""Options of `make soak SUITE=faults`, and the file of its figures."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.utils.files import write_atomically

Record = Callable[..., None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--points", default="", help="faults of each kind: a number, or `all`")
    parser.addoption("--figures", default="", help="the JSON file to add the figures to")


@pytest.fixture(scope="session")
def points(pytestconfig: pytest.Config) -> int:
    """How many faults of each kind happen; 0 for the sample of the test suite."""
    setting = pytestconfig.getoption("--points", default="")
    return 10**9 if setting == "all" else int(setting or 0)


@pytest.fixture(scope="session")
def record(pytestconfig: pytest.Config) -> Record:
    """Adds a figure to the file of the option `--figures`, if there is one."""
    path = Path(pytestconfig.getoption("--figures", default=""))

    def add(name: str, **figures: Any) -> None:
        print(f"{name}: {figures}", flush=True)
        if path.name:
            earlier = json.loads(path.read_text()) if path.exists() else {}
            content = {**earlier, name: {**figures, "date": time.strftime("%Y-%m-%d")}}
            write_atomically(path, json.dumps(content, indent=2, sort_keys=True) + "\n")

    return add
