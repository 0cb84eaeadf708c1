"""Gin errors that are found without importing the modules that the statements name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.config.errors import Problem
from orbit_runner.config.resolve import Request, resolve
from tests.support.problems import check

Write = Callable[..., str]
Refused = Callable[..., list[Problem]]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package and a module; each ends the process when it is imported."""
    for name in ("own_package/__init__.py", "own_package/layers.py", "own_module.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("raise SystemExit('it was imported')\ndef train(train_steps): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "line", "code"),
    [
        ("trainr.train_steps = 5", 1, "unknown-name"),
        ("\nTrainer.train_steps = 5", 2, "unknown-name"),
        ("tusk.model.depth = 20", 1, "unknown-name"),
        ("tasks.train_data.seed = 20", 1, "unknown-name"),
        ("runtme.seed = 4", 1, "unknown-name"),
        ("experimnt.description = 'x'", 1, "unknown-name"),
        ("trainr:\n  max_to_keep = 5", 2, "unknown-name"),
        ("import own_module\ntrainr.train_steps = 5", 2, "unknown-name"),
        ("import nope", 1, "import-failed"),
        ("import nope.deep.down", 1, "import-failed"),
        ("import own_package.layer", 1, "import-failed"),
        ("import own_module.x", 1, "import-failed"),
        ("from own_package import layer", 1, "import-failed"),
        ("import official.visoin", 1, "import-failed"),
        ("trainer.best_checkpoint_eval_metric = accuracy", 1, "bad-syntax"),
        ("f.x = true", 1, "bad-syntax"),
        ("a = 1\ncreate_trainer.trainer_cls = @own_module.Trainer", 2, "not-supported"),
        ("official.core.train_utils.create_trainer.trainer_cls = @T", 1, "not-supported"),
    ],
)  # fmt: skip
def test_gin_error_is_reported_with_its_line(
    modules: Path, write: Write, refused: Refused, text: str, line: int, code: str
) -> None:
    write("a.gin", f"{text}\n")

    (problem,) = refused(gin_files=("a.gin",))

    check([problem], (code, ""))
    assert str(problem.origin) == f"a.gin:{line}"


@pytest.mark.parametrize(
    "text",
    [
        "import own_module\ntrain.train_steps = 5",  # possibly a configurable of that module
        "import own_package.layers",
        "import tensorflow.keras.layers",
        "scope/trainr.train_steps = 5",
        "Trainer.foo = 5",  # only Model Garden's module can tell
        "model.depth = 3",
        "M = 1\nf.x = %M",
    ],
)
def test_possibly_valid_statement_is_left_to_gin(modules: Path, write: Write, text: str) -> None:
    write("a.gin", f"{text}\n")

    assert resolve(Request(experiment="digits", gin_files=("a.gin",))).config.gin_bindings


def test_error_in_gin_flag_names_the_flag_without_line(refused: Refused) -> None:
    (problem,) = refused(gin_params=("trainr.train_steps = 5",))

    assert str(problem.origin) == "--gin_param[0]"


def test_origin_of_each_gin_statement_is_recorded(modules: Path, write: Write) -> None:
    write("a.gin", "import own_module\nM = 1\nf.x = %M\n")

    resolved = resolve(Request(experiment="digits", gin_files=("a.gin",), gin_params=("f.y = 2",)))

    bindings = resolved.config.gin_bindings
    assert {
        text: str(resolved.origin(f"gin_bindings[{i}]")) for i, text in enumerate(bindings)
    } == {
        "import own_module": "a.gin:1",
        "M = 1": "a.gin:2",
        "f.x = %M": "a.gin:3",
        "f.y = 2": "--gin_param[0]",
    }
