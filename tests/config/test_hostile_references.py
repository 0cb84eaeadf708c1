"""References and bases of untrusted files: long chains, expansions, cycles, deep nesting."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.errors import Problem
from orbit_runner.config.parsing.bases import MAX_DEPTH
from orbit_runner.config.parsing.references import MAX_CHAIN
from orbit_runner.config.serialize import flat_settings, to_yaml
from tests.support.problems import check

Write = Callable[..., str]
Refused = Callable[..., list[Problem]]
SECONDS = 30.0  # A bound against hanging: each takes a second or two on a busy machine.
# Settings that accept any text, and settings that accept 8.
TEXTS = (
    *("description", "task.init_checkpoint"),
    *(
        f"task.{section}.{name}"
        for section in ("train_data", "validation_data")
        for name in ("data_dir", "tfds_data_dir", "tfds_name", "image_field_key", "label_field_key")
    ),
)
NUMBERS = (
    *(f"trainer.{name}_interval" for name in ("summary", "checkpoint", "validation")),
    *(f"trainer.{name}" for name in ("train_steps", "max_to_keep", "loss_upper_bound")),
    *(f"task.model.{name}" for name in ("kernel_size", "dense_units")),
    *(f"task.train_data.{name}" for name in ("global_batch_size", "shuffle_buffer_size", "seed")),
    *(f"task.train_data.{name}" for name in ("augment_padding", "prefetch_buffer_size")),
    *(f"task.validation_data.{name}" for name in ("global_batch_size", "prefetch_buffer_size")),
    *("runtime.seed", "runtime.intra_op_threads", "runtime.inter_op_threads"),
)


def overrides(values: dict[str, Any]) -> dict[str, Any]:
    return {"flags": tuple((f"--{path}", path, json.dumps(v)) for path, v in values.items())}


def chain(settings: tuple[str, ...], first: Any, text: str) -> dict[str, Any]:
    """Returns settings of which each is `text`, with the setting before in place of REF."""
    pairs = zip(settings[1:], settings, strict=False)
    later = {path: text.replace("REF", f"${{{before}}}") for path, before in pairs}
    return overrides({settings[0]: first} | later)


def test_chain_up_to_the_limit_is_resolved(over_digits: Callable[..., Any]) -> None:
    config = over_digits(**chain(NUMBERS[: MAX_CHAIN + 1], 8, "REF"))

    assert flat_settings(config)[NUMBERS[MAX_CHAIN]] == 8


def test_longer_chain_is_an_error(refused: Refused) -> None:
    (problem,) = refused(**chain(NUMBERS[: MAX_CHAIN + 2], 8, "REF"))

    check([problem], ("bad-reference", NUMBERS[MAX_CHAIN + 1]))


@pytest.mark.parametrize("times", [2, 1000])
def test_texts_that_double_are_limited(times: int, refused: Refused) -> None:
    started = time.monotonic()

    problems = refused(**chain(TEXTS, "x" * 1000, "REF" * times))

    check(problems[:1], ("bad-reference", problems[0].path))
    assert time.monotonic() - started < SECONDS


def test_lists_that_double_are_limited(write: Write, refused: Refused) -> None:
    item = {"class_name": "a.B", "arguments": {"x": ["${task.model.filters}"] * 200}}
    said = {"task.model.filters": [1] * 200, "callbacks": [item]}

    (problem,) = refused(**overrides(said))

    assert problem.path.startswith("callbacks[0].arguments.x[")
    check([problem], ("bad-reference", problem.path))


@pytest.mark.parametrize("separate", [True, False])
def test_thousands_of_references_end_quickly(separate: bool, refused: Refused) -> None:
    item = {"class_name": "a.B", "arguments": {"x": ["${trainer.max_to_keep}"] * 19_900}}
    started = time.monotonic()

    said = {"callbacks": [item, "${x}"]} if separate else {"description": "${name}" * 120_000}
    (problem,) = refused(**overrides(said))

    check([problem], ("bad-reference", problem.path))
    assert time.monotonic() - started < SECONDS


@pytest.mark.parametrize(("levels", "fits"), [(58, True), (59, False)])
def test_list_is_not_inserted_below_the_deepest_level(
    levels: int, fits: bool, write: Write, refused: Refused, over_digits: Callable[..., Any]
) -> None:
    deep: Any = "${task.model.filters}"
    for _ in range(levels):
        deep = [deep]
    said = overrides({"callbacks": [{"class_name": "a.B", "arguments": {"x": deep}}]})

    if fits:
        config = over_digits(**said)
        assert "[32, 64]" in str(flat_settings(config)["callbacks"])
        assert over_digits(experiment=write("again/config.yaml", to_yaml(config))) == config
        return
    (problem,) = refused(**said)
    check([problem], ("bad-reference", problem.path))


@pytest.mark.parametrize(
    "text",
    ["${" * 1000, "${a" * 1000 + "}" * 1000, "$" * 100_000 + "{x", "${" + "a." * 50_000 + "a}"],
)
def test_nested_or_long_reference_is_an_error_of_one_screen(
    text: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write("a.yaml", f"base: digits\ndescription: {json.dumps(text)}")
    started = time.monotonic()

    assert main(["show", f"--experiment={name}"]) == (0 if text.startswith("$$") else 2)

    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert len(error) < 3000
    assert time.monotonic() - started < SECONDS


def test_bases_up_to_the_limit_are_read(write: Write, over_digits: Callable[..., Any]) -> None:
    for level in range(MAX_DEPTH - 2):
        write(f"b{level}.yaml", f"base: b{level + 1}.yaml")
    write(f"b{MAX_DEPTH - 2}.yaml", "base: digits")

    assert over_digits(experiment="b0.yaml").runtime.seed == 17


def test_thousand_bases_of_bases_are_an_error(write: Write, refused: Refused) -> None:
    for level in range(1000):
        write(f"b{level}.yaml", f"base: b{level + 1}.yaml")
    (problem,) = refused(experiment="b0.yaml")

    check([problem], ("bad-reference", "base"))
    assert str(problem.origin) == f"b{MAX_DEPTH - 1}.yaml:1"


def test_bases_that_double_are_limited(write: Write, refused: Refused) -> None:
    for level in range(12):
        write(f"b{level}.yaml", f"base: [b{level + 1}.yaml, b{level + 1}.yaml]")
    write("b12.yaml", "base: digits")

    (problem,) = refused(experiment="b0.yaml")

    check([problem], ("bad-reference", "base"))


def test_thousands_of_missing_bases_end_quickly(write: Write, refused: Refused) -> None:
    write("a.yaml", f"base: {json.dumps(['nope'] * 19_000)}")
    started = time.monotonic()

    problems = refused(experiment="a.yaml")

    check(problems, ("bad-reference", "base"), ("bad-reference", "base"))
    assert time.monotonic() - started < SECONDS
