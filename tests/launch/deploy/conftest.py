"""Fixtures that print manifests and validate them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.cli.main import main

SCHEMAS = Path(__file__).parent / "schemas"


@pytest.fixture
def printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Runs `runner manifest` outside the checkout, and returns its output."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        assert main(["manifest", *arguments]) == 0, capsys.readouterr().err
        said = capsys.readouterr()
        assert said.err == ""
        return said.out

    return run


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs `runner manifest`, which has to fail, and returns its error message."""

    def run(*arguments: str) -> str:
        assert main(["manifest", *arguments]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert len(said.err.splitlines()) < 25
        return said.err

    return run


@pytest.fixture
def valid() -> Callable[[Any, str], None]:
    """Validates a document against one of the schemas in `schemas/`."""
    jsonschema = pytest.importorskip("jsonschema")  # The lock has it from Python 3.11 on.

    def check(document: Any, schema: str) -> None:
        rules = json.loads((SCHEMAS / f"{schema}.json").read_text())
        jsonschema.Draft202012Validator.check_schema(rules)
        errors = jsonschema.Draft202012Validator(rules).iter_errors(document)
        assert [f"{error.json_path}: {error.message[:200]}" for error in errors] == []

    return check
