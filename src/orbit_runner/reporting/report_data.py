"""The files of `report_data/` in a run directory. Does not import TensorFlow."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orbit_runner.reporting.document import Picture
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.step.results import LayerRow, TensorSummary
from orbit_runner.utils.files import read_json_object, to_jsonable, write_atomically

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

MODEL = "model.json"
INPUTS = "inputs.json"
EVALUATION = "evaluation.json"
# Larger files are not from this package. With them, a report would not be below 2 MB.
_MOST_BYTES = 1_000_000
_PNG = b"\x89PNG\r\n\x1a\n"
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class ModelData:
    """The layers, and the floating-point operations of a step; None if they are not known."""

    layers: Sequence[LayerRow] = ()
    step_flops: float | None = None


@dataclasses.dataclass(frozen=True)
class InputData:
    """The training batch of a step, or the reason why it is not known."""

    step: int | None = None  # None if the batch is not that of a certain step
    pictures: Sequence[Picture] = ()
    sentences: Sequence[tuple[str, str]] = ()  # name of the tensor, and text
    tensors: Sequence[TensorSummary] = ()
    problem: str = ""
    facts: Sequence[tuple[str, str, str]] = ()  # section of the config, name, and text


@dataclasses.dataclass(frozen=True)
class EvaluationData:
    """The examples of an evaluation at a step, or the reason why they are not known."""

    step: int = 0
    note: str = ""
    confusion: Mapping[tuple[int, int], int] = dataclasses.field(default_factory=dict)
    classes: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    problem: str = ""
    title: str = ""
    calibration: Sequence[tuple[int, float, float]] = ()  # as in `ReportExamples`
    facts: Sequence[tuple[str, str]] = ()
    others: Sequence[EvaluationData] = ()
    importance: Sequence[tuple[str, float, float]] = ()  # as in `ColumnImportance`
    importance_note: str = ""


@dataclasses.dataclass(frozen=True)
class ReportData:
    """The contents of the files; None for a file that is missing or invalid."""

    model: ModelData | None = None
    inputs: InputData | None = None
    evaluation: EvaluationData | None = None


def write_data(run: Path, data: ModelData | InputData | EvaluationData) -> None:
    """Writes one of the files of a run."""
    name = {ModelData: MODEL, InputData: INPUTS, EvaluationData: EVALUATION}[type(data)]
    values = dataclasses.asdict(data)
    if isinstance(data, EvaluationData):
        values = evaluation_values(data)
    text = json.dumps(to_jsonable(values), ensure_ascii=False, separators=(",", ":"))
    write_atomically(RunDirectory(run).report_data / name, f"{text}\n")


def evaluation_values(data: EvaluationData) -> JsonObject:
    """Returns the data of an evaluation as JSON values, which `parse_evaluation` reads."""
    values = dataclasses.asdict(data)
    # JSON has no keys with two numbers.
    values["confusion"] = [[*pair, count] for pair, count in data.confusion.items()]
    values["others"] = [evaluation_values(other) for other in data.others]
    return values


def read_data(run: Path) -> ReportData:
    """Returns the contents of the files of a run."""
    directory = RunDirectory(run).report_data
    return ReportData(
        model=_read_file(directory / MODEL, _model),
        inputs=_read_file(directory / INPUTS, _inputs),
        evaluation=_read_file(directory / EVALUATION, parse_evaluation),
    )


def _read_file(path: Path, parse: Callable[[JsonObject], _T]) -> _T | None:
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        return parse(read_json_object(path))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _model(values: JsonObject) -> ModelData:
    return ModelData(
        tuple(_layer(**layer) for layer in values["layers"]), _number(values["step_flops"])
    )


def _layer(
    name: object,
    kind: object,
    shape: Any,
    parameters: object,
    trainable: object,
    flops: object,
) -> LayerRow:
    sizes = None if shape is None else _shape(shape)
    return LayerRow(
        _text(name), _text(kind), sizes, _count(parameters), _count(trainable), _number(flops)
    )


def _inputs(values: JsonObject) -> InputData:
    return InputData(
        step=None if values["step"] is None else _count(values["step"]),
        pictures=_pictures(values["pictures"]),
        sentences=tuple((_text(name), _text(text)) for name, text in values["sentences"]),
        tensors=tuple(_tensor(**tensor) for tensor in values["tensors"]),
        problem=_text(values["problem"]),
        facts=tuple((_text(a), _text(b), _text(c)) for a, b, c in values["facts"]),
    )


def _tensor(
    name: object,
    shape: Any,
    dtype: object,
    low: object = None,
    high: object = None,
    mean: object = None,
) -> TensorSummary:
    sizes = tuple(_count(size) for size in shape)
    return TensorSummary(
        _text(name), sizes, _text(dtype), _number(low), _number(high), _number(mean)
    )


def parse_evaluation(values: JsonObject) -> EvaluationData:
    """Returns the data of `evaluation_values`. Raises an error of Python if they are invalid."""
    return EvaluationData(
        step=_count(values["step"]),
        note=_text(values["note"]),
        confusion={(_count(a), _count(b)): _count(n) for a, b, n in values["confusion"]},
        classes=tuple(_text(name) for name in values["classes"]),
        pictures=_pictures(values["pictures"]),
        head=tuple(_text(name) for name in values["head"]),
        rows=tuple(tuple(_text(cell) for cell in row) for row in values["rows"] if row),
        problem=_text(values["problem"]),
        title=_text(values["title"]),
        calibration=tuple((_count(n), _share(a), _share(b)) for n, a, b in values["calibration"]),
        facts=tuple((_text(a), _text(b)) for a, b in values["facts"]),
        others=tuple(parse_evaluation(other) for other in values["others"]),
        importance=tuple(
            (_text(name), _finite(mean), _finite(deviation))
            for name, mean, deviation in values["importance"]
        ),
        importance_note=_text(values["importance_note"]),
    )


def _finite(value: object) -> float:
    number = _number(value)
    return math.nan if number is None else number


def _share(value: object) -> float:
    if not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise TypeError(f"got {value!r}, expected a share")
    return value


def _pictures(values: Any) -> tuple[Picture, ...]:
    pictures = tuple(Picture(_text(value["png"]), _text(value["caption"])) for value in values)
    for picture in pictures:
        if not base64.b64decode(picture.png, validate=True).startswith(_PNG):
            raise ValueError("not a PNG file")
    return pictures


def _shape(values: Any) -> tuple[int | None, ...]:
    return tuple(None if size is None else _count(size) for size in values)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"got {value!r}, expected a string")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise TypeError(f"got {value!r}, expected an integer from 0 to 2**63 - 1")
    return value


def _number(value: object) -> float | None:
    if value is not None and (not isinstance(value, (int, float)) or isinstance(value, bool)):
        raise TypeError(f"got {value!r}, expected a number")
    return value
