"""Which variables of a run have a value in a checkpoint, told before anything is restored."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import CheckpointContent
from orbit_runner.distribute.sharded_variables import is_variable, name_of
from orbit_runner.state.averaging_optimizer import OWN, AveragingOptimizer

# TensorFlow's own counter; a checkpoint made by `write` has none.
_IGNORED = {"save_counter"}
# What a checkpoint may hold beyond the run: parts of the run itself that this mode has no use for.
_COMPLETE = ("model", "optimizer", "ema")
# Parts of a run that are one variable each.
_SINGLE = ("global_step", *OWN)


class Pair(NamedTuple):
    """A variable and its value in a checkpoint.

    Attributes:
        variable: The variable.
        key: The key of the value.
        path: The name of the variable in the tree of the run.
        names: The variable's own name, and that which it had when it was saved.
    """

    variable: tf.Variable
    key: str
    path: str
    names: tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Match:
    """How the variables of a run and those of a checkpoint go together.

    Attributes:
        pairs: Variables with their values.
        missing: Variables without a value in the checkpoint, described.
        unused: Values of the model and the optimizer that no variable takes, described.
        untouched: Slots, by the name of the variable in the tree of the run, that Model Garden's
            runner had not made: no gradient had come to their variables.
    """

    pairs: list[Pair]
    missing: list[str]
    unused: list[str]
    untouched: list[str]

    @property
    def complete(self) -> bool:
        """Whether nothing is left on either side."""
        return not self.missing and not self.unused

    def counts(self) -> str:
        """Returns how many variables have a value, part by part: `12 of model, 25 of optimizer`."""
        parts = Counter(pair.path.partition(".")[0] for pair in self.pairs)
        return ", ".join(name if name in _SINGLE else f"{n} of {name}" for name, n in parts.items())


def match(items: dict[str, Any], content: CheckpointContent, *, lazily: bool = False) -> Match:
    """Walks through the objects of a run and those of a checkpoint side by side, by name.

    Args:
        items: What the run would restore, by its name at the root of the checkpoint.
        content: The checkpoint.
        lazily: Whether it may lack slots of variables that no gradient had come to.

    Returns:
        What fits and what does not.
    """
    walk = _Walk(content)
    root = content.graph.nodes[0]
    walk.children(items, root, "")
    walk.slots(lazily)
    return Match(walk.pairs, walk.missing, walk.unused({*items, *_COMPLETE}), walk.untouched)


def same_name(own: str, saved: str) -> bool:
    """Returns whether a variable had this name when it was saved.

    Model Garden's runner makes parts of the optimizer within a scope of its name: `Adam/iter`.

    Args:
        own: Its name in this run.
        saved: That in the checkpoint.
    """
    return own == saved or saved.endswith(f"/{own}") or own.endswith(f"/{saved}")


class _Walk:
    """The walk itself, breadth first: an object that has several names goes by its shortest."""

    def __init__(self, content: CheckpointContent) -> None:
        self._content = content
        self._seen: set[int] = set()
        self._queue: list[tuple[Any, Any, str]] = []
        self._taken: set[str] = set()
        self._optimizers: list[tuple[Any, Any]] = []
        self.pairs: list[Pair] = []
        self.missing: list[str] = []
        self.untouched: list[str] = []

    def children(self, items: dict[str, Any], node: Any, path: str) -> None:
        """Matches children by name, then theirs."""
        self._enqueue(items, node, path)
        while self._queue:
            live, found, name = self._queue.pop(0)
            self._visit(live, found, name)
            self._enqueue(tf.train.TrackableView.children(live), found, name)

    def _enqueue(self, items: dict[str, Any], node: Any, path: str) -> None:
        ids = {child.local_name: child.node_id for child in node.children} if node else {}
        for name, live in items.items():
            if id(live) in self._seen or (not path and name in _IGNORED):
                continue
            self._seen.add(id(live))
            found = self._content.graph.nodes[ids[name]] if name in ids else None
            self._queue.append((live, found, f"{path}.{name}" if path else name))

    def _visit(self, live: Any, node: Any, path: str) -> None:
        if hasattr(type(live), "get_slot_names"):
            self._optimizers.append((live, node))
        if not is_variable(live):
            return
        values = [(a.checkpoint_key, a.full_name) for a in node.attributes] if node else []
        self._pair(live, path, *(values[0] if values else ("", "")))

    def _pair(self, variable: tf.Variable, path: str, key: str, saved_name: str) -> None:
        name = name_of(variable)
        shown = f"{path} ({name}, {_shape(variable.shape)}"
        if key not in self._content.shapes:
            self.missing.append(f"{shown}): not in the checkpoint")
        elif list(variable.shape) != self._content.shapes[key]:
            self.missing.append(f"{shown}): {_shape(self._content.shapes[key])} in the checkpoint")
            self._taken.add(key)
        else:
            self.pairs.append(Pair(variable, key, path, (name, saved_name)))
            self._taken.add(key)

    def slots(self, lazily: bool) -> None:
        """Matches slots, which are nobody's children.

        Args:
            lazily: Whether a slot may be missing where another variable has one of its name.
        """
        pairs = list(self.pairs)
        for optimizer, node in self._optimizers:
            there = self._slot_keys(node)
            made = {name for _, name in there} if lazily else set()
            part = "ema" if isinstance(optimizer, AveragingOptimizer) else "optimizer"
            for variable, key, path, _ in pairs:
                for name in optimizer.get_slot_names():
                    slot = _slot(optimizer, variable, name)
                    shown = f"{part}.{name} of {path}"
                    if slot is None:
                        continue
                    if (key, name) not in there and name in made:
                        self.untouched.append(shown)
                    else:
                        self._pair(slot, shown, *there.get((key, name), ("", "")))

    def _slot_keys(self, node: Any) -> dict[tuple[str, str], tuple[str, str]]:
        """Returns key and name of each slot by the key of its variable and the name of the slot."""
        return {
            (self._value(slot.original_variable_node_id)[0], slot.slot_name): self._value(
                slot.slot_variable_node_id
            )
            for slot in (node.slot_variables if node else ())
        }

    def _value(self, node_id: int) -> tuple[str, str]:
        attributes = self._content.graph.nodes[node_id].attributes
        return (attributes[0].checkpoint_key, attributes[0].full_name) if attributes else ("", "")

    def unused(self, roots: Collection[str]) -> list[str]:
        """Returns the values that no variable took.

        Args:
            roots: The names at the root of the checkpoint that count.
        """
        left = (key for key in self._content.state_keys() if key not in self._taken)
        return [
            f"{_path(key)} ({_shape(self._content.shapes[key])}): only in the checkpoint"
            for key in left
            if key.partition("/")[0] in roots
        ]


def _path(key: str) -> str:
    """Returns the name in the tree of the run for a key of a checkpoint."""
    names = key.partition("/.ATTRIBUTES")[0]
    owner, _, slot = names.partition("/.OPTIMIZER_SLOT/")
    path = owner.replace("/", ".")
    return f"{slot.replace('/', '.')} of {path}" if slot else path


def _slot(optimizer: Any, variable: tf.Variable, name: str) -> Any:
    try:
        return optimizer.get_slot(variable, name)
    except (KeyError, AttributeError):
        return None


def _shape(shape: Any) -> str:
    return "scalar" if not list(shape) else " × ".join(str(size) for size in shape)
