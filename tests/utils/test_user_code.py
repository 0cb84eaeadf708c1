"""The digests of the user's own modules."""

import importlib
import sys
import types

import pytest

from orbit_runner.utils import user_code


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "site-packages").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    yield tmp_path
    for name in ("my_code_a", "my_code_b", "my_installed"):
        sys.modules.pop(name, None)


def test_only_the_users_own_modules_are_listed(package):
    (package / "my_code_a.py").write_text("x = 1\n")
    (package / "site-packages" / "my_installed.py").write_text("x = 1\n")
    for name in ("my_code_a", "my_installed", "json", "numpy", "orbit_runner"):
        importlib.import_module(name)
    code = user_code.user_code()
    assert "my_code_a" in code
    assert __name__ in code
    others = ("my_installed", "json", "numpy", "pytest", "orbit_runner")
    assert not [name for name in code if name.partition(".")[0] in others]


def test_digest_is_that_of_the_code_that_was_imported(package):
    path = package / "my_code_a.py"
    path.write_text("x = 1\n")
    importlib.import_module("my_code_a")
    before = user_code.user_code()
    path.write_text("x = 2 + 0\n")
    assert user_code.user_code() == before
    importlib.reload(sys.modules["my_code_a"])
    after = user_code.user_code()
    assert user_code.changed_modules(before, after) == ["my_code_a"]
    assert user_code.changed_files(before, after) == [str(path)]


def test_modules_that_only_one_process_imported_do_not_count_as_changed():
    assert user_code.changed_modules({"a": "1", "b": "2"}, {"b": "2", "c": "3"}) == []


def test_a_deferred_module_is_not_run(monkeypatch):
    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"the module was run for {name}")

    monkeypatch.setitem(sys.modules, "my_lazy_module", Lazy("my_lazy_module"))
    user_code.user_code()
