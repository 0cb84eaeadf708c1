"""The live display: its lines at several widths, and what a terminal receives."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import pytest

from orbit_runner.reporting.progress.history import History
from orbit_runner.reporting.progress.live import TRAINING, View, lines

MakeRun = Callable[..., SimpleNamespace]


def _trained(make_run: MakeRun, **changes: object) -> History:
    history, run = History(), make_run(**changes)
    history.on_train_begin(run)
    run.step = 12_000
    history.on_evaluate(run, {"validation_loss": 0.512, "accuracy": 0.8423, "top_5_accuracy": 0.99})
    run.step = 12_400
    logs = {"training_loss": 0.42131, "accuracy": 0.8561, "learning_rate": 0.1}
    history.on_loop_end(run, {**logs, "steps_per_second": 45.2})
    assert history.started is not None
    history.started -= 274
    return history


def _view(history: History, **changes: object) -> View:
    values: dict[str, object] = {
        "title": "resnet_cifar · train_and_eval",
        "place": "runs/resnet_cifar/20261123-101500",
        "phase": TRAINING,
    }
    return View(history, **{**values, **changes})


def _plain(view: View, width: int) -> list[str]:
    started = view.history.started
    return [line.plain for line in lines(view, width, 0.0 if started is None else started + 274)]


def test_lines_while_training(make_run):
    assert _plain(_view(_trained(make_run)), 140) == [
        "resnet_cifar · train_and_eval  runs/resnet_cifar/20261123-101500",
        f"training  {'━' * 7}{'─' * 28}  step 12,400/64,000  19%  epoch 31.7/163.8",
        "loss 0.4213  accuracy 0.8561  learning rate 0.1",
        "45.2 steps/s  19:01 left  4:34 elapsed  5,786 examples/s",
        "evaluation at step 12,000  best accuracy 0.8431 at step 11,200  loss 0.5120  "
        "accuracy 0.8423  top 5 accuracy 0.9900",
    ]


_PROGRAM = """
import sys, time
from tests.reporting.conftest import run_of
from orbit_runner.reporting.progress.lines import make_progress
from orbit_runner.utils.log import note

run, progress = run_of(step=12_400), make_progress(title="a title", place="a/place")
with progress.shown_scope():
    progress.on_train_begin(run)
    logs = {"training_loss": 0.42131, "steps_per_second": 45.2}
    progress.on_loop_end(run, logs)
    note("a [note]")
    print("print to stderr", file=sys.stderr)
    print("print to stdout")
    print("ready", file=sys.stderr, flush=True)
    sys.stdin.readline()
    END
"""
_SHOWN_AGAIN, _HIDDEN = "\x1b[?25h", "\x1b[?25l"


def _terminal_output(end: str, *, columns: int = 80, **environment: str) -> tuple[str, str, int]:
    """Runs the program in a pseudo-terminal; returns its stderr, its stdout and its exit code."""
    leader, follower = pty.openpty()
    _resize(leader, columns)
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.replace("END", end)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=follower,
        env=_environment(environment),
    )
    os.close(follower)
    # A frame may have been drawn before all values of the loop were stored.
    output = _read(leader, lambda text: re.search("ready.*loss 0.4213.*left", text, re.DOTALL))
    process.stdin.write(b"\n")
    process.stdin.close()
    output += _read(leader, lambda text: False)
    os.close(leader)
    with process.stdout:
        out = process.stdout.read().decode()
    return output, out, process.wait()


def _environment(changes: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    return {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **changes}


def _resize(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def _read(terminal: int, is_enough: Callable[[str], object]) -> str:
    """Returns what the program writes until it is enough, or the program ends."""
    output = b""
    while not is_enough(output.decode(errors="replace")):
        assert select.select([terminal], [], [], 30.0)[0], output
        try:
            output += os.read(terminal, 65536)
        except OSError:  # Linux raises this when the program has ended.
            break
    return output.decode()


def test_display_disappears_and_messages_remain():
    output, out, code = _terminal_output("pass")
    assert code == 0
    assert out == "print to stdout\n"
    assert output.index(_HIDDEN) < output.index("a [note]") < output.rindex(_SHOWN_AGAIN)
    assert "print to stderr" in output
    assert "\x1b[36m" in output  # colors
    # Each of the four lines is erased.
    assert output[output.rindex(_SHOWN_AGAIN) :].count("\x1b[2K") == 4


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("end", "code"), [("raise ValueError", 1), ("raise KeyboardInterrupt", -2)]
)
def test_cursor_is_visible_after_an_abnormal_end(end, code):
    output, _, exit_code = _terminal_output(end)
    assert exit_code == code
    assert output.rindex(_SHOWN_AGAIN) > output.rindex(_HIDDEN)
