"""Modules whose code runs when one of their attributes is first used."""

from __future__ import annotations

import importlib
import sys

import pytest

from orbit_runner.utils.deferred_imports import Deferred, defer_imports

_CODE = "import sys\nsys.deferred_ran.append(__name__)\nfrom deferred_one import part\nvalue = 3\n"


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """Returns the modules that ran, of a package `deferred_one` with a submodule `part`."""
    package = tmp_path / "deferred_one"
    package.mkdir()
    (package / "__init__.py").write_text(_CODE)
    (package / "part.py").write_text("import sys\nsys.deferred_ran.append(__name__)\nname = 'x'\n")
    (tmp_path / "deferred_broken.py").write_text("raise OSError('as it is')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "deferred_ran", [], raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    defer_imports(["deferred_one", "deferred_broken"])
    yield sys.deferred_ran
    for name in [name for name in sys.modules if name.startswith("deferred_")]:
        del sys.modules[name]


def test_deferred_module_runs_at_its_first_use(ran):
    module = importlib.import_module("deferred_one")
    assert type(module) is Deferred
    assert not ran
    assert module.value == 3
    assert ran == ["deferred_one", "deferred_one.part"]
    assert type(module) is not Deferred
    with pytest.raises(AttributeError, match="nothing"):
        _ = module.nothing


def test_submodule_is_imported_after_its_deferred_package(ran):
    importlib.import_module("deferred_one")
    assert importlib.import_module("deferred_one.part").name == "x"
    assert ran == ["deferred_one", "deferred_one.part"]


def test_from_import_runs_a_deferred_module_immediately(ran):
    from deferred_one import value

    assert ran == ["deferred_one", "deferred_one.part"]
    assert value == 3


def test_missing_deferred_module_raises_module_not_found_error(ran):
    defer_imports(["deferred_absent"])
    with pytest.raises(ModuleNotFoundError, match="deferred_absent"):
        importlib.import_module("deferred_absent")


def test_broken_deferred_module_fails_at_each_use(ran):
    for _ in range(2):
        module = importlib.import_module("deferred_broken")
        with pytest.raises(OSError, match="as it is"):
            _ = module.value
