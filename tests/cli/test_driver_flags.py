"""Flags of Model Garden's drivers are accepted, or rejected with a hint, as the docs page says."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import absl.logging
import pytest
from absl import app, flags

from orbit_runner.cli.command import parse_flags
from orbit_runner.cli.commands.run import COMMAND
from orbit_runner.cli.flags.config_flags import build_request
from orbit_runner.cli.flags.driver_flags import REPLACED, REPLACED_MODES
from orbit_runner.config.resolve import resolve
from orbit_runner.config.schema.modes import FINE_TUNING, MODES
from orbit_runner.errors import RunnerError
from tests.support.problems import raises

PAGE = Path(__file__).resolve().parents[2] / "docs/official_drivers.md"
ROWS = re.findall(
    r"^\| `(\w+)` \| (the same|an error) \| (.*?) ?\|$", PAGE.read_text("utf-8"), re.M
)
PLACES = {name: place for name, place, _ in ROWS}
# Flags that absl reads itself before any flag is defined, and its help flags.
OF_ABSL = {"flagfile", "undefok", "help", "helpshort", "helpfull", "helpxml"}
VALUES = {
    "logger_levels": "absl:warning",
    "experiment": "digits",
    "flagfile": "/dev/null",
    "mode": "train",
    "train_steps": "2",
}
NUMBERS = ("pretrain_steps", "verbosity", "v", "seed")


def root() -> Path:
    spec = find_spec("official")
    assert spec is not None
    return Path((spec.submodule_search_locations or [""])[0])


def drivers() -> list[Path]:
    """Returns the drivers, and the modules that define flags for several of them."""
    found = [path for path in root().rglob("train*.py") if "app.run(" in path.read_text("utf-8")]
    found = [path for path in found if "data" not in path.parts and "legacy" not in path.parts]
    return [*found, root() / "common/flags.py", root() / "recommendation/ranking/common.py"]


def defined(path: Path) -> Iterator[str]:
    """Yields the flags that a module defines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and getattr(called, "attr", "").startswith("DEFINE_"):
            named = [word.value for word in node.keywords if word.arg == "name"]
            name = [*node.args[:1], *named][0]
            assert isinstance(name, ast.Constant)
            yield str(name.value)


def modes() -> set[str]:
    text = (root() / "common/flags.py").read_text(encoding="utf-8")
    (values,) = (
        word.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg == "enum_values"
    )
    return set(ast.literal_eval(values))


def absl_flags() -> set[str]:
    of_modules = flags.FLAGS.flags_by_module_dict()
    found = [flag for module in (app, absl.logging) for flag in of_modules[module.__name__]]
    return {name for flag in found for name in (flag.name, flag.short_name) if name}


def test_docs_page_lists_every_driver_flag() -> None:
    found = drivers()
    names = {name for path in found for name in defined(path)} | absl_flags() | OF_ABSL

    assert len(found) > 15
    assert {"experiment", "pretrain_steps", "profile_steps", "label_smoothing", "pdb"} <= names
    assert names | modes() == {*PLACES}
    assert len(PLACES) == len(ROWS)


@pytest.mark.parametrize("name", sorted(n for n, place in PLACES.items() if place == "the same"))
def test_driver_flag_listed_as_the_same_is_accepted(name: str) -> None:
    if name in modes():
        assert name in (*MODES, FINE_TUNING)
        return
    if name.startswith("help"):
        with pytest.raises(SystemExit) as left:
            parse_flags(COMMAND.parser(), [f"--{name}"])
        assert left.value.code == 0
        return
    value = VALUES.get(name, "1" if name in NUMBERS else "true")
    with _kept_logs():
        taken = vars(parse_flags(COMMAND.parser(), [f"--{name}={value}"]))
    if name in ("flagfile", "undefok"):  # Set nothing themselves; tested further below.
        assert taken == vars(parse_flags(COMMAND.parser(), []))
    else:
        given = taken[{"v": "verbosity", "gin_params": "gin_param"}.get(name, name)]
        assert given in (value, [value], int(value) if value.isdigit() else value)


@pytest.mark.parametrize("name", sorted(n for n, place in PLACES.items() if place == "an error"))
def test_driver_flag_listed_as_an_error_is_rejected_with_replacement(name: str) -> None:
    if name in modes():
        with pytest.raises(RunnerError) as caught:
            parse_flags(COMMAND.parser(), [f"--mode={name}"])
        assert REPLACED_MODES[name] in str(caught.value)
        return
    with pytest.raises(RunnerError) as caught:
        parse_flags(COMMAND.parser(), [f"--{name}=1"])
    assert str(caught.value).startswith(
        f"--{name} is a flag of Model Garden's drivers; in runner: "
    )
    assert REPLACED[name] in str(caught.value)
    assert "unknown" not in str(caught.value)


def test_replacement_tables_match_the_docs_and_exclude_real_flags() -> None:
    assert {name for name, place in PLACES.items() if place == "an error"} == {
        *REPLACED,
        *REPLACED_MODES,
    }
    known = {
        option.lstrip("-") for action in COMMAND.parser()._actions for option in _names(action)
    }
    assert known & {*REPLACED} == set()


def _names(action: object) -> list[str]:
    return list(getattr(action, "option_strings", ()))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (["--enable_async_checkpointing"], "true"),
        (["--noenable_async_checkpointing"], "false"),
        (["--enable_async_checkpointing=0"], "false"),
        (["--enable_async_checkpointing=T"], "true"),
        (["--enable-async-checkpointing", "false"], "false"),
        (["-noenable_async_checkpointing"], "false"),
        (["--enable_async_checkpointing", "--logtostderr"], "true"),
        ([], "true"),
    ],
)
def test_boolean_flag_is_parsed_as_in_absl(written: list[str], value: str) -> None:
    assert parse_flags(COMMAND.parser(), written).enable_async_checkpointing == value


@pytest.mark.parametrize(
    ("written", "code", "path"),
    [
        ("--enable_async_checkpointing=maybe", "not-allowed", "--enable_async_checkpointing"),
        ("--nologtostderr=true", "wrong-usage", ""),
        ("--flagfile=/no/such/file", "unreadable-file", ""),
        ("--logger_levels=absl:loud", "wrong-type", "--logger_levels"),
        ("--expperiment=x", "unknown-flag", ""),
        ("--notfhub_handle", "unknown-flag", ""),
    ],
)
def test_invalid_flag_is_rejected_with_an_explanation(written: str, code: str, path: str) -> None:
    with raises(code, path):
        parse_flags(COMMAND.parser(), [written])


def test_only_line_feeds_end_the_line_of_a_flagfile(tmp_path: Path) -> None:
    file = tmp_path / "flags"
    file.write_text("\ufeff--mode=train\n--experiment=a\u2028b\n", encoding="utf-8")

    taken = parse_flags(COMMAND.parser(), [f"--flagfile={file}"])
    assert (taken.mode, taken.experiment) == ("train", "a\u2028b")


def test_flagfile_is_read_recursively_and_a_cycle_is_rejected(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.write_text("--seed=3\n")
    outer.write_text(f"# of a launcher\n--mode=train\n\n--flagfile={inner}\n// done\n")
    taken = parse_flags(COMMAND.parser(), [f"--flagfile={outer}", "--seed=4"])
    assert (taken.mode, taken.seed) == ("train", "4")
    inner.write_text(f"--flagfile={outer}\n")
    with raises("wrong-usage"):
        parse_flags(COMMAND.parser(), [f"--flagfile={outer}"])


def test_unknown_flag_listed_in_undefok_is_ignored() -> None:
    taken = parse_flags(COMMAND.parser(), ["--xm_task=1", "--undefok=xm_task,mode", "--mode=eval"])
    assert taken.mode == "eval"


def test_flag_with_empty_value_counts_as_not_set() -> None:
    empty = [f"--{n}=" for n in ("config_file", "params_override", "gin_file", "gin_params", "tpu")]
    given = parse_flags(COMMAND.parser(), ["--experiment=digits", *empty, "--tf_data_service="])
    assert build_request(given) == build_request(
        parse_flags(COMMAND.parser(), ["--experiment=digits"])
    )


def test_gin_params_flag_accepts_several_bindings() -> None:
    text = "trainer.train_steps = 5\ntrainer.validation_interval = 2"
    given = parse_flags(COMMAND.parser(), ["--experiment=digits", f"--gin_params={text}"])
    trainer = resolve(build_request(given)).config.trainer
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


def test_verbosity_flags_set_absl_and_logger_levels() -> None:
    with _kept_logs():
        parse_flags(COMMAND.parser(), ["--v=0", "--logger_levels=of_a_test:debug"])
        assert absl.logging.get_verbosity() == absl.logging.INFO
        assert logging.getLogger("of_a_test").level == logging.DEBUG
        assert absl.logging.get_absl_handler() in logging.root.handlers
