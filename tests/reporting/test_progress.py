"""Progress as plain lines, and how it is chosen."""

import contextlib
import io
import logging
import math
import os
import pty
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_runner.reporting.numbers import format_duration, format_number, short_number
from orbit_runner.reporting.progress import lines as lines_module
from orbit_runner.reporting.progress.history import History
from orbit_runner.reporting.progress.lines import (
    PlainProgress,
    QuietProgress,
    make_progress,
)
from orbit_runner.reporting.progress.live import LiveProgress
from orbit_runner.utils.log import PlainMessages, detail, log_scope, note, phase
from orbit_runner.utils.text_table import terminal_width

MakeRun = Callable[..., SimpleNamespace]


@pytest.mark.parametrize(
    ("value", "full", "short"),
    [
        (0.42131, "0.4213", "0.4213"),
        (0.5, "0.5000", "0.5"),
        (45.2, "45.20", "45.2"),
        (5785.6, "5,786", "5,786"),
        (999.96, "1,000", "1,000"),
        (123456.0, "123,500", "123,500"),
        (1.2e-5, "1.200e-05", "1.2e-05"),
        (0.0, "0.000", "0"),
        (math.nan, "nan", "nan"),
        (-math.inf, "-inf", "-inf"),
    ],
)
def test_numbers_have_four_significant_digits(value, full, short):
    assert (format_number(value), short_number(value)) == (full, short)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0:00"), (274, "4:34"), (3723, "1:02:03"), (273906, "3 d 4:05:06")],
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text


def test_speed_is_also_in_examples(make_run):
    records, run = History(), make_run()
    records.on_train_begin(run)
    records.on_loop_end(run, {"training_loss": 1.0, "steps_per_second": 2.0})
    assert records.examples_per_second == 256.0


def test_a_long_wait_names_the_phase_and_the_step(make_run, capsys):
    progress: Any = PlainProgress(interval=0.0)
    progress.on_train_begin(make_run(step=40))
    for text in ("training", "saving"):
        progress.phase(text, minor=True)
        progress._since = progress._last_line = time.monotonic() - 20
        waits = iter([False, True])
        progress._done = SimpleNamespace(wait=lambda _, waits=waits: next(waits))
        progress._tick()
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == ["… still training after step 40 (20 s)", "… still saving (20 s)"]


def _show(progress: Any, run: SimpleNamespace) -> None:
    with progress.shown_scope():
        phase("building the model")
        phase("saving at step 5", minor=True)
        progress.on_train_begin(run)
        for run.step in (5, 10, 15, 20):
            logs = {"training_loss": 1.0 / run.step, "accuracy": math.nan, "learning_rate": 0.1}
            progress.on_loop_end(run, {**logs, "steps_per_second": 10.0})
        progress.on_evaluate(run, {"validation_loss": 0.5, "accuracy": 0.9})
        note("a note")
        note("warning: a [warning]")
        logging.getLogger("orbit_runner.mine").error("an error")
        logging.getLogger("orbit_runner.mine").debug("not shown")


def test_plain_progress_prints_lines_to_stderr(capsys, make_run):
    progress = PlainProgress()
    _show(progress, make_run(train_steps=20, steps_per_epoch=16.0))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "building the model …",
        "training from step 0 to 20 …",
        "step 20/20  epoch 1.2/1.2  loss 0.05000  accuracy nan  10 steps/s  1,280 examples/s"
        "  0:00 left",
        "evaluation at step 20: loss 0.5000  accuracy 0.9000",
        "a note",
        "warning: a [warning]",
        "error: an error",
    ]
    assert progress.evaluations == [(20, {"validation_loss": 0.5, "accuracy": 0.9})]


def test_brief_progress_prints_neither_steps_nor_evaluations(capsys, make_run):
    _show(PlainProgress(interval=0.0, brief=True), make_run(train_steps=20))
    assert capsys.readouterr().err.splitlines() == [
        "building the model …",
        "training from step 0 to 20 …",
        "a note",
        "warning: a [warning]",
        "error: an error",
    ]


def test_details_are_printed_once_in_an_interval(capsys, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=100.0)
    monkeypatch.setattr(lines_module, "time", clock)
    with PlainProgress(interval=10.0).shown_scope():
        phase("reading")
        for clock.now in (105.0, 111.0, 112.0, 122.0):
            detail(f"at {clock.now:.0f} s", 0.5)
    assert capsys.readouterr().err.splitlines() == ["reading …", "at 111 s", "at 122 s"]


def test_quiet_progress_prints_only_warnings(capsys, make_run):
    progress = QuietProgress()
    _show(progress, make_run(train_steps=20))
    assert capsys.readouterr() == ("", "warning: a [warning]\nerror: an error\n")
    assert progress.last_step == 20  # For the table of results.


def test_messages_outside_of_a_display_are_printed_without_phases():
    messages: list[str] = []
    with log_scope(PlainMessages(messages.append)):
        phase("building the model")
        detail("1 of 2 files", 0.5)
        note("a note")
    assert messages == ["1 of 2 files", "a note"]


@contextlib.contextmanager
def terminal_scope(encoding: str = "utf-8") -> Iterator[None]:
    """Makes a pseudo-terminal the standard error."""
    leader, follower = pty.openpty()
    with open(follower, "w", encoding=encoding) as stream, contextlib.redirect_stderr(stream):
        yield
    os.close(leader)


@pytest.mark.parametrize(
    ("kind", "term", "encoding", "cls"),
    [
        ("auto", "xterm", "utf-8", LiveProgress),
        ("auto", "xterm", "ascii", PlainProgress),
        ("auto", "dumb", "utf-8", PlainProgress),
        ("bar", "xterm", "ascii", LiveProgress),
        ("bar", "dumb", "utf-8", PlainProgress),
        ("plain", "xterm", "utf-8", PlainProgress),
        ("none", "xterm", "utf-8", QuietProgress),
    ],
)
def test_display_on_a_terminal(kind, term, encoding, cls, monkeypatch):
    monkeypatch.setenv("TERM", term)
    with terminal_scope(encoding):
        assert type(make_progress(kind)) is cls


@pytest.mark.parametrize("kind", ["auto", "bar", "plain"])
def test_output_that_is_not_a_terminal_gets_lines(kind, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(make_progress(kind)) is PlainProgress


def test_program_without_a_console_has_no_terminal(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert not lines_module.can_draw(forced=True)
    assert terminal_width() is None
