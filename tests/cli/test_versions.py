"""`runner --version`: versions of packages, the git revision and devices."""

from __future__ import annotations

import json

import pytest

from orbit_runner.cli.main import main
from orbit_runner.version import __version__


@pytest.mark.slow
def test_versions_and_devices_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert main(["--version", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)

    assert lines["orbit_runner"] == values["orbit_runner"] == __version__
    assert {"python", "tensorflow", "git", "gpus", "portable_numerics"} < {*values}
    assert {*lines} == {*values}
