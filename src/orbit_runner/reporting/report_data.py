"""The files of `report_data/` in a run directory. Does not import TensorFlow."""

from __future__ import annotations

import dataclasses
import json
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
    # What a constant predicts, and its result, by metric.
    baselines: Mapping[str, tuple[str, float]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class EvaluationData:
    """The examples of an evaluation at a step, or the reason why they are not known."""

    step: int = 0
    note: str = ""
    confusion: Sequence[tuple[int, int, int]] = ()  # label, prediction and count
    classes: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    problem: str = ""
    calibration: Sequence[tuple[int, float, float]] = ()  # as in `ReportExamples`
    facts: Sequence[tuple[str, str]] = ()


@dataclasses.dataclass(frozen=True)
class ReportData:
    """The contents of the files; None for a file that is missing or damaged."""

    model: ModelData | None = None
    inputs: InputData | None = None
    evaluation: EvaluationData | None = None


def write_data(run: Path, data: ModelData | InputData | EvaluationData) -> None:
    """Writes one of the files of a run."""
    name = {ModelData: MODEL, InputData: INPUTS, EvaluationData: EVALUATION}[type(data)]
    values = to_jsonable(dataclasses.asdict(data))
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    write_atomically(RunDirectory(run).report_data / name, f"{text}\n")


def read_data(run: Path) -> ReportData:
    """Returns the contents of the files of a run."""
    directory = RunDirectory(run).report_data
    return ReportData(
        model=_read_file(directory / MODEL, _parse_model),
        inputs=_read_file(directory / INPUTS, _parse_inputs),
        evaluation=_read_file(directory / EVALUATION, parse_evaluation),
    )


def _read_file(path: Path, parse: Callable[[JsonObject], _T]) -> _T | None:
    try:
        return parse(read_json_object(path))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _parse_model(values: JsonObject) -> ModelData:
    layers = [LayerRow(**{**row, "shape": _tuples(row["shape"])}) for row in values["layers"]]
    return ModelData(tuple(layers), values["step_flops"])


def _parse_inputs(values: JsonObject) -> InputData:
    tensors = [
        TensorSummary(**{**row, "shape": _tuples(row["shape"])}) for row in values["tensors"]
    ]
    parsed = {"pictures": _pictures(values), "tensors": tuple(tensors)}
    return InputData(**{**_tuples(values), **parsed})


def parse_evaluation(values: JsonObject) -> EvaluationData:
    """Returns the data of an evaluation. Raises ValueError, TypeError or KeyError."""
    parsed = {
        "pictures": _pictures(values),
        "confusion": tuple((label, other, count) for label, other, count in values["confusion"]),
    }
    return EvaluationData(**{**_tuples(values), **parsed})


def _pictures(values: JsonObject) -> tuple[Picture, ...]:
    return tuple(Picture(**picture) for picture in values["pictures"])


def _tuples(value: Any) -> Any:
    """Returns a JSON value with tuples for lists."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
