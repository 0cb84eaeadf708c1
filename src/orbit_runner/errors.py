"""Errors that are shown to the user as a message, each with an exit code."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from typing import Any

from orbit_runner import exit_codes

# In characters. Longer than any valid name, and short enough for a terminal.
_MAX_NAME_LENGTH = 200
_DIVERGENCE_ADVICE = (
    "lower the learning rate, check the data, or set trainer.recovery_max_trials to roll back to "
    "the last checkpoint"
)


class RunnerError(Exception):
    """An error that the user can fix. It is shown as a message, without a traceback.

    Attributes:
        exit_code: The exit code of a command that ends with the error.
        continuation: Lines below the message: how to continue what was stopped; "" if unknown.
    """

    exit_code = exit_codes.WRONG_USAGE
    continuation = ""

    def _render_traceback_(self) -> list[str]:
        """Returns the lines that IPython and notebooks show instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class DataError(RunnerError):
    """A dataset that is missing, truncated or corrupt.

    Attributes:
        field: The name of the data setting that caused the error (`data_dir`, `input_path`, …). The
            caller adds the path of its section and where the setting was set.
    """

    def __init__(self, message: str, *, field: str = "data_dir") -> None:
        super().__init__(message)
        self.field = field


class OutputError(RunnerError):
    """Results that could not be written to standard output. The command itself has completed."""

    exit_code = exit_codes.OUTPUT_LOST


class ClosedPipeError(OutputError):
    """The reader of standard output has exited (`runner list | head`). Nothing is reported."""

    exit_code = 0


class Diverged(RunnerError, RuntimeError):
    """Training diverged. It is a RuntimeError, like the error that Model Garden raises.

    Attributes:
        reason: What was detected, and at which step.
        non_finite: Whether the loss or a weight is NaN or infinite.
        step: The first step that is not finite, or None if it is not known.
    """

    exit_code = exit_codes.DIVERGED

    def __init__(
        self,
        reason: str,
        *,
        non_finite: bool = False,
        step: int | None = None,
        advice: str = _DIVERGENCE_ADVICE,
    ) -> None:
        super().__init__(f"training diverged: {reason}\n{advice}")
        self.reason = reason
        self.non_finite = non_finite
        self.step = step

    def explain(self, text: str = "", *, recoveries: int = 0) -> Diverged:
        """Returns a copy of the error with a line below the reason, and with advice.

        `recoveries` is `trainer.recovery_max_trials` if the run has used all of them.
        """
        advice = _DIVERGENCE_ADVICE
        if recoveries > 0:
            advice = (
                "lower the learning rate, or check the data: the run has returned to its last "
                f"checkpoint as often as trainer.recovery_max_trials allows, {recoveries}"
            )
        lines = f"{text}\n{advice}" if text else advice
        return Diverged(self.reason, non_finite=self.non_finite, advice=lines)


class Interrupted(RunnerError):
    """A signal or a notice of preemption ended the run, after it had saved a checkpoint.

    The signals are SIGINT (Ctrl-C, or the button of a notebook that interrupts), SIGTERM and
    SIGHUP. To continue, start the run again.
    """

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_codes.after_signal(number)

    @classmethod
    def for_step(cls, number: int, step: int, notice: str = "") -> Interrupted:
        """Returns the error for a signal after which a checkpoint was saved.

        `notice` is the notice of preemption that was handled like the signal, if any.
        """
        reason = f"notice of preemption: {notice}" if notice else signal.Signals(number).name
        return cls(number, f"{reason}: saved at step {step}, exiting")


class ExportFailed(RunnerError):
    """The export at the end of a run failed. The run itself is complete and saved.

    Attributes:
        reason: Why it failed.
        model: The trained model.
        logs: The result of the last evaluation.
    """

    exit_code = exit_codes.CRASHED

    def __init__(self, reason: str, *, model: Any = None, logs: Any = None) -> None:
        super().__init__(
            f"trainer.export_subdir: the run is complete and saved, but the export failed: {reason}"
        )
        self.reason = reason
        self.model = model
        self.logs = logs


class CheckpointMismatch(RunnerError):
    """A checkpoint whose variables are not those of the model and the optimizer."""


class SettingError(RunnerError):
    """A setting that turned out to be invalid while the run was being built.

    Attributes:
        path: The dotted path of the setting. The caller adds where it was set.
        reason: The value, and the values that are allowed.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def python_error(error: RunnerError) -> RunnerError:
    """Returns the error of a call of the Python API: without the frames of this package.

    Its advice names arguments instead of the flags of commands.
    """
    text = re.sub(r"--resume=(\w+)", r'resume="\1"', str(error))
    text = re.sub(r"--model_dir=(\S+)", r'model_dir="\1"', text)
    error.args = (re.sub(r"--(model_dir|checkpoint)\b", r"\1", text),)
    return error.with_traceback(None)


def format_list(lines: Sequence[str], most: int = 12) -> str:
    """Returns the lines, indented, and the number of those beyond the first `most`."""
    more = [f"  … and {len(lines) - most} more"] if lines[most:] else []
    return "\n".join([f"  {line}" for line in lines[:most]] + more)


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception, at most 300 characters, or its class name."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def shorten(text: str, most: int = _MAX_NAME_LENGTH) -> str:
    """Returns a text. If it is longer than `most`, it is cut and followed by its length."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def nearest_name_hint(name: str, known: Iterable[str]) -> str:
    """Returns a clause such as `; did you mean 'depth'?`, or "" if no known name is similar."""
    if len(str(name)) > _MAX_NAME_LENGTH:
        return ""
    import difflib  # Not at the top, because only wrong names need it.

    by_lower = {option.lower(): option for option in known}
    match = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[match[0]]!r}?" if match else ""


def unknown_name_message(kind: str, name: object, known: Sequence[str]) -> str:
    """Returns the message for an unknown name: a similar name if any, and all known names."""
    listed = ", ".join(sorted(known)) or "none"
    hint = nearest_name_hint(str(name), known)
    return f"unknown {kind} {shorten(repr(name))}{hint}\nallowed: {listed}"


def nearest_multiples(number: int, factor: int) -> str:
    """Returns the positive multiples of a factor next to a number, such as `60 and 64`."""
    below, above = number // factor * factor, (number // factor + 1) * factor
    return f"{below} and {above}" if below else str(above)
