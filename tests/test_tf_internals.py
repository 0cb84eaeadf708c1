"""Private parts of libraries: one module uses them, and says so if one of them is gone."""

from __future__ import annotations

import ast
import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

import orbit_runner
from orbit_runner import tf_internals
from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.writer import CheckpointWriter
from orbit_runner.tf_internals import NAMES, MissingInternal
from orbit_runner.train.callbacks.summaries import Summaries

if sys.version_info >= (3, 11):
    import tomllib

ROOT = Path(orbit_runner.__file__).parent
PRIVATE_MODULES = (
    *("tensorflow.python", "tensorflow.core", "tensorflow.compiler", "tensorflow.lite"),
    *("tf_keras.src", "keras.src"),
)
# Private names of this package's own classes that another module of it uses.
OWN = {
    "step/tensors.py": {
        *("_make_step", "_step", "_replica_step", "_update_average", "_partition"),
        "_make_dataset",
    },
}
ATTRIBUTE_FUNCTIONS = ("getattr", "setattr", "hasattr", "delattr")


def is_private(name: object) -> bool:
    name = str(name)
    return name == "__internal__" or (name.startswith("_") and not name.startswith("__"))


def defined_names(tree: ast.AST) -> set[str]:
    """Returns the names that the classes and functions of a module define."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.update({node.attr} if ast.unparse(node.value) in ("self", "cls") else ())
    return found


def attributes(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Yields (line, receiver, name) of the accesses to attributes, also by `getattr` and others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node.value), node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ATTRIBUTE_FUNCTIONS:
            receiver, name = node.args[:2]
            if isinstance(name, ast.Constant):
                yield node.lineno, ast.unparse(receiver), str(name.value)


def imported_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def private_accesses(path: Path, own: set[str], package: set[str]) -> list[str]:
    """Returns the accesses of a module to private parts of libraries.

    `own` are private names that it may use of any object, and `package` those of the package's
    classes, which it may use of `self`.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = own | defined_names(tree)
    found = [
        f"{path.name}:{line} imports {module}"
        for line, module in imported_modules(tree)
        if f"{module}.".startswith(tuple(f"{name}." for name in PRIVATE_MODULES))
        or (not module.startswith("orbit_runner") and any(map(is_private, module.split(".")[1:])))
    ]
    for line, receiver, name in attributes(tree):
        known = package if receiver in ("self", "cls", "super()") else own
        if is_private(name) and name not in known and (receiver, name) != ("os", "_exit"):
            found.append(f"{path.name}:{line} uses {receiver}.{name}")
    return found


def test_no_other_module_uses_private_parts_of_libraries() -> None:
    paths = [path for path in sorted(ROOT.rglob("*.py")) if path.stem != "tf_internals"]
    package: set[str] = set().union(*(defined_names(ast.parse(p.read_text())) for p in paths))

    found = {
        name: accesses
        for path in paths
        if (name := path.relative_to(ROOT).as_posix())
        and (accesses := private_accesses(path, OWN.get(name, set()), package))
    }

    assert found == {}


def owner_of(path: str) -> tuple[Any, str]:
    module, _, name = path.partition(":")
    *outer, last = name.split(".")
    owner = importlib.import_module(module)
    for part in outer:
        owner = getattr(owner, part)
    return owner, last


@pytest.mark.parametrize("name", NAMES)
def test_missing_name_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert getattr(tf_internals, name) is not None

    owner, last = owner_of(NAMES[name])
    for base in owner.__mro__ if isinstance(owner, type) else [owner]:
        if last in dir(base):
            monkeypatch.delattr(base, last, raising=False)

    with pytest.raises(MissingInternal, match=NAMES[name].rpartition(":")[2]):
        getattr(tf_internals, name)


def test_message_names_versions_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMES, "FuncGraph", "tensorflow.python.eager.gone:FuncGraph")

    with pytest.raises(MissingInternal) as caught:
        _ = tf_internals.FuncGraph

    assert str(caught.value) == (
        f"tensorflow {tf.__version__} has no tensorflow.python.eager.gone.FuncGraph, a private "
        "part that orbit_runner uses\n"
        "it was written for tensorflow==2.20.*: install that version, or report this error"
    )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs tomllib")
def test_versions_are_those_of_the_package() -> None:
    path = ROOT.parents[1] / "pyproject.toml"
    project = tomllib.loads(path.read_text())["project"]
    declared = {*project["dependencies"], f"python{project['requires-python']}"}

    assert {*tf_internals.REQUIREMENTS.values()} <= declared


class Bare:
    """An object without any private attribute."""

    @property
    def extended(self) -> Bare:
        return self


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("_async_checkpointer_impl", tf_internals.take_async_save_error),
        ("_num_workers", tf_internals.worker_count),
        ("_flatten_layers", tf_internals.all_layers),
        ("_locked", tf_internals.unlock),
        ("_non_trainable_weights", lambda bare: tf_internals.set_own_other_weights(bare, ())),
    ],
)
def test_missing_attribute_is_an_error(name: str, use: Callable[[Any], Any]) -> None:
    with pytest.raises(MissingInternal, match=rf"{name}\b"):
        use(Bare())


@pytest.mark.parametrize(
    ("path", "name", "use"),
    [
        (
            "tensorflow.python.eager.context:Context._internal_operation_seed",
            "_rng",
            lambda: tf_internals.set_eager_generator(1, None),
        ),
        (
            "tf_keras.src.utils.tf_utils:set_random_seed",
            "generator",
            lambda: tf_internals.set_keras_generator(None),
        ),
        (
            "tensorflow.python.checkpoint.restore:CheckpointPosition.create_slot_variable_position",
            "_create_or_restore_slot_variable",
            tf_internals.require_slot_hook,
        ),
        (
            "tf_keras.src.utils.losses_utils:get_mask",
            "_keras_mask",
            lambda: tf_internals.set_keras_mask(SimpleNamespace(), tf.constant([True])),
        ),
    ],
)
def test_attribute_that_the_library_does_not_use_is_an_error(
    path: str, name: str, use: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    use()

    monkeypatch.setattr(*owner_of(path), lambda *args, **kwargs: None)

    with pytest.raises(MissingInternal, match=name):
        use()


def test_nothing_is_replaced_if_a_function_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = tf_internals.random_uniform
    monkeypatch.setitem(NAMES, "random_gamma", "tensorflow.python.ops.gen_random_ops:gone")

    with pytest.raises(MissingInternal, match="gone"):
        tf_internals.replace_functions({"random_uniform": lambda f: None, "random_gamma": None})

    assert tf_internals.random_uniform is before


# What would otherwise go unnoticed


def test_failed_saves_cannot_go_unnoticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tf.train.Checkpoint(value=tf.Variable(1.0))
    vars(checkpoint).pop("_async_checkpointer_impl")

    with pytest.raises(MissingInternal, match=r"Checkpoint\._async_checkpointer_impl"):
        CheckpointWriter(checkpoint, CheckpointFolder(tmp_path), asynchronous=True)


def test_curves_cannot_go_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SimpleNamespace()
    writer.as_default = lambda step=None: contextlib.nullcontext(SimpleNamespace())
    monkeypatch.setattr("orbit.utils.SummaryManager.summary_writer", lambda *args: writer)
    summaries = Summaries(tmp_path, None, "train", tf.Variable(1, dtype=tf.int64))

    with pytest.raises(MissingInternal, match="_resource"):
        summaries.write([(1, {"loss": 1.0})])


def test_generator_of_keras_3_is_known_without_its_constant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import keras

    constant = "keras.src.random.seed_generator.GLOBAL_SEED_GENERATOR"
    tf_internals.keras_3_set_global(tf_internals.keras_3_generator_key(), None)
    keras.random.uniform([])
    monkeypatch.delattr(constant, raising=False)
    generator = tf_internals.keras_3_get_global(tf_internals.keras_3_generator_key())
    assert isinstance(generator, keras.random.SeedGenerator)

    monkeypatch.setattr(constant, "another", raising=False)
    with pytest.raises(MissingInternal, match="GLOBAL_SEED_GENERATOR"):
        tf_internals.keras_3_generator_key()
