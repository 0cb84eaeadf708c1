"""What every tracker of the package promises, before and without its service."""

import inspect
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from orbit_runner.config.schema.plugins import TrackerConfig
from orbit_runner.registry import TRACKERS
from orbit_runner.trackers.base import NamedTracker, Tracker

_ROOT = Path(__file__).parents[2]
_METHODS = ("start", "log", "flush", "finish")


@pytest.fixture(params=TRACKERS.registered(), ids=lambda entry: entry.name)
def entry(request):
    return request.param


def test_tracker_has_the_methods_of_the_base_class(entry):
    tracker = entry.load()

    assert issubclass(tracker, NamedTracker)
    for name in _METHODS:
        own = inspect.signature(getattr(tracker, name))
        assert [*own.parameters] == [*inspect.signature(getattr(Tracker, name)).parameters]


def test_arguments_have_defaults_and_types_that_a_config_can_set(entry):
    constructor = entry.load().__init__
    page = (_ROOT / "docs" / "trackers.md").read_text(encoding="utf-8")
    hints = typing.get_type_hints(constructor)

    for name, parameter in inspect.signature(constructor).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        assert parameter.default is not inspect.Parameter.empty
        assert name in hints
        assert f"`{name}`" in page
    assert entry.name in page.lower()


def test_unknown_or_mistyped_argument_is_a_problem_of_the_config(entry):
    unknown = TrackerConfig(class_name=entry.name, arguments={"no_such": "x"})
    assert any("no_such" in problem.message for problem in unknown.problems())
    assert [*TrackerConfig(class_name=entry.name).problems()] == []

    for name in typing.get_type_hints(entry.load().__init__):
        if name != "return":
            mistyped = TrackerConfig(class_name=entry.name, arguments={name: 3})
            assert any(name in problem.message for problem in mistyped.problems())


def test_extra_installs_the_packages_that_it_imports(entry):
    modules = entry.load().modules
    project = (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extra = re.search(rf"^{entry.name} = \[(.*?)\]", project, re.MULTILINE | re.DOTALL)

    assert bool(extra) == bool(modules)
    for module in modules:
        assert extra
        assert module.partition(".")[0] in extra[1]


def test_no_tracker_imports_its_package_before_a_run():
    code = (
        "import sys; from orbit_runner.registry import TRACKERS\n"
        "modules = {name for entry in TRACKERS.registered() for name in entry.load().modules}\n"
        "assert not modules & set(sys.modules), modules & set(sys.modules)\n"
        "assert 'tensorflow' not in sys.modules"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert completed.returncode == 0, completed.stderr
