"""Progress as a few lines that change, in a terminal."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from orbit_runner.reporting.numbers import format_duration, short_number
from orbit_runner.reporting.progress.history import (
    LEARNING_RATE,
    TRAINING,
    TRAINING_LOSS,
    VALIDATION_LOSS,
    History,
    epoch_text,
    evaluation_line,
    format_metric,
    format_metrics,
    speed_texts,
    step_text,
    time_left_text,
)
from orbit_runner.train.callbacks.base import Logs
from orbit_runner.utils.flops import format_si
from orbit_runner.utils.log import log_scope
from orbit_runner.utils.streams import is_terminal, line_text, visible_text

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.base import RunView

_GAP = 2
_LEAST_BAR = 6
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURNS_PER_SECOND = 5
_DELAY_SECONDS = 0.4
_LEAST_WIDTH = 10
# Each costs about a millisecond of training. Numbers change once a second.
_REFRESHES_PER_SECOND = 2


class LiveProgress(History):
    """Shows the state of a run in a few lines that change. Other messages scroll above them."""

    def __init__(self, title: str = "", place: str = "") -> None:
        super().__init__()
        self._console = Console(stderr=True, highlight=False)
        self._view = View(self, title, place, since=time.monotonic())
        self._display = LiveLines(self._console, self._lines)

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Shows the display within a `with` block."""
        with self._display, log_scope(self):
            yield

    def _lines(self, columns: int) -> list[Text]:
        # One column less, because terminals differ in what they do after the last one.
        view_lines = lines(self._view, max(_LEAST_WIDTH, columns - 1), time.monotonic())
        if len(view_lines) >= self._console.height:
            view_lines = view_lines[1:2]  # The line of the phase.
        return view_lines

    def phase(self, text: str, *, minor: bool = False) -> None:
        """Shows the name of the next phase."""
        self._view.phase = text
        self._view.since = time.monotonic()
        self._view.detail = ""
        self._view.fraction = None

    def detail(self, text: str, fraction: float | None = None) -> None:
        """Shows how far the phase is."""
        self._view.fraction = fraction
        self._view.detail = text

    def on_loop_end(self, run: RunView, logs: Logs) -> None:
        """Shows that the run is training."""
        super().on_loop_end(run, logs)
        if self._view.phase != TRAINING:
            self.phase(TRAINING)

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Prints the metrics above the display."""
        super().on_evaluate(run, logs)
        self.note(evaluation_line(*self.evaluations[-1]))

    def note(self, text: str) -> None:
        """Prints the note above the display."""
        self._console.print(visible_text(text), markup=False, soft_wrap=True)


class LiveLines(Live):
    """Lines that are drawn again and again."""

    def __init__(self, console: Console, get_lines: Callable[[int], list[Text]]) -> None:
        self._get_lines = get_lines
        super().__init__(
            console=console,
            get_renderable=self._text,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            # What code prints to a file or pipe must still arrive there.
            redirect_stdout=is_terminal(sys.stdout),
            vertical_overflow="crop",
        )

    def _text(self) -> Text:
        lines = self._get_lines(self.console.width)
        return Text("\n", no_wrap=True, overflow="crop").join(lines)


@dataclasses.dataclass
class View:
    """What the display shows."""

    history: History
    title: str = ""  # the experiment and the mode, or the command
    place: str = ""  # the run directory
    phase: str = "starting"
    since: float = 0.0  # when the phase began
    detail: str = ""  # how far the phase is
    fraction: float | None = None  # of the phase that is done, from 0 to 1


def lines(view: View, width: int, now: float) -> list[Text]:
    """Returns the lines, none longer than `width`. `now` is the time on the monotonic clock."""
    history = view.history
    texts = [
        _joined([Text(view.title, style="bold"), Text(view.place, style="dim")]),
        _joined(_phase_texts(view, width, now)),
    ]
    if history.started is not None:
        texts += [_joined(_metric_texts(history)), _joined(_speed_texts(view, now))]
    if history.evaluations:
        texts.append(_joined(_evaluation_texts(history)))
    for text in texts:  # What matters most comes first in each line.
        text.plain = line_text(text.plain)
        text.truncate(width, overflow="ellipsis")
    return [text for text in texts if text.cell_len]


def _joined(texts: Iterable[Text]) -> Text:
    return Text(" " * _GAP).join(text for text in texts if text.cell_len)


def _phase_texts(view: View, width: int, now: float) -> Iterator[Text]:
    """Yields the phase, a bar, and the position."""
    history = view.history
    yield _phase_text(view, now)
    fraction = view.fraction
    if not view.detail and history.started is not None and history.target:
        fraction = history.last_step / history.target
    if fraction is not None:
        yield _bar(fraction, max(_LEAST_BAR, width // 4))
    if view.detail:
        yield Text(view.detail)
    elif history.started is not None:
        yield Text(step_text(history))
        yield Text("" if fraction is None else f"{fraction:.0%}")
        yield Text(epoch_text(history))


def _phase_text(view: View, now: float) -> Text:
    seconds = now - view.since
    # Without the delay, short evaluations and saves would make the line flicker.
    if view.phase == TRAINING or (view.history.steps_per_second and seconds < _DELAY_SECONDS):
        return Text(TRAINING, style="bold")
    frame = _SPINNER[int(now * _TURNS_PER_SECOND) % len(_SPINNER)]
    return Text.assemble(
        (frame, "cyan"), " ", (view.phase, "bold"), f"  {format_duration(seconds)}"
    )


def _bar(fraction: float, width: int) -> Text:
    halves = round(min(1.0, max(0.0, fraction)) * width * 2)
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    return Text.assemble((filled, "cyan"), ("─" * (width - len(filled)), "bright_black"))


def _metric_texts(history: History) -> Iterator[Text]:
    numbers = history.metrics
    yield Text(format_metrics(numbers, loss=TRAINING_LOSS))
    if LEARNING_RATE in numbers:
        yield Text(f"learning rate {short_number(numbers[LEARNING_RATE])}")


def _speed_texts(view: View, now: float) -> Iterator[Text]:
    history = view.history
    steps, *examples = [*speed_texts(history), ""]
    yield Text(steps)
    assert history.started is not None
    yield Text(time_left_text(history))
    yield Text(f"{format_duration(now - history.started)} elapsed")
    yield Text("".join(examples))
    if "tflops_per_second" in history.work:
        flops = history.work["tflops_per_second"] * 1e12
        yield Text(f"{format_si(flops)}FLOP/s")
    if "mfu" in history.work:
        yield Text(f"{history.work['mfu']:.1%} of the peak")


def _evaluation_texts(history: History) -> Iterator[Text]:
    step, numbers = history.evaluations[-1]
    yield Text.assemble(("evaluation", "bold"), f" at step {step:,}")
    if history.best is not None:
        name, value, best_step = history.best
        yield Text(f"best {format_metric(name, value)} at step {best_step:,}", style="green")
    yield Text(format_metrics(numbers, loss=VALIDATION_LOSS))
