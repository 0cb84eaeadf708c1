"""`validate` and `run` agree on gin bindings that only their own modules can check."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.jobs.gin_bindings import bind_gin

MODULE = '''"""Registers a configurable."""

import gin

print("imported")  # A module may print: the answer has to be readable all the same.


@gin.configurable
def scale_by(factor=1, shift=0):
    return factor


gin.constant("own.ANSWER", 42)
'''
GOOD = """\
import {module}
M = 3
scale_by.factor = %M
s/{module}.scale_by.shift = %own.ANSWER
"""
BAD = """\
import {module}
scale_b.factor = 3
scale_by.facter = 4
scale_by.shift = %UNDEFINED
scale_by.factor = @scale_bye()
"""
EXPECTED = [
    ("{module}.gin:2", "No configurable matching 'scale_b'; did you mean 'scale_by'?"),
    ("{module}.gin:3", "doesn't have a parameter named 'facter'; did you mean 'factor'?"),
    (
        "{module}.gin:5",
        "No configurable matching reference '@scale_bye()'; did you mean 'scale_by'?",
    ),
    ("{module}.gin:4", "macro %UNDEFINED is not defined"),
]


@pytest.fixture
def module(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with a name that no other test registers."""
    name = f"own_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def _write(module: str, text: str) -> str:
    Path(f"{module}.gin").write_text(text.format(module=module))
    return f"{module}.gin"


def test_run_reports_each_invalid_binding_with_its_line(module: str) -> None:
    import gin

    resolved = resolve(Request(experiment="digits", gin_files=(_write(module, BAD),)))

    try:
        with pytest.raises(ConfigError) as caught:
            bind_gin(resolved)
    finally:
        gin.clear_config()

    found = [(str(problem.origin), problem.message) for problem in caught.value.problems]
    assert [place for place, _ in found] == [place.format(module=module) for place, _ in EXPECTED]
    for (_, message), (_, expected) in zip(found, EXPECTED, strict=True):
        assert expected in message


@pytest.mark.slow
def test_validate_reports_the_same_binding_errors_as_run(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = _write(module, BAD)
    Path("good.gin").write_text(GOOD.format(module=module))

    assert main(["validate", name, "good.gin", "--experiment=digits"]) == 2

    said = capsys.readouterr()
    assert said.out == "good.gin: ok\n"
    assert said.err.count("importing tensorflow, to check gin bindings\n") == 2
    for place, message in EXPECTED:
        assert place.format(module=module) in said.err
        assert message in said.err
    assert "Traceback" not in said.err


def test_run_names_the_module_that_fails_to_import(module: str) -> None:
    Path(f"{module}.py").write_text("raise ValueError('no licence')\n")
    name = _write(module, "import {module}\n")

    with pytest.raises(ConfigError) as caught:
        bind_gin(resolve(Request(experiment="digits", gin_files=(name,))))

    (problem,) = caught.value.problems
    assert str(problem.origin) == f"{module}.gin:1"
    assert problem.message == f"no licence\nin: import {module}"


@pytest.mark.slow
def test_validate_reports_a_module_that_exits_on_import(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken_module.py").write_text("import gin\nraise SystemExit('no licence')\n")
    Path("a.gin").write_text("import broken_module\nf.x = 1\n")

    assert main(["validate", "a.gin", "--experiment=digits"]) == 2

    assert "cannot import their modules: no licence" in capsys.readouterr().err
