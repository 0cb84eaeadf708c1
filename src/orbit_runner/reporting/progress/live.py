"""Progress as a few lines that change, in a terminal or in a notebook."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from orbit_runner.errors import Interrupted
from orbit_runner.reporting.numbers import format_duration, format_number, short_number, sparkline
from orbit_runner.reporting.progress.history import (
    LEARNING_RATE,
    TRAINING_LOSS,
    VALIDATION_LOSS,
    History,
    epoch_text,
    evaluation_line,
    format_metric,
    other_metrics,
    speed_texts,
    step_text,
    time_left_text,
)
from orbit_runner.train.callbacks.base import Logs
from orbit_runner.utils.flops import format_si
from orbit_runner.utils.log import is_warning, log_scope
from orbit_runner.utils.signals import hidden_cursor_scope

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.base import RunView

TRAINING = "training"
_GAP = 2
_LEAST_BAR = 6
_NARROW, _WIDE = 100, 120  # columns
_SHORT_CURVE, _LONG_CURVE = 10, 30
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURNS_PER_SECOND = 5
_DELAY_SECONDS = 0.4
_LEAST_WIDTH = 10
# Each costs about a millisecond of training. Numbers change once a second.
_REFRESHES_PER_SECOND = 2
_NOTEBOOK_WIDTH, _MOST_NOTES, _REFRESH_SECONDS = 120, 12, 0.25


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
        with hidden_cursor_scope(), self._display, log_scope(self):
            yield

    def _lines(self, columns: int) -> list[Text]:
        # One column less, because terminals differ in what they do after the last one.
        shown = lines(self._view, max(_LEAST_WIDTH, columns - 1), time.monotonic())
        if len(shown) >= self._console.height:
            shown = shown[1:2]  # The line of the phase.
        return shown

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
        self._console.print(text, markup=False, soft_wrap=True)


class NotebookProgress(LiveProgress):
    """Shows the same lines as one output of a cell, which changes at most four times a second.

    Notes and warnings are below them; what was shown last stays. `display` is that of IPython.
    """

    def __init__(self, display: Callable[..., Any], title: str = "", place: str = "") -> None:
        super().__init__(title, place)
        self._show = display
        self._handle: Any = None
        self._updated = 0.0
        self._notes = deque[str](maxlen=_MOST_NOTES)

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Shows the display within a `with` block."""
        self._handle = self._show(self._panel(), raw=True, display_id=True)
        # In a notebook, unlike elsewhere, TensorFlow prints its INFO messages.
        logger = logging.getLogger("tensorflow")
        logger.addFilter(_is_warning)
        try:
            with log_scope(self):
                yield
            self._view.end = "done"
        except (Interrupted, KeyboardInterrupt):
            self._view.end = "interrupted"
            raise
        finally:
            logger.removeFilter(_is_warning)
            self._update(force=True)

    def phase(self, text: str, *, minor: bool = False) -> None:
        """Shows the name of the next phase."""
        super().phase(text, minor=minor)
        self._update()

    def detail(self, text: str, fraction: float | None = None) -> None:
        """Shows how far the phase is."""
        super().detail(text, fraction)
        self._update()

    def on_loop_end(self, run: RunView, logs: Logs) -> None:
        """Shows the progress of training."""
        super().on_loop_end(run, logs)
        self._update()

    def on_evaluate(self, run: RunView, logs: Logs) -> None:
        """Shows the metrics."""
        History.on_evaluate(self, run, logs)  # Their line is no note here.
        self._update()

    def note(self, text: str) -> None:
        """Shows the note below the lines."""
        self._notes.append(text)
        self._update(force=is_warning(text))

    def _update(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if self._handle is not None and (now - self._updated >= _REFRESH_SECONDS or force):
            self._updated = now
            self._handle.update(self._panel(), raw=True)

    def _panel(self) -> dict[str, str]:
        shown = lines(self._view, _NOTEBOOK_WIDTH, time.monotonic())
        text = "\n".join([*(line.plain for line in shown), *self._notes])
        return {"text/plain": text, "text/html": f'<pre style="margin:0">{escape(text)}</pre>'}


def _is_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING


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
            redirect_stdout=sys.stdout.isatty(),
            vertical_overflow="crop",
        )

    def _text(self) -> Text:
        shown = self._get_lines(self.console.width)
        return Text("\n", no_wrap=True, overflow="crop").join(shown)


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
    end: str = ""  # how the run ended


@dataclasses.dataclass(frozen=True)
class _Item:
    """A part of a line. Items with a higher rank are left out first."""

    rank: int
    text: Text


def lines(view: View, width: int, now: float) -> list[Text]:
    """Returns the lines, none longer than `width`. `now` is the time on the monotonic clock."""
    history = view.history
    texts = [_header(view, width), _phase_line(view, width, now)]
    if history.started is not None:
        texts.append(_line(_metric_items(history, width), width))
        texts.append(_line(_speed_items(view, now), width))
    if history.evaluations:
        texts.append(_line(_evaluation_items(history, width), width))
    return [line for line in texts if line.cell_len]


def _header(view: View, width: int) -> Text:
    title = Text(view.title, style="bold")
    title.truncate(width, overflow="ellipsis")
    room = width - title.cell_len - _GAP
    place = view.place
    if len(place) > room:
        # The end of a path tells more than its beginning.
        place = f"…{place[len(place) - room + 1 :]}" if room > _SHORT_CURVE else ""
    if not title or not place:
        return title
    return Text.assemble(title, " " * (width - title.cell_len - len(place)), (place, "dim"))


def _phase_line(view: View, width: int, now: float) -> Text:
    """Returns the phase, a bar that fills the line, and the position."""
    items = _fit_items([_Item(0, _phase_text(view, now)), *_position_items(view)], width)
    fraction = _fraction(view)
    if fraction is not None:
        with_bar = _fit_items(items, width - _LEAST_BAR - _GAP)
        if len(with_bar) > 1:
            items = with_bar
        room = width - _width(items) - _GAP
        if room >= _LEAST_BAR:
            items.insert(1, _Item(0, _bar(fraction, room)))
    return _join_items(items)


def _phase_text(view: View, now: float) -> Text:
    if view.end:
        return Text(view.end, style="bold")
    seconds = now - view.since
    # Without the delay, short evaluations and saves would make the line flicker.
    if view.phase == TRAINING or (view.history.steps_per_second and seconds < _DELAY_SECONDS):
        return Text(TRAINING, style="bold")
    frame = _SPINNER[int(now * _TURNS_PER_SECOND) % len(_SPINNER)]
    return Text.assemble(
        (frame, "cyan"), " ", (view.phase, "bold"), f"  {format_duration(seconds)}"
    )


def _position_items(view: View) -> Iterator[_Item]:
    history = view.history
    if view.detail and not view.end:
        yield _Item(1, Text(view.detail))
    elif history.started is not None:
        yield _Item(1, Text(step_text(history)))
        yield _Item(3, Text(epoch_text(history)))
        if history.target:
            yield _Item(2, Text(f"{history.last_step / history.target:.0%}"))


def _fraction(view: View) -> float | None:
    history = view.history
    if view.detail and not view.end:
        return view.fraction
    if history.started is None or not history.target:
        return None
    return history.last_step / history.target


def _bar(fraction: float, width: int) -> Text:
    halves = round(min(1.0, max(0.0, fraction)) * width * 2)
    done = "━" * (halves // 2) + "╸" * (halves % 2)
    return Text.assemble((done, "cyan"), ("─" * (width - len(done)), "bright_black"))


def _metric_items(history: History, width: int) -> Iterator[_Item]:
    numbers = history.metrics
    if TRAINING_LOSS in numbers:
        yield _Item(0, Text(format_metric("loss", numbers[TRAINING_LOSS])))
        length = _LONG_CURVE if width >= _WIDE else _SHORT_CURVE
        yield _Item(3, Text(sparkline([*history.losses][-length:]), style="cyan"))
    yield from _named_items(other_metrics(numbers), first=1, rest=4)
    if LEARNING_RATE in numbers:
        yield _Item(2, Text(f"learning rate {short_number(numbers[LEARNING_RATE])}"))


def _named_items(numbers: dict[str, float], *, first: int, rest: int) -> Iterator[_Item]:
    for index, (name, value) in enumerate(numbers.items()):
        yield _Item(rest + index if index else first, Text(format_metric(name, value)))


def _speed_items(view: View, now: float) -> Iterator[_Item]:
    history = view.history
    for rank, text in zip((0, 3), speed_texts(history), strict=False):
        yield _Item(rank, Text(text))
    assert history.started is not None
    yield _Item(2, Text(f"{format_duration(now - history.started)} elapsed"))
    if not view.end:
        yield _Item(1, Text(time_left_text(history)))
    if "tflops_per_second" in history.work:
        flops = history.work["tflops_per_second"] * 1e12
        yield _Item(4, Text(f"{format_si(flops)}FLOP/s"))
    if "mfu" in history.work:
        yield _Item(5, Text(f"{history.work['mfu']:.1%} of the peak"))


def _evaluation_items(history: History, width: int) -> Iterator[_Item]:
    step, numbers = history.evaluations[-1]
    yield _Item(0, Text("evaluation", style="bold"))
    yield _Item(1, Text(f"step {step:,}"))
    metrics = other_metrics(numbers)
    best = history.best
    if best is not None and best[0] in metrics:
        metrics = {best[0]: metrics[best[0]], **metrics}
    yield from _named_items(metrics, first=2, rest=5)
    if VALIDATION_LOSS in numbers:
        yield _Item(4, Text(format_metric("loss", numbers[VALIDATION_LOSS])))
    if best is not None:
        name, value, best_step = best
        what = (
            f"best {format_number(value)}"
            if width < _NARROW
            else f"best {format_metric(name, value)}"
        )
        yield _Item(3, Text(f"{what} at step {best_step:,}", style="green"))


def _line(items: Iterable[_Item], width: int) -> Text:
    return _join_items(_fit_items(items, width))


def _fit_items(items: Iterable[_Item], width: int) -> list[_Item]:
    """Returns the items that fit, in their order; shortens the most important one if it must."""
    kept = [item for item in items if item.text.cell_len]
    while len(kept) > 1 and _width(kept) > width:
        kept.remove(max(kept, key=lambda item: item.rank))
    if kept and _width(kept) > width:
        kept[0].text.truncate(max(0, width), overflow="ellipsis")
    return kept


def _width(items: list[_Item]) -> int:
    return sum(item.text.cell_len for item in items) + _GAP * (len(items) - 1)


def _join_items(items: list[_Item]) -> Text:
    return Text(" " * _GAP).join(item.text for item in items)
