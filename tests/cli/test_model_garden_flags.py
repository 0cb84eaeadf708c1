"""Flags of Model Garden's drivers are accepted, as the docs page says."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import absl.logging
import pytest

from orbit_runner.cli.command import parse_flags
from orbit_runner.cli.commands.run import COMMAND
from orbit_runner.cli.flags.config_flags import build_request
from orbit_runner.config.resolve import resolve
from tests.support.problems import raises

PAGE = Path(__file__).resolve().parents[2] / "docs/model_garden.md"
WITHOUT_EQUIVALENT = {"tfhub_handle", "tflex_output_uri"}


def page_flags() -> list[str]:
    """Returns the flags in the first table of the section on flags."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Flags\n")[2]
    table = section.partition("\n\nThere is no")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.M)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def garden_flags() -> Iterator[str]:
    """Yields the flags that all drivers of the installed Model Garden have."""
    spec = find_spec("official")
    (root,) = spec.submodule_search_locations or ()
    tree = ast.parse((Path(root) / "common/flags.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and getattr(called, "attr", "").startswith("DEFINE_"):
            named = [word.value for word in node.keywords if word.arg == "name"]
            name = [*node.args[:1], *named][0]
            assert isinstance(name, ast.Constant)
            yield str(name.value)


def test_docs_page_lists_every_flag_of_all_drivers():
    assert {*garden_flags()} - {*page_flags()} == WITHOUT_EQUIVALENT


@pytest.mark.parametrize("name", page_flags())
def test_flag_of_the_page_is_accepted(name):
    value = {"pretrain_steps": "1", "verbosity": "-1", "seed": "1"}.get(name, "true")

    with _kept_logs():
        parse_flags(COMMAND.parser(), [f"--{name}={value}"])


@pytest.mark.parametrize("name", ["tfhub_handle", "flagfile", "noenable_async_checkpointing"])
def test_other_flags_of_the_drivers_are_unknown(name):
    with raises("unknown-flag", ""):
        parse_flags(COMMAND.parser(), [f"--{name}"])


def test_flag_with_empty_value_counts_as_not_set():
    empty = [f"--{n}=" for n in ("config_file", "params_override", "gin_file", "gin_params", "tpu")]
    flags = parse_flags(COMMAND.parser(), ["--experiment=digits", *empty, "--tf_data_service="])
    assert build_request(flags) == build_request(
        parse_flags(COMMAND.parser(), ["--experiment=digits"])
    )


def test_gin_params_flag_accepts_several_bindings():
    text = "trainer.train_steps = 5\ntrainer.validation_interval = 2"
    flags = parse_flags(COMMAND.parser(), ["--experiment=digits", f"--gin_params={text}"])
    trainer = resolve(build_request(flags)).config.trainer
    assert (trainer.train_steps, trainer.validation_interval) == (5, 2)


class _kept_logs:
    """Restores log levels and handlers, which a flag changes for the whole process."""

    def __enter__(self) -> None:
        self.level, self.handlers = absl.logging.get_verbosity(), [*logging.root.handlers]
        self.root = logging.root.level

    def __exit__(self, *error: object) -> None:
        absl.logging.set_verbosity(self.level)
        logging.root.setLevel(self.root)
        logging.root.handlers[:] = self.handlers


def test_verbosity_sets_the_level_of_absl():
    with _kept_logs():
        parse_flags(COMMAND.parser(), ["--verbosity=0"])
        assert absl.logging.get_verbosity() == absl.logging.INFO
        assert absl.logging.get_absl_handler() in logging.root.handlers
