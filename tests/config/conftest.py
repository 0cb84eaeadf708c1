from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.config.resolve import Request, resolve


@pytest.fixture
def write(here: Path) -> Callable[..., str]:
    """Writes a file into the working directory and returns its name."""

    def write_file(name: str, content: str | bytes) -> str:
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    return write_file


@pytest.fixture
def refused() -> Callable[..., list[Problem]]:
    """Resolves a request that must be rejected, and returns the problems."""

    def problems(**request: Any) -> list[Problem]:
        with pytest.raises(ConfigError) as caught:
            resolve(Request(**{"experiment": "digits"} | request))
        return [*caught.value.problems]

    return problems


@pytest.fixture
def over_digits() -> Callable[..., Any]:
    """Applies layers on top of `digits` and returns the config."""

    def config(**request: Any) -> Any:
        return resolve(Request(**{"experiment": "digits"} | request)).config

    return config
