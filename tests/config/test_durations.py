"""Durations in configs: what is accepted, and that they are shown as given."""

import re
from pathlib import Path

import pytest

from orbit_runner.config.durations import (
    PATTERN,
    DurationError,
    describe_duration,
    duration_seconds,
)
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from tests.support.problems import output_of, raises


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45.0),
        ("90m", 5400.0),
        ("90min", 5400.0),
        ("3h", 10800.0),
        ("1h30m", 5400.0),
        ("1d2h3m4s", 93784.0),
        ("1.5h", 5400.0),
        ("0h5s", 5.0),
        ("36500d", 36500 * 86400.0),
    ],
)
def test_text_with_units_is_a_duration(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds
    assert re.search(PATTERN, text)


@pytest.mark.parametrize(
    "text",
    ["", "h", "3 hours", "3H", "90", "1h30", "30m 1h", "-3h", "1e3s", "03:00:00", "9" * 200, "٣h"],
)
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(DurationError, match="such as 90s, 3h or 1h30m"):
        duration_seconds(text)
    assert not re.search(PATTERN, text)


@pytest.mark.parametrize(
    ("text", "said"), [("0s", "allowed: more than 0"), ("36501d", "allowed: at most 36500d")]
)
def test_duration_out_of_bounds_is_an_error(text: str, said: str) -> None:
    with pytest.raises(DurationError, match=f"got '{text}', {said}"):
        duration_seconds(text)


@pytest.mark.parametrize(("value", "text"), [("1h30m", "1h30m"), (90.0, "90s"), (0.5, "0.5s")])
def test_duration_is_described_as_it_was_given(value: str | float, text: str) -> None:
    assert describe_duration(value) == text


@pytest.mark.parametrize(("text", "shown"), [("1h30m", "1h30m"), ("90", "90.0"), ("null", "null")])
def test_show_prints_a_duration_as_given(text: str, shown: str) -> None:
    printed = output_of(["show", "--experiment=digits", f"--trainer.max_time={text}"])
    assert f"  max_time: {shown}\n" in printed


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ("keep_checkpoint_interval=2500", "not-divisible"),
        ("keep_checkpoint_interval=500", "not-divisible"),
        ("keep_checkpoint_interval=30 checkpoint_interval=-1 steps_per_loop=20", "not-divisible"),
        ("keep_checkpoint_interval=30 checkpoint_interval=0", "conflict"),
        ("keep_checkpoint_interval=1000 max_to_keep=null", "no-effect"),
        (
            "best_checkpoints_to_keep=3 best_checkpoint_export_subdir='' "
            "best_checkpoint_eval_metric=''",
            "no-effect",
        ),
    ],
)
def test_checkpoint_settings_that_contradict_others_are_errors(flags: str, code: str) -> None:
    parts = [("checkpoint_interval", "1000"), *(flag.split("=", 1) for flag in flags.split())]
    settings = tuple((f"--trainer.{n}", f"trainer.{n}", v) for n, v in parts)
    with raises(code, f"trainer.{flags.partition('=')[0]}", kind=ConfigError):
        resolve(Request(experiment="digits", flags=settings))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("3 hours", "wrong-type"),
        ("-1", "out-of-range"),
        ("0", "out-of-range"),
        (".inf", "out-of-range"),
        ("[3h]", "wrong-type"),
    ],
)
def test_wrong_duration_in_a_file_is_reported_with_its_line(
    text: str, code: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"trainer:\n  max_time: {text}\n")
    with raises(code, "trainer.max_time", f"{file}:2", kind=ConfigError):
        resolve(Request(experiment="digits", config_files=(str(file),)))
