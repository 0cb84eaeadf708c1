"""Finds which variables of a run have a value in a checkpoint, before anything is restored."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import CheckpointContent
from orbit_runner.state.ema import INNER_OPTIMIZER, RECOVERIES, AveragingOptimizer
from orbit_runner.tf_internals import is_legacy_optimizer, optimizer_name
from orbit_runner.utils.variables import variable_name

if TYPE_CHECKING:
    from orbit_runner.state.learning_rates import Optimizer
    from orbit_runner.tf_internals import Trackable, TrackableObjectGraph

    SavedNode: TypeAlias = TrackableObjectGraph.TrackableObject


# TensorFlow's own counter. `Checkpoint.write` does not save it.
_IGNORED = {"save_counter"}
# Parts whose values count as unused even if the run does not have the part. Values of other parts
# are ignored.
_COMPLETE = ("model", "optimizer")
# Parts of a run that consist of one variable each.
_SINGLE = ("global_step", RECOVERIES)
# Variables of optimizers that hold a learning rate. The config determines it, and whether it is a
# variable: a schedule has none.
_LEARNING_RATES = ("learning_rate", "_learning_rate", "_current_learning_rate")
_TABLE_PARTS = ("table-keys", "table-values")  # the last parts of the keys of lookup tables


class Pair(NamedTuple):
    """A variable and its value in a checkpoint."""

    variable: tf.Variable
    key: str  # The key of the value in the checkpoint.
    path: str  # The path of the variable in the tree of the run.


@dataclasses.dataclass(frozen=True)
class Match:
    """The result of matching the variables of a run with the values of a checkpoint."""

    pairs: list[Pair]
    missing: list[str]  # Descriptions of the variables without a value.
    unused: list[str]  # Descriptions of the values that no variable uses.
    # Slots that Model Garden's runner had not created yet, because their variables had no gradient.
    uncreated_slots: list[str]
    rates: list[str]  # Descriptions of learning rates that only the run or the checkpoint has.

    @property
    def is_complete(self) -> bool:
        """Whether every variable has a value and every value is used."""
        return not self.missing and not self.unused

    def format_counts(self) -> str:
        """Returns the number of variables with a value, by part: `12 in model, 25 in optimizer`."""
        parts = Counter(pair.path.partition(".")[0] for pair in self.pairs)
        return ", ".join(name if name in _SINGLE else f"{n} in {name}" for name, n in parts.items())


def match_variables(
    items: dict[str, Trackable], content: CheckpointContent, *, allow_missing_slots: bool = False
) -> Match:
    """Returns how the objects of a run match those of a checkpoint, by name.

    `items` maps names at the root of the checkpoint to objects of the run. With
    `allow_missing_slots`, a slot may be missing from the checkpoint if another variable has a slot
    of that name: Model Garden's runner creates a slot only when its variable gets a gradient.
    """
    matcher = _Matcher(content)
    matcher.match_objects(items)
    matcher.match_slots(allow_missing_slots)
    unused = matcher.find_unused({*items, *_COMPLETE})
    return Match(matcher.pairs, matcher.missing, unused, matcher.uncreated_slots, matcher.rates)


class _Matcher:
    """Walks both object graphs breadth-first, so that an object gets the shortest of its names."""

    def __init__(self, content: CheckpointContent) -> None:
        self._content = content
        self._seen: set[int] = set()
        self._queue: list[tuple[Trackable, SavedNode | None, str]] = []
        self._taken: set[str] = set()
        self._optimizers: list[tuple[Optimizer | AveragingOptimizer, SavedNode | None]] = []
        self.pairs: list[Pair] = []
        self.missing: list[str] = []
        self.uncreated_slots: list[str] = []
        self.rates: list[str] = []

    def match_objects(self, items: dict[str, Trackable]) -> None:
        """Matches objects by name, and their children recursively."""
        self._enqueue(items, self._content.graph.nodes[0], "")
        while self._queue:
            live, saved_node, name = self._queue.pop(0)
            if hasattr(type(live), "get_slot_names"):
                self._optimizers.append((live, saved_node))
            if isinstance(live, tf.Variable):
                attributes = saved_node.attributes if saved_node else []
                self._add_pair(live, name, attributes[0].checkpoint_key if attributes else "")
            self._enqueue(tf.train.TrackableView.children(live), saved_node, name)

    def _enqueue(self, items: dict[str, Trackable], node: SavedNode | None, path: str) -> None:
        ids = {child.local_name: child.node_id for child in node.children} if node else {}
        for name, live in items.items():
            if id(live) in self._seen or (not path and name in _IGNORED):
                continue
            self._seen.add(id(live))
            saved_node = self._content.graph.nodes[ids[name]] if name in ids else None
            self._queue.append((live, saved_node, f"{path}.{name}" if path else name))

    def _add_pair(self, variable: tf.Variable, path: str, key: str) -> None:
        shown = f"{path} ({variable_name(variable)}, {_format_shape(variable.shape)}"
        if key not in self._content.shapes:
            unmatched = self.rates if _is_learning_rate(path) else self.missing
            unmatched.append(f"{shown}): not in the checkpoint")
        elif list(variable.shape) != self._content.shapes[key]:
            self.missing.append(
                f"{shown}): {_format_shape(self._content.shapes[key])} in the checkpoint"
            )
            self._taken.add(key)
        else:
            self.pairs.append(Pair(variable, key, path))
            self._taken.add(key)

    def match_slots(self, allow_missing_slots: bool) -> None:
        """Matches slots, which are not children of any object.

        With `allow_missing_slots`, a slot may be missing if another variable has a slot of that
        name.
        """
        pairs = list(self.pairs)
        for optimizer, node in self._optimizers:
            there = self._slot_keys(node)
            slot_names = {name for _, name in there} if allow_missing_slots else set()
            part = "ema" if isinstance(optimizer, AveragingOptimizer) else "optimizer"
            for variable, key, path in pairs:
                for name in optimizer.get_slot_names():
                    slot = _get_slot(optimizer, variable, name)
                    shown = f"{part}.{name} of {path}"
                    if slot is None:
                        continue
                    if (key, name) not in there and name in slot_names:
                        self.uncreated_slots.append(shown)
                    else:
                        self._add_pair(slot, shown, there.get((key, name), ""))

    def _slot_keys(self, node: SavedNode | None) -> dict[tuple[str, str], str]:
        """Returns the key of each slot by (key of its variable, name of the slot)."""
        return {
            (self._key(slot.original_variable_node_id), slot.slot_name): self._key(
                slot.slot_variable_node_id
            )
            for slot in (node.slot_variables if node else ())
        }

    def _key(self, node_id: int) -> str:
        attributes = self._content.graph.nodes[node_id].attributes
        return attributes[0].checkpoint_key if attributes else ""

    def find_unused(self, roots: Collection[str]) -> list[str]:
        """Returns descriptions of the values below `roots` that no variable uses."""
        left = [key for key in self._content.state_keys() if key not in self._taken]
        rates = (_path_of(key) for key in left if _is_learning_rate(_path_of(key)))
        self.rates += [f"{path}: only in the checkpoint" for path in rates]
        return [
            f"{_path_of(key)} ({_format_shape(self._content.shapes[key])}): only in the checkpoint"
            for key in left
            if key.partition("/")[0] in roots
            and not _is_learning_rate(_path_of(key))
            # A lookup table without entries.
            and not (key.rpartition("/")[2] in _TABLE_PARTS and self._content.shapes[key][0] == 0)
        ]


def _is_learning_rate(path: str) -> bool:
    if " of " in path:  # a slot
        return False
    return path.startswith("optimizer.") and path.rpartition(".")[2] in _LEARNING_RATES


def _path_of(key: str) -> str:
    """Returns the path in the tree of the run for a checkpoint key."""
    names = key.partition("/.ATTRIBUTES")[0]
    owner, _, slot = names.partition("/.OPTIMIZER_SLOT/")
    path = owner.replace("/", ".")
    return f"{slot.replace('/', '.')} of {path}" if slot else path


def _get_slot(
    optimizer: Optimizer | AveragingOptimizer, variable: tf.Variable, name: str
) -> tf.Variable | None:
    try:
        return optimizer.get_slot(variable, name)
    except (KeyError, AttributeError):
        return None


def _format_shape(shape: Iterable[int | None]) -> str:
    return "scalar" if not list(shape) else " × ".join(str(size) for size in shape)


# In Model Garden, an optimizer that wraps the actual optimizer keeps the average; in this runner,
# the average is separate. Checkpoints use Model Garden's layout, so that either runner can resume
# from the other's.


class OptimizerKind(NamedTuple):
    """The kind of an optimizer."""

    name: str  # "" if unknown.
    is_legacy: bool  # Whether it is a Keras legacy optimizer, which stores its slots differently.

    def __str__(self) -> str:
        name = self.name or "an optimizer"
        return f"{name} (older kind)" if self.is_legacy else name


def has_inner_optimizer(content: CheckpointContent) -> bool:
    """Returns whether a checkpoint's optimizer wraps another one to average the weights."""
    return INNER_OPTIMIZER in content.children(content.children(0).get("optimizer"))


def is_model_gardens(content: CheckpointContent) -> bool:
    """Returns whether a checkpoint lacks the state that only this runner saves."""
    return RECOVERIES not in content.children(0)


def kind_of(optimizer: Optimizer) -> OptimizerKind:
    """Returns the kind of an optimizer, which may be wrapped for loss scaling."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return OptimizerKind(optimizer_name(inner), is_legacy_optimizer(inner))


def saved_optimizer_kind(content: CheckpointContent) -> OptimizerKind | None:
    """Returns the kind of optimizer in one of Model Garden's checkpoints, or None if it has none.

    Infers the kind from the names of the optimizer's variables.
    """
    node = content.children(0).get("optimizer")
    node = content.children(node).get(INNER_OPTIMIZER, node)
    parts = content.children(node)
    if "iter" in parts:
        scope = _variable_name(content, parts["iter"]).split("/")[:-1]
        return OptimizerKind(scope[-1] if scope else "", is_legacy=True)
    if "_iterations" not in parts:
        return None
    slots = [
        _variable_name(content, at) for at in content.children(parts.get("_variables")).values()
    ]
    scopes = {name.split("/")[0] for name in slots if name and name != "iteration"}
    return OptimizerKind(scopes.pop() if len(scopes) == 1 else "", is_legacy=False)


def _variable_name(content: CheckpointContent, node_id: int) -> str:
    attributes = content.graph.nodes[node_id].attributes
    return attributes[0].full_name if attributes else ""
