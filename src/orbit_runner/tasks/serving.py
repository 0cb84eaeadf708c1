"""What serving a model takes: signatures to export, predictions, and the lines of items."""

from __future__ import annotations

import dataclasses
import inspect
import keyword
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from orbit_runner.data.text.lines import is_utf8, read_lines_or_problems
from orbit_runner.errors import RunnerError, first_line, shorten

if TYPE_CHECKING:
    import tensorflow as tf

# The signature that TensorFlow Serving uses by default.
DEFAULT_SIGNATURE = "serving_default"
STANDARD_INPUT = "standard input"
_NOT_UTF8 = "is not valid UTF-8"
_FILE_NAME = re.compile(r"\S*(/\S*|\\\S*|\.[A-Za-z]\w{0,5})")
_Row = TypeVar("_Row")
_Answer = TypeVar("_Answer")


@dataclasses.dataclass(frozen=True)
class Serving:
    """The signatures of a model for export.

    Attributes:
        signatures: `tf.function`s by name. Each has an `input_signature` and returns a dict of
            tensors. They must use only TensorFlow's own ops, or those of TensorFlow Text with names
            that begin with `TFText>`.
        default: The name of the signature that is also exported as `serving_default`.
        resources: Other objects to save with the signatures: lookup tables, assets.
        only_saved_model: Why the network alone, without the signatures, cannot be exported in other
            formats; empty if it can.
    """

    signatures: Mapping[str, tf.types.experimental.PolymorphicFunction]
    default: str
    resources: Sequence[object] = ()
    only_saved_model: str = ""
    labels: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The prediction for one item.

    Attributes:
        text: The prediction for people to read, one or more lines.
        data: The prediction for programs to read, as JSON values.
        cells: The columns of the item as they are in its file, if it is a row of a table.
        columns: The prediction as columns of a table; those without a value are None.
        warning: Why the prediction may be wrong, which `text` does not contain; "" if nothing is
            known.
    """

    text: str
    data: Mapping[str, object]
    cells: Mapping[str, str] | None = None
    columns: Mapping[str, object] = dataclasses.field(default_factory=dict)
    warning: str = ""


def named_function(
    function: Callable[..., dict[str, tf.Tensor]], specs: Sequence[tf.TensorSpec]
) -> tf.types.experimental.PolymorphicFunction:
    """Returns a `tf.function` whose arguments have the names of their specs.

    `function` takes `*values`. TensorFlow names the inputs of a signature after the parameters, so
    the names must be identifiers.
    """
    import tensorflow as tf  # Configs may import this module, and need no TensorFlow.

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD

    def wrapper(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        return function(*values)

    wrapper.__name__ = function.__name__
    parameters = [inspect.Parameter(spec.name, kind) for spec in specs]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return tf.function(wrapper, input_signature=list(specs), autograph=False)


def argument_names(names: Iterable[str], prefix: str = "input") -> list[str]:
    """Returns an identifier for each name of an input or output, which begins with it if it can."""
    identifiers: list[str] = []
    for name in names:
        text = re.sub(r"\W", "_", name, flags=re.ASCII)
        if not text.isidentifier() or keyword.iskeyword(text) or text.startswith("_"):
            text = f"{prefix}_{text}"
        while text in identifiers:
            text += "_"
        identifiers.append(text)
    return identifiers


class Predictor(Protocol):
    """Predicts for items, with the signatures of a model in memory or of an exported one."""

    def items(self, arguments: Sequence[str], lines: Iterable[str]) -> Iterator[Any]:
        """Yields the items to predict for.

        Args:
            arguments: The command-line arguments: files, directories, names.
            lines: Standard input. Read only if an argument is `-` or there are no arguments.

        Yields:
            The items, in order, as they are read.

        Raises:
            RunnerError: An argument is not a valid item.
        """
        ...

    def predict(self, items: Sequence[Any]) -> list[Prediction]:
        """Returns the predictions for one batch.

        Args:
            items: At most one batch of items.

        Returns:
            A prediction for each item, in the same order. For an item that has none, the text says
            why, and the data has the key `error`.
        """
        ...


def texts_of(value: tf.Tensor) -> list[str]:
    """Returns the texts of a string tensor."""
    return [raw.decode() for raw in value.numpy()]


def require_no_top_k(top_k: int | None) -> None:
    """Raises `RunnerError` if a number of answers is asked for, and each item has only one."""
    if top_k is not None:
        raise RunnerError(
            f"got {top_k}, but each item has only one prediction",
            path="--top_k",
            code="no-effect",
        )


@dataclasses.dataclass(frozen=True)
class Line:
    """A line with an item: its text, what is wrong with it, and its place; "" for none."""

    text: str
    problem: str = ""
    place: str = ""


def argument_line(argument: str) -> Line:
    """Returns an argument that is an item itself."""
    return _checked_line(argument)


def sentence_line(argument: str) -> Line:
    """Returns an argument that is a sentence.

    Raises `RunnerError` if it looks like the name of a file, because there is no such file.
    """
    if _FILE_NAME.fullmatch(argument):
        raise RunnerError(f"file not found: {shorten(argument)}", code="missing-file")
    return argument_line(argument)


def file_lines(path: Path) -> Iterator[Line]:
    """Yields the lines of a file, plain or gzipped, as training reads them.

    Raises `DataError` if the file cannot be read to its end.
    """
    lines = enumerate(read_lines_or_problems(path), 1)
    return (Line(text, problem, f"{path}:{number}") for number, (text, problem) in lines)


def stream_lines(lines: Iterable[str]) -> Iterator[Line]:
    """Yields the lines of standard input without their line ends."""
    for number, text in enumerate(lines, 1):
        text = text.removesuffix("\n").removesuffix("\r")
        yield _checked_line(text, f"{STANDARD_INPUT}:{number}")


def _checked_line(text: str, place: str = "") -> Line:
    if is_utf8(text):
        return Line(text, place=place)
    problem = f"{place}: {_NOT_UTF8}" if place else _NOT_UTF8
    return Line(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), problem, place)


def item_lines(
    arguments: Sequence[str], lines: Iterable[str], of_argument: Callable[[str], Line]
) -> Iterator[Line]:
    """Yields the lines of files and of standard input (`-`), and of the other arguments."""
    for argument in arguments or ["-"]:
        if argument == "-":
            yield from stream_lines(lines)
        elif is_file(path := os.path.expanduser(argument)):
            yield from file_lines(Path(path))
        else:
            yield of_argument(argument)


def is_file(argument: str) -> bool:
    """Returns whether an argument names a file or a pipe, whatever its length and characters."""
    return os.path.exists(argument) and not os.path.isdir(argument)


def answer_rows(
    call: Callable[[Sequence[_Row]], Iterable[_Answer | str]],
    rows: Sequence[_Row | str],
    failure: str = "",
) -> list[_Answer | str]:
    """Returns the answer for each row; for a row that has none, a string with the reason.

    A row that is a string is the reason why it has none. An op that fails for one row fails for its
    batch. In that case, the rows are tried one by one. The reason of an op comes after `failure`.
    """
    import tensorflow as tf  # Not at the top, because modules without TensorFlow read lines, too.

    valid = [row for row in rows if not isinstance(row, str)]
    try:
        answers = iter(call(valid) if valid else ())
        return [row if isinstance(row, str) else next(answers) for row in rows]
    except tf.errors.OpError as error:
        if len(rows) == 1:
            return [f"{failure}{_reason(error)}"]
    return [answer_rows(call, [row], failure)[0] for row in rows]


def _reason(error: Exception) -> str:
    """Returns the reason without the graph nodes that TensorFlow puts before and after it."""
    message = str(error).partition("[[")[0].strip().rpartition("\n")[2]
    return message.rpartition("}}")[2].strip() or first_line(error)
