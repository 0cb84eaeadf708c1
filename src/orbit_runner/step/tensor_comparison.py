"""The tensors of a step in two runs, and the first one that differs.

Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

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
Examples = Sequence[int | None] | None  # those of a batch; None if they are not known


@dataclasses.dataclass(frozen=True)
class StepTensor:
    """A tensor of a step: one of `PLACES`, its name, and its value."""

    place: str
    name: str
    value: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorDifference:
    """The first tensor of a step that differs."""

    place: str  # one of `PLACES`
    name: str  # such as `dense/kernel`
    step: int
    problem: str = ""  # why the values cannot be compared, such as other shapes
    differing: int = 0  # the number of elements that differ; 0 if they cannot be compared
    total: int = 0  # the number of elements
    examples: Sequence[int] = ()  # whose rows differ, if it is a tensor of the batch

    def __str__(self) -> str:
        """Returns such as `the gradient of dense/kernel at step 3`."""
        what = _DESCRIPTIONS.get(self.place, self.place).format(self.name)
        if self.place in ("weights", "slots"):
            when = "at the beginning" if self.step == 1 else f"before step {self.step}"
            return f"the {what} {when}"
        return f"the {what} at step {self.step}"


def digests_of(tensors: Iterable[StepTensor]) -> dict[str, str]:
    """Returns the type, the shape and the SHA-256 of each tensor, by `PLACE:NAME`."""
    return {_key(tensor): _digest(tensor.value) for tensor in tensors}


def _key(tensor: StepTensor) -> str:
    return f"{tensor.place}:{tensor.name}"


def _digest(value: np.ndarray) -> str:
    content = value.tobytes() if value.dtype != object else repr(value.tolist()).encode()
    return f"{value.dtype.name} {value.shape} {hashlib.sha256(content).hexdigest()}"


def write_step(path: Path, step: int, tensors: Sequence[StepTensor], examples: Examples) -> None:
    """Writes the tensors of a step to a file, in the order in which they are computed."""
    about = {"step": step, "examples": examples, "digests": digests_of(tensors)}
    arrays = {_key(tensor): _to_storable(tensor.value) for tensor in tensors}
    np.savez(path, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]


def _to_storable(value: np.ndarray) -> np.ndarray:
    if value.dtype == object:
        return np.array(value.tolist(), np.bytes_)
    # Types that NumPy does not have, such as bfloat16. float32 has all their values.
    return value.astype(np.float32) if value.dtype.kind == "V" else value


def differing_tensors(left: Mapping[str, str], right: Mapping[str, str]) -> list[str]:
    """Returns the tensors whose digests differ, in the order in which they are computed.

    Slots that only one of two runs has belong to another kind of optimizer; the weights show
    whether it makes a difference.
    """
    # Those of the first run come before those that it lacks.
    keys = (
        key
        for key in {**left, **right}
        if left.get(key) != right.get(key)
        and ((key in left and key in right) or not key.startswith("slots:"))
    )
    return sorted(keys, key=lambda key: PLACES.index(key.partition(":")[0]))


def first_difference(left: Path, right: Path) -> TensorDifference | None:
    """Returns the first tensor that differs in the files of two runs; None if there is none."""
    with np.load(left) as a, np.load(right) as b:
        about = [json.loads(str(file["about"])) for file in (a, b)]
        examples = [file["examples"] for file in about]
        digests = [file["digests"] for file in about]
        for key in differing_tensors(*digests)[:1]:
            place, _, name = key.partition(":")
            difference = TensorDifference(place=place, name=name, step=int(about[0]["step"]))
            if place == "batch" and None not in examples and examples[0] != examples[1]:
                return _other_examples(difference, *examples)
            kinds = [side[key].rpartition(" ")[0] if key in side else "" for side in digests]
            if "" in kinds:
                only = f"only {'AB'[not kinds[0]]} has it"
                return dataclasses.replace(difference, problem=only)
            if kinds[0] != kinds[1]:
                return dataclasses.replace(difference, problem=f"{kinds[0]} and {kinds[1]}")
            return _compare_values(difference, a[key], b[key], examples[0])
    return None


def _other_examples(
    difference: TensorDifference, left: Sequence[int | None], right: Sequence[int | None]
) -> TensorDifference:
    texts = [", ".join(map(str, ids[:4])) + (", …" if ids[4:] else "") for ids in (left, right)]
    return dataclasses.replace(
        difference,
        name="examples",
        problem=f"{texts[0]} and {texts[1]}",
        differing=sum(a != b for a, b in zip(left, right, strict=False)),
        total=max(len(left), len(right)),
    )


def _compare_values(
    difference: TensorDifference, left: np.ndarray, right: np.ndarray, examples: Examples
) -> TensorDifference:
    differing = left != right
    if left.dtype.kind == "f":
        differing &= ~(np.isnan(left) & np.isnan(right))
    differing_examples: list[int] = []
    if difference.place == "batch" and differing.shape[:1] == (len(examples or ()),):
        pairs = zip(examples or (), differing, strict=True)
        differing_examples = [
            int(example) for example, row in pairs if np.any(row) and example is not None
        ]
    return dataclasses.replace(
        difference,
        differing=int(np.count_nonzero(differing)),
        total=int(differing.size),
        examples=differing_examples,
    )
