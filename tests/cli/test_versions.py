"""`runner --version`: versions of packages, the git revision and devices."""

from __future__ import annotations

import json

import pytest

from orbit_runner.version import __version__
from tests.support.problems import output_of


@pytest.mark.slow
def test_versions_and_devices_are_printed():
    lines = dict(line.split(maxsplit=1) for line in output_of(["--version"]).splitlines())
    values = json.loads(output_of(["--version", "--json"]))

    assert lines["orbit_runner"] == values["orbit_runner"] == __version__
    assert {"python", "tensorflow", "git", "gpus", "portable_numerics"} < {*values}
    assert {*lines} == {*values}
