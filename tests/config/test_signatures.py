"""Signatures are read from the source, without importing the module, and values are checked."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

import sys
from inspect import Parameter, Signature

import pytest

from orbit_runner.config.signatures import (
    UNKNOWN,
    actual_parameters,
    argument_problems,
    declared_parameters,
    keyword_parameters,
    literal_defaults,
    module_problem,
    reference_problem,
    source_path,
)
from tests.support.problems import check

_SOURCE = '''
raise SystemExit("the module was imported")
from . import other
from .other import moved as renamed
import functools

LIMIT = 3

def build(units: int, rate: float = 0.5, *, names: list[str] | None = None, size=LIMIT):
    """Builds."""

def loose(first, /, second=1, **rest): ...

class Model:
    def __init__(self, depth: "int" = 2): ...

class Inherited(Model): ...

@functools.cache
def decorated(units: int): ...

assigned = functools.partial(build, 3)
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "signed_pkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit('the package was imported')\n")
    (folder / "nets.py").write_text(_SOURCE)
    (folder / "other.py").write_text("def moved(width: int = 4): ...\n")
    return "signed_pkg.nets"


def _read(reference: str) -> Signature:
    signature = declared_parameters(reference)
    assert isinstance(signature, Signature), signature
    return signature


def test_signature_is_read_without_importing_the_module(package):
    parameters = _read(f"{package}:build").parameters

    assert {name: (p.annotation, p.default) for name, p in parameters.items()} == {
        "units": ("int", Parameter.empty),
        "rate": ("float", 0.5),
        "names": ("list[str] | None", None),
        "size": (Parameter.empty, UNKNOWN),
    }
    assert literal_defaults(_read(f"{package}:build")) == {"rate": 0.5, "names": None}
    assert "signed_pkg" not in sys.modules


def test_constructor_and_re_exported_function_are_found(package):
    assert [*_read(f"{package}:Model").parameters] == ["depth"]
    assert [*_read(f"{package}:renamed").parameters] == ["width"]


def test_positional_only_arguments_cannot_be_set_and_others_can(package):
    signature = _read(f"{package}:loose")

    assert [*keyword_parameters(signature)] == ["second"]
    assert list(argument_problems(signature, {"anything": 1}, "f")) == []


@pytest.mark.parametrize("name", ["decorated", "assigned", "Inherited"])
def test_source_that_does_not_tell_the_signature_gives_none(package, name):
    assert declared_parameters(f"{package}:{name}") is None


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("signed_pkg.nets:bild", "signed_pkg.nets has no function or class 'bild'; did you mean 'build'?"),
        ("signed_pkg.nots:build", "no module named 'signed_pkg.nots'"),
        ("no_such_package:build", "no module named 'no_such_package'"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("package")
def test_missing_function_or_module_is_a_message(reference, message):
    problem = declared_parameters(reference)

    assert isinstance(problem, str)
    assert problem.startswith(message)


def test_a_parameter_that_stands_twice_is_a_message(package, tmp_path):
    path = tmp_path / "signed_pkg/nets.py"
    path.write_text("def build(units, units=3): ...\n")

    message = str(declared_parameters(f"{package}:build"))

    assert message.startswith(f"{path} is not valid Python: duplicate parameter name: 'units'")


@pytest.mark.parametrize("folder", ["signed_pkg/plain", "plain/inner", "plain/inner/deep"])
@pytest.mark.usefixtures("package")
def test_packages_may_lack_an_init_file(folder, tmp_path):
    module = f"{folder.replace('/', '.')}.nets"
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "nets.py").touch()

    assert source_path(module) == tmp_path / folder / "nets.py"
    assert module_problem(module) == ""
    assert module_problem(f"{module}_").startswith(f"no module named '{module}_'")


def test_packages_may_extend_their_path(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "extended_pkg").mkdir()
    (tmp_path / "extended_pkg/__init__.py").write_text(f"__path__.append({str(tmp_path)!r})\n")
    (tmp_path / "elsewhere.py").touch()

    assert module_problem("extended_pkg.elsewhere") == ""
    assert module_problem("extended_pkg.nowhere").startswith("no module named")


def test_module_without_python_source_has_no_path():
    assert source_path("math") is None
    assert declared_parameters("math:sqrt") is None


def _plain(count: int, flag: bool = False, scale=1.0, label="a", free=None): ...


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"count": 3}, []),
        ({}, ["count"]),
        ({"cuont": 3, "count": 1}, ["cuont"]),
        ({"count": "3"}, ["count"]),
        ({"count": True}, ["count"]),
        ({"count": 1, "flag": 1}, ["flag"]),
        ({"count": 1, "scale": 3}, []),
        ({"count": 1, "scale": "x"}, ["scale"]),
        ({"count": 1, "label": 3}, ["label"]),
        ({"count": 1, "free": [1]}, []),
    ],
)
def test_arguments_are_checked(arguments, wrong):
    signature = actual_parameters(_plain)
    assert signature is not None

    problems = argument_problems(signature, arguments, "f")
    check(problems, *(("bad-arguments", name) for name in wrong))


@pytest.mark.parametrize(
    ("annotation", "fits", "does_not"),
    [
        ("int", [1], ["a", 1.5, True, None]),
        ("float", [1, 1.5], ["a", True]),
        ("str", ["a"], [1]),
        ("bool", [True], [1]),
        ("int | None", ["anything"], []),
        ("tf_keras.layers.Layer", ["anything", 3], []),
    ],
)
def test_values_are_compared_with_annotations_of_one_type(annotation, fits, does_not):
    def function(value): ...

    function.__annotations__ = {"value": annotation}
    signature = actual_parameters(function)
    assert signature is not None
    for value in fits:
        assert list(argument_problems(signature, {"value": value}, "f")) == []
    for value in does_not:
        assert len(list(argument_problems(signature, {"value": value}, "f"))) == 1


@pytest.mark.parametrize("reference", ["build", "a.b", "a:b:c", ":b", "a:", "a b:c", "1a:b"])
def test_reference_that_is_not_a_module_and_a_name_is_reported(reference):
    assert reference_problem(reference, "my_package:build").endswith("in it: my_package:build")
    assert reference_problem("a.b:c", "") == ""
