"""Private parts of libraries: one module uses them, and says so if one of them is gone."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner import tf_internals
from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.writer import CheckpointWriter
from orbit_runner.tf_internals import NAMES, MissingInternal
from tests.support.source import ROOT, nodes_of

PRIVATE_MODULES = (
    *("tensorflow.python", "tensorflow.core", "tensorflow.compiler", "tensorflow.lite"),
    *("tf_keras.src", "keras.src"),
)
ATTRIBUTE_FUNCTIONS = ("getattr", "setattr", "hasattr", "delattr")


def is_private(name: object) -> bool:
    name = str(name)
    return name == "__internal__" or (name.startswith("_") and not name.startswith("__"))


def defined_names(path: Path) -> set[str]:
    """Returns the names that the classes and functions of a module define."""
    names: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.update({node.attr} if name_of(node.value) in ("self", "cls") else ())
    return names


def name_of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def private_attributes(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yields (line, receiver, name) of accesses to attributes, also by `getattr` and others."""
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node.lineno, ast.unparse(node.value), node.attr
        elif isinstance(node, ast.Call) and name_of(node.func) in ATTRIBUTE_FUNCTIONS:
            receiver, name = node.args[:2]
            if isinstance(name, ast.Constant) and is_private(name.value):
                yield node.lineno, ast.unparse(receiver), str(name.value)


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def private_accesses(path: Path, package: set[str]) -> list[str]:
    """Returns the accesses of a module to private parts of libraries.

    `package` are the private names of the package's classes, which it may use of `self`.
    """
    own = defined_names(path)
    accesses = [
        f"{path.name}:{line} imports {module}"
        for line, module in imported_modules(path)
        if f"{module}.".startswith(tuple(f"{name}." for name in PRIVATE_MODULES))
        or (not module.startswith("orbit_runner") and any(map(is_private, module.split(".")[1:])))
    ]
    for line, receiver, name in private_attributes(path):
        known = package if receiver in ("self", "cls", "super()") else own
        if name not in known and (receiver, name) != ("os", "_exit"):
            accesses.append(f"{path.name}:{line} uses {receiver}.{name}")
    return accesses


def test_no_other_module_uses_private_parts_of_libraries():
    paths = [path for path in sorted(ROOT.rglob("*.py")) if path.stem != "tf_internals"]
    package: set[str] = set().union(*map(defined_names, paths))

    violations = {
        name: accesses
        for path in paths
        if (name := path.relative_to(ROOT).as_posix())
        and (accesses := private_accesses(path, package))
    }

    assert violations == {}


def owner_of(path: str) -> tuple[Any, str]:
    module, _, name = path.partition(":")
    *outer, last = name.split(".")
    owner = importlib.import_module(module)
    for part in outer:
        owner = getattr(owner, part)
    return owner, last


@pytest.mark.parametrize("name", NAMES)
def test_missing_name_is_an_error(name, monkeypatch):
    assert getattr(tf_internals, name) is not None

    owner, last = owner_of(NAMES[name])
    for base in owner.__mro__ if isinstance(owner, type) else [owner]:
        if last in dir(base):
            monkeypatch.delattr(base, last, raising=False)

    with pytest.raises(MissingInternal, match=NAMES[name].rpartition(":")[2]):
        getattr(tf_internals, name)


def test_nothing_is_replaced_if_a_function_is_missing(monkeypatch):
    before = tf_internals.random_uniform
    monkeypatch.setitem(NAMES, "random_gamma", "tensorflow.python.ops.gen_random_ops:gone")

    with pytest.raises(MissingInternal, match="gone"):
        tf_internals.replace_functions({"random_uniform": lambda f: None, "random_gamma": None})

    assert tf_internals.random_uniform is before


# What would otherwise go unnoticed


def test_failed_saves_cannot_go_unnoticed(tmp_path, monkeypatch):
    checkpoint = tf.train.Checkpoint(value=tf.Variable(1.0))
    vars(checkpoint).pop("_async_checkpointer_impl")

    with pytest.raises(MissingInternal, match=r"Checkpoint\._async_checkpointer_impl"):
        CheckpointWriter(checkpoint, CheckpointFolder(tmp_path), asynchronous=True)


def test_generator_of_keras_3_is_known_without_its_constant(monkeypatch):
    import keras

    constant = "keras.src.random.seed_generator.GLOBAL_SEED_GENERATOR"
    tf_internals.keras_3_set_global(tf_internals.keras_3_generator_key(), None)
    keras.random.uniform([])
    monkeypatch.delattr(constant, raising=False)
    generator = tf_internals.keras_3_get_global(tf_internals.keras_3_generator_key())
    assert isinstance(generator, keras.random.SeedGenerator)
