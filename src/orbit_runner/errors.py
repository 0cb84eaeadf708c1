"""Errors that are shown to the user as a message, each with an exit code."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from typing import Any

from orbit_runner import exit_codes
from orbit_runner.error_codes import UNSPECIFIC

# In characters. Longer than any valid name, and short enough for a terminal.
_MAX_NAME_LENGTH = 200


class RunnerError(Exception):
    """An error that the user can fix. It is shown as a message, without a traceback.

    Attributes:
        code: The kind of the error, one of `error_codes.CODES`, such as `missing-file`.
        path: The flag, argument or setting that it is about; "" if it is about none.
        reason: The message without the path.
        exit_code: The exit code of a command that ends with the error.
        continuation: Lines below the message: how to continue what was stopped; "" if unknown.
    """

    code = UNSPECIFIC
    exit_code = exit_codes.WRONG_USAGE
    continuation = ""
    ag_pass_through = True  # AutoGraph raises it as it is, if it is raised while a graph is traced.

    def __init__(
        self, message: str = "", *, code: str = "", path: str = "", exit_code: int | None = None
    ) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.reason = message
        if code:
            self.code = code
        if exit_code is not None:
            self.exit_code = exit_code

    def as_dicts(self) -> list[dict[str, Any]]:
        """Returns what `--json` prints of the error: an object for each problem."""
        message = str(self).removeprefix(f"{self.path}: ") if self.path else str(self)
        return [{"code": self.code, "path": self.path, "origin": None, "message": message}]

    def _render_traceback_(self) -> list[str]:
        """Returns the lines that IPython and notebooks show instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class DataError(RunnerError):
    """A dataset that is missing, truncated or corrupt.

    Attributes:
        field: The name of the data setting that caused the error (`data_dir`, `input_path`, …). The
            caller adds the path of its section and where the setting was set.
    """

    def __init__(self, message: str, *, field: str = "data_dir", code: str = "") -> None:
        super().__init__(message, code=code)
        self.field = field


class OutputError(RunnerError):
    """Results that could not be written to standard output. The command itself has completed."""

    code = "output-lost"
    exit_code = exit_codes.OUTPUT_LOST


class ClosedPipeError(OutputError):
    """The reader of standard output has exited (`runner list | head`). Nothing is reported."""

    exit_code = 0


class Diverged(RunnerError, RuntimeError):
    """Training diverged. It is a RuntimeError, like the error that Model Garden raises.

    Attributes:
        reason: What was detected.
        step: The step at which it was detected; an earlier one may be the cause.
        first_above: The first step of the mean loss that was above its bound; None if something is
            NaN or infinite.
    """

    code = "diverged"
    exit_code = exit_codes.DIVERGED

    def __init__(
        self, reason: str, *, step: int = 0, first_above: int | None = None, advice: str = ""
    ) -> None:
        super().__init__("\n".join(filter(None, (f"training diverged: {reason}", advice))))
        self.reason = reason
        self.step = step
        self.first_above = first_above


class Interrupted(RunnerError):
    """A signal ended the run, after it had saved a checkpoint.

    The signals are SIGINT (Ctrl-C, or the button of a notebook that interrupts), SIGTERM and
    SIGHUP. To continue, start the run again.
    """

    code = "interrupted"

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_codes.after_signal(number)

    @classmethod
    def for_step(cls, number: int, step: int) -> Interrupted:
        """Returns the error for a signal after which a checkpoint was saved."""
        return cls(number, f"{signal.Signals(number).name}: saved at step {step}, exiting")


class ExportFailed(RunnerError):
    """The export at the end of a run failed. The run itself is complete and saved.

    Attributes:
        reason: Why it failed.
        model: The trained model.
        logs: The result of the last evaluation.
    """

    code = "export-failed"
    exit_code = exit_codes.CRASHED

    def __init__(self, reason: str, *, model: Any = None, logs: Any = None) -> None:
        super().__init__(
            f"the run is complete and saved, but the export failed: {reason}",
            path="trainer.export_subdir",
        )
        self.reason = reason
        self.model = model
        self.logs = logs


class SettingError(RunnerError):
    """A setting that turned out to be invalid while the run was being built.

    Attributes:
        path: The dotted path of the setting. The caller adds where it was set.
        reason: The value, and the values that are allowed.
    """

    def __init__(self, path: str, reason: str, *, code: str = "") -> None:
        super().__init__(reason, code=code, path=path)


def python_error(error: RunnerError) -> RunnerError:
    """Returns the error of a call of the Python API: without the frames of this package.

    Its advice names arguments instead of the flags of commands.
    """
    text = re.sub(r"--resume=(\w+)", r'resume="\1"', str(error))
    text = re.sub(r"--model_dir=(\S+)", r'model_dir="\1"', text)
    flag = r"--(model_dir|checkpoint)\b"
    error.args = (re.sub(flag, r"\1", text),)
    error.path = re.sub(flag, r"\1", error.path)
    return error.with_traceback(None)


def format_list(lines: Sequence[str], most: int = 12) -> str:
    """Returns the lines, indented, and the number of those beyond the first `most`."""
    more = [f"  … and {len(lines) - most} more"] if lines[most:] else []
    return "\n".join([f"  {line}" for line in lines[:most]] + more)


def format_count(number: int, noun: str) -> str:
    """Returns a number and its noun, with an `s` unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_choices(names: Iterable[object]) -> str:
    """Returns names as in `a, b or c`."""
    *others, last = map(str, names)
    return f"{', '.join(others)} or {last}" if others else last


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception, at most 300 characters, or its class name."""
    lines = str(error).strip().splitlines()
    return cut_at_word(lines[0]) if lines else type(error).__name__


def cut_at_word(text: str, most: int = 300) -> str:
    """Returns a text. If it is longer than `most`, it ends after a word, with `…`."""
    if len(text) <= most:
        return text
    return (text[:most].rpartition(" ")[0] or text[:most]) + " …"


def shorten(text: str, most: int = _MAX_NAME_LENGTH) -> str:
    """Returns a text. If it is longer than `most`, it is cut and followed by its length."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def nearest_name_hint(name: str, known: Iterable[str]) -> str:
    """Returns a clause such as `; did you mean 'depth'?`, or "" if no known name is similar."""
    if len(str(name)) > _MAX_NAME_LENGTH:
        return ""
    import difflib  # Not at the top, because only wrong names need it.

    by_lower = {option.lower(): option for option in known}
    lowercase = str(name).lower()
    match = difflib.get_close_matches(lowercase, by_lower, n=1, cutoff=0.6)
    # The beginning of a long name, such as `--exp`, is more like other, shorter names.
    longer = [option for option in by_lower if len(lowercase) > 3 and option.startswith(lowercase)]
    if len(longer) == 1:
        match = longer
    return f"; did you mean {by_lower[match[0]]!r}?" if match else ""


def unknown_name_message(kind: str, name: object, known: Sequence[str]) -> str:
    """Returns the message for an unknown name: a similar name if any, and all known names."""
    allowed = ", ".join(sorted(known)) or "none"
    hint = nearest_name_hint(str(name), known)
    return f"unknown {kind} {shorten(repr(name))}{hint}\nallowed: {allowed}"


def nearest_multiples(number: int, factor: int) -> str:
    """Returns the positive multiples of a factor next to a number, such as `60 and 64`."""
    below, above = number // factor * factor, (number // factor + 1) * factor
    return f"{below} and {above}" if below else str(above)
