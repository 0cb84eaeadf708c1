"""The random draws of RandAugment and AutoAugment, computed by NumPy. Does not import TensorFlow.

The operations are those of the installed Model Garden. Their names and the policies are read from
its source, because importing it imports TensorFlow. In `keyed_draws_scope`, each call of a random
op has a number; the functions below count the calls as Model Garden makes them.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.data.order.philox import to_floats, words_of_call

# Operations whose magnitude gets a random sign, and those that have no magnitude.
_SIGNED = frozenset({"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"})
_PLAIN = frozenset({"AutoContrast", "Equalize", "Invert"})
_CUTOUT = "Cutout"
_SOURCE = "vision/ops/augment.py"
# The purpose of the draws in `keyed_draws_scope`.
PURPOSE = "augmentation"


class _RandomCalls:
    """The random words of one image by the number of the call."""

    def __init__(self, seed: int, number: int, epoch: int) -> None:
        digest = hashlib.sha256(f"{seed} {PURPOSE}".encode()).digest()
        root = int(np.frombuffer(digest[:8], "<u8")[0])
        low, high = words_of_call(root, number, epoch)[:2].tolist()
        self._key = low | high << 32
        self._next = 0

    def next(self) -> int:
        """Reserves the next call, and returns its number."""
        self._next += 1
        return self._next - 1

    def integer(self, call: int, limit: int) -> int:
        return int(words_of_call(self._key, 0, call)[0]) % limit

    def unit(self, call: int) -> np.float32:
        return np.float32(to_floats(words_of_call(self._key, 0, call)[:1])[0])

    def chance(self, call: int, probability: float) -> bool:
        return bool(np.floor(self.unit(call) + np.float32(probability)))


def rand_augment(
    seed: int,
    number: int,
    epoch: int,
    size: tuple[int, int],
    *,
    num_layers: int,
    magnitude: float,
    prob_to_apply: float | None,
    exclude_ops: Sequence[str],
) -> list[str] | None:
    """Returns the operations that RandAugment applies to an image, such as `Rotate -9`.

    Args:
        seed: The seed of the data.
        number: The number of the example.
        epoch: Its epoch.
        size: Height and width of the image that the operations get.
        num_layers: The number of operations to draw.
        magnitude: Their magnitude.
        prob_to_apply: The probability of each operation; None to apply all.
        exclude_ops: Operations that are not drawn.

    Returns:
        The operations in order, each with its magnitude, which may have a random sign; for
        Cutout, also row and column of the center. None if the version of Model Garden is unknown.
    """
    every = _operations()
    if every is None:
        return None
    names = [name for name in every if name not in exclude_ops]
    applied = []
    calls = _RandomCalls(seed, number, epoch)
    for _ in range(num_layers):
        chosen = calls.integer(calls.next(), len(names) + 1)
        signs: dict[str, int] = {}
        for name in names:
            calls.next()  # A probability that only operations on boxes use.
            if name in _SIGNED:
                signs[name] = calls.next()
        center = [calls.next(), calls.next()] if _CUTOUT in names else []
        is_applied = prob_to_apply is None or (calls.unit(calls.next()) < np.float32(prob_to_apply))
        # The last number stands for no operation.
        if is_applied and chosen < len(names):
            name = names[chosen]
            applied.append(_format_operation(calls, name, magnitude, signs.get(name), center, size))
    return applied


def auto_augment(
    seed: int, number: int, epoch: int, size: tuple[int, int], *, augmentation_name: str
) -> list[str] | None:
    """Returns the operations that AutoAugment applies to an image, such as `Rotate -9`.

    `augmentation_name` is the policy. For the other arguments and the result, see `rand_augment`.
    """
    policies = _policies(augmentation_name)
    if policies is None:
        return None
    calls = _RandomCalls(seed, number, epoch)
    # The signs of all policies are drawn first.
    signs = [[calls.next() if name in _SIGNED else None for name, *_ in p] for p in policies]
    chosen = calls.integer(calls.next(), len(policies))
    applied = []
    for place, policy in enumerate(policies):
        for (name, probability, level), sign in zip(policy, signs[place], strict=True):
            chance = calls.next()
            center = [calls.next(), calls.next()] if name == _CUTOUT else []
            if place == chosen and calls.chance(chance, probability):
                applied.append(_format_operation(calls, name, level, sign, center, size))
    return applied


def _format_operation(
    calls: _RandomCalls,
    name: str,
    magnitude: float,
    sign: int | None,
    center: Sequence[int],
    size: tuple[int, int],
) -> str:
    if name in _PLAIN:
        return name
    if sign is not None:
        return f"{name} {'+' if calls.chance(sign, 0.5) else '-'}{magnitude:g}"
    if name == _CUTOUT:
        places = (calls.integer(call, limit) for call, limit in zip(center, size, strict=True))
        return f"{name} {magnitude:g} at {' '.join(map(str, places))}"
    return f"{name} {magnitude:g}"


@functools.cache
def _operations() -> tuple[str, ...] | None:
    """Returns the operations of RandAugment, in the order of their numbers."""
    for value in _find_assigned_lists("RandAugment", "__init__", "available_ops"):
        return tuple(value)
    return None


@functools.cache
def _policies(name: str) -> tuple[tuple[tuple[str, float, float], ...], ...] | None:
    """Returns a policy of AutoAugment: for each choice, names, probabilities and magnitudes."""
    for value in _find_assigned_lists("AutoAugment", f"policy_{name}", "policy"):
        return tuple(tuple(choice) for choice in value)
    return None


def _find_assigned_lists(class_name: str, function: str, target: str) -> Iterator[list[Any]]:
    """Yields the literals that a method of Model Garden's module assigns to a name."""
    for class_node in ast.walk(_parse_module()):
        if not isinstance(class_node, ast.ClassDef) or class_node.name != class_name:
            continue
        for method in class_node.body:
            if not isinstance(method, ast.FunctionDef) or method.name != function:
                continue
            for node in ast.walk(method):
                if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.List):
                    continue
                if ast.unparse(node.targets[0]).rpartition(".")[2] == target:
                    yield ast.literal_eval(node.value)


@functools.cache
def _parse_module() -> ast.Module:
    spec = importlib.util.find_spec("official")
    for directory in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(directory) / _SOURCE
        if path.is_file():
            return ast.parse(path.read_text(encoding="utf-8"))
    return ast.Module([], [])
