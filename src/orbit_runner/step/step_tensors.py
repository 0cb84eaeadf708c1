"""The tensors of a step in two runs, and the first one that differs.

Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.lib.npyio import NpzFile

# In the order in which they are computed. `weights` and `slots` are those before the step.
PLACES = ("weights", "slots", "batch", "output", "loss", "gradient", "update")
_DESCRIPTIONS = {
    "weights": "weights {}",
    "slots": "optimizer slots {}",
    "batch": "{} of the batch",
    "output": "output of {}",
    "gradient": "gradient of {}",
    "update": "update of {}",
}


@dataclasses.dataclass(frozen=True)
class StepTensor:
    """A tensor of a step: one of `PLACES`, its name, and its value."""

    place: str
    name: str
    value: np.ndarray


@dataclasses.dataclass(frozen=True)
class LargestDifference:
    """The position at which two tensors differ most."""

    index: tuple[int, ...]  # () in a scalar.
    left: float
    right: float
    difference: float  # Absolute; infinite if one of the values is NaN.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorDifference:
    """The first tensor of a step that differs.

    Attributes:
        place: One of `PLACES`.
        name: Its name, such as `dense/kernel`.
        step: The step.
        problem: Why the values cannot be compared, such as other shapes; "" if they can.
        differing: The number of elements that differ; 0 if they cannot be compared.
        total: The number of elements.
        largest: Where the values differ most; None if they cannot be subtracted.
        examples: The examples whose rows differ, if it is a tensor of the batch.
    """

    place: str
    name: str
    step: int
    problem: str = ""
    differing: int = 0
    total: int = 0
    largest: LargestDifference | None = None
    examples: Sequence[int] = ()

    def __str__(self) -> str:
        """Returns such as `the gradient of dense/kernel at step 3`."""
        what = _DESCRIPTIONS.get(self.place, self.place).format(self.name)
        if self.place in ("weights", "slots"):
            when = "at the beginning" if self.step == 1 else f"before step {self.step}"
            return f"the {what} {when}"
        return f"the {what} at step {self.step}"


def write_step(
    path: Path, step: int, tensors: Sequence[StepTensor], examples: Sequence[int | None] | None
) -> None:
    """Writes the tensors of a step to a file, in the order in which they are computed.

    `examples` are the indices of the examples in the batch; None if they are not known.
    """
    arrays: dict[str, np.ndarray] = {}
    rows = []
    for index, tensor in enumerate(tensors):
        rows.append([tensor.place, tensor.name, digest_of(tensor.value)])
        arrays[str(index)] = _to_storable(tensor.value)
    about = {"step": step, "examples": examples, "tensors": rows}
    np.savez(path, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]


def digest_of(value: np.ndarray) -> str:
    """Returns the type, the shape and the SHA-256 of a tensor."""
    content = value.tobytes() if value.dtype != object else repr(value.tolist()).encode()
    return f"{value.dtype.name} {value.shape} {hashlib.sha256(content).hexdigest()}"


def _to_storable(value: np.ndarray) -> np.ndarray:
    if value.dtype == object:
        return np.array(value.tolist(), np.bytes_)
    # Types that NumPy does not have, such as bfloat16. float32 has all their values.
    return value.astype(np.float32) if value.dtype.kind == "V" else value


def first_difference(left: Path, right: Path) -> TensorDifference | None:
    """Returns the first tensor that differs in the files of two runs; None if there is none."""
    with np.load(left) as a, np.load(right) as b:
        about = [json.loads(str(file["about"])) for file in (a, b)]
        examples = [file["examples"] for file in about]
        rows = [{(place, name): (index, digest) for index, (place, name, digest)
                 in enumerate(file["tensors"])} for file in about]  # fmt: skip
        step = int(about[0]["step"])
        for place, name in _sort_keys(*rows):
            if place == "batch" and (difference := _compare_examples(examples, step)):
                return difference
            difference = _compare(place, name, step, rows, (a, b), examples[0])
            if difference is not None:
                return difference
    return None


def _sort_keys(
    left: Mapping[tuple[str, str], object], right: Mapping[tuple[str, str], object]
) -> Iterator[tuple[str, str]]:
    """Yields the keys of both, by place, those of the first run before those it lacks."""
    for place in PLACES:
        yield from (key for key in {**left, **right} if key[0] == place)


def _compare_examples(
    examples: Sequence[Sequence[int | None] | None], step: int
) -> TensorDifference | None:
    left, right = examples
    if left is None or right is None or left == right:
        return None
    return TensorDifference(
        place="batch",
        name="examples",
        step=step,
        problem=f"{_format_examples(left)} and {_format_examples(right)}",
        differing=sum(a != b for a, b in zip(left, right, strict=False)),
        total=max(len(left), len(right)),
    )


def _format_examples(numbers: Sequence[int | None]) -> str:
    return ", ".join(map(str, numbers[:4])) + (", …" if numbers[4:] else "")


def _compare(
    place: str,
    name: str,
    step: int,
    rows: Sequence[Any],
    files: Sequence[NpzFile],
    examples: Sequence[int | None] | None,
) -> TensorDifference | None:
    tensors = [row.get((place, name)) for row in rows]
    if None in tensors:
        if place == "slots":
            return None  # Another kind of optimizer: the updates differ.
        return TensorDifference(
            place=place, name=name, step=step, problem=f"only {'AB'[tensors[0] is None]} has it"
        )
    digests = [digest for _, digest in tensors]
    if digests[0] == digests[1]:
        return None
    kinds = [digest.rpartition(" ")[0] for digest in digests]
    difference = TensorDifference(place=place, name=name, step=step)
    if kinds[0] != kinds[1]:
        return dataclasses.replace(difference, problem=f"{kinds[0]} and {kinds[1]}")
    left, right = (file[str(index)] for (index, _), file in zip(tensors, files, strict=True))
    differing = left != right
    if left.dtype.kind == "f":
        differing &= ~(np.isnan(left) & np.isnan(right))
    return dataclasses.replace(
        difference,
        differing=int(np.count_nonzero(differing)),
        total=int(differing.size),
        largest=None if left.dtype.kind == "S" else _largest_difference(left, right),
        examples=_differing_examples(place, differing, examples),
    )


def _largest_difference(left: np.ndarray, right: np.ndarray) -> LargestDifference:
    a, b = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    off = np.where(np.isnan(off), np.inf, off)
    index = tuple(map(int, np.unravel_index(int(np.argmax(off)), off.shape)))
    return LargestDifference(index, float(a[index]), float(b[index]), float(off[index]))


def _differing_examples(
    place: str, differing: np.ndarray, examples: Sequence[int | None] | None
) -> list[int]:
    """Returns the examples in the rows that differ."""
    if place != "batch" or examples is None or differing.shape[:1] != (len(examples),):
        return []
    return [
        int(example)
        for example, row in zip(examples, differing, strict=True)
        if np.any(row) and example is not None
    ]
