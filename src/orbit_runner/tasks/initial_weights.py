"""Initializes a model with the weights of a checkpoint, or with published weights."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.datasets.download import DownloadError
from orbit_runner.errors import SettingError, first_line, format_list
from orbit_runner.storage.paths import readable_path
from orbit_runner.storage.staging import local_checkpoint
from orbit_runner.tasks.layer_names import named_layers, no_match_message, selects, variable_names
from orbit_runner.tf_internals import OBJECT_GRAPH, TrackableObjectGraph
from orbit_runner.utils.variables import tracked_variables, variable_name

if TYPE_CHECKING:
    import numpy as np
    import tf_keras


_PATH, _IGNORE = "task.init_checkpoint", "task.init_ignore"
_WEIGHTS = "task.model.weights"

_MAX_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class LoadedWeights:
    """What a model was initialized with.

    Attributes:
        source: The path of the checkpoint.
        variables: The `id` of each variable that has a value from it.
    """

    source: str
    variables: frozenset[int]


def find_checkpoint(path: str) -> str | None:
    """Returns the prefix of the checkpoint that a path refers to, or None.

    The path is that of a checkpoint, of a directory of checkpoints, or of a run directory. Of a
    directory, the newest checkpoint is used.
    """
    if not tf.io.gfile.isdir(path):
        return path if tf.io.gfile.exists(f"{path}.index") else None
    for place in (path, f"{path}/checkpoints"):
        readable = readable_path(place)
        latest: str | None = tf.train.latest_checkpoint(readable)
        if latest is not None:
            return latest.replace(readable, place, 1)
    return None


def load_weights(model: tf_keras.Model, path: str, ignore: Sequence[str] = ()) -> LoadedWeights:
    """Assigns the values of a checkpoint to the variables of a model.

    Args:
        model: The model, which must be built.
        path: The checkpoint, in the sense of `find_checkpoint`, or its URL.
        ignore: Patterns for layers or variables that keep their values.

    Returns:
        What was loaded.

    Raises:
        SettingError: There is no checkpoint at the path, a variable has no value of its shape in
            it, or a pattern matches nothing.
    """
    local = local_checkpoint(path)
    prefix = find_checkpoint(local)
    if prefix is None:
        raise SettingError(
            _PATH,
            f"there is no checkpoint at {local!r}\n"
            "allowed: the path of a checkpoint without its suffix, a directory of checkpoints, or "
            "a run directory",
            code="no-checkpoint",
        )
    try:
        content = _CheckpointContent(prefix)
    except (KeyError, ValueError, IndexError, tf.errors.OpError) as error:
        raise SettingError(
            _PATH, f"{prefix} cannot be read: {first_line(error)}", code="damaged-checkpoint"
        ) from error
    variables = tracked_variables(model)
    names = _names(model, variables)
    ignored = _ignored_variables(ignore, variables, names)
    keys = content.keys(model)
    wanted = [variable for variable in variables if id(variable) not in ignored]
    mismatches = {
        id(variable): why
        for variable in wanted
        if (why := content.mismatch(keys.get(id(variable)), variable))
    }
    if mismatches:
        lines = format_list([f"{names[key]}: {why}" for key, why in mismatches.items()])
        raise SettingError(
            _PATH,
            f"{prefix} does not fit the model:\n{lines}{_ignore_advice(model, mismatches)}",
            code="checkpoint-mismatch",
        )
    for variable in wanted:
        variable.assign(content.tensor(keys[id(variable)]))
    # Users do not know the path of the local copy of a remote checkpoint.
    source = prefix if local == path else path
    loaded = frozenset(id(variable) for variable in wanted)
    return LoadedWeights(source, loaded)


def load_application_weights(backbone: tf_keras.Model, application: str) -> LoadedWeights:
    """Assigns the published weights of a network of `tf_keras.applications`, without classifier.

    tf_keras downloads them to its own cache, and compares them with the digest that it knows.

    Args:
        backbone: The network.
        application: Its name in `tf_keras.applications`.

    Returns:
        What was loaded.

    Raises:
        DownloadError: They cannot be downloaded.
    """
    import tf_keras

    try:
        # tf_keras prints a progress bar, but the standard output belongs to the command.
        with contextlib.redirect_stdout(sys.stderr):
            published = getattr(tf_keras.applications, application)(
                include_top=False, weights="imagenet"
            )
    except Exception as error:  # tf_keras raises `Exception` itself.
        raise DownloadError(
            f"{_WEIGHTS}: {application}: {first_line(error)}\nput the file into ~/.keras/models"
        ) from error
    backbone.set_weights(published.get_weights())
    source = f"tf_keras.applications.{application}"
    return LoadedWeights(source, frozenset(map(id, tracked_variables(backbone))))


class _CheckpointContent:
    """The tensors of a checkpoint, and the objects that they belong to."""

    def __init__(self, prefix: str) -> None:
        self._reader = tf.train.load_checkpoint(readable_path(prefix))
        self._shapes: dict[str, list[int]] = self._reader.get_variable_to_shape_map()
        if OBJECT_GRAPH not in self._shapes:
            raise ValueError("it has no object graph, so it is a checkpoint of TensorFlow 1")
        self._graph = TrackableObjectGraph()
        self._graph.ParseFromString(self._reader.get_tensor(OBJECT_GRAPH))
        roots = self._children(0)
        self._model_node = roots.get("model")
        if self._model_node is None:
            objects = ", ".join(sorted(roots)) or "nothing"
            raise ValueError(f"it contains no object `model`, only: {objects}")

    def keys(self, model: tf_keras.Model) -> dict[int, str]:
        """Returns the keys of the variables that the checkpoint has, by their `id`."""
        queue = [(model, self._model_node)]
        seen = {id(model)}
        keys = {}
        while queue:
            live, node = queue.pop(0)
            attributes = self._graph.nodes[node].attributes
            if isinstance(live, tf.Variable) and attributes:
                keys[id(live)] = attributes[0].checkpoint_key
            saved = self._children(node)
            for name, child in tf.train.TrackableView.children(live).items():
                if name in saved and id(child) not in seen:
                    seen.add(id(child))
                    queue.append((child, saved[name]))
        return keys

    def _children(self, node: Any) -> dict[str, int]:
        return {child.local_name: child.node_id for child in self._graph.nodes[node].children}

    def mismatch(self, key: str | None, variable: tf.Variable) -> str:
        """Returns why a variable cannot have the value of a key, or "" if it can."""
        if key is None or key not in self._shapes:
            return "not in the checkpoint"
        if list(variable.shape) == self._shapes[key]:
            return ""
        return f"{list(variable.shape)} in the model, {self._shapes[key]} in the checkpoint"

    def tensor(self, key: str) -> np.ndarray:
        """Returns the value of a key."""
        return self._reader.get_tensor(key)


def _names(model: tf_keras.Model, variables: Sequence[tf.Variable]) -> dict[int, str]:
    known = variable_names(model)
    return {
        id(variable): known.get(id(variable), variable_name(variable)) for variable in variables
    }


def _ignored_variables(
    patterns: Sequence[str],
    variables: Sequence[tf.Variable],
    names: dict[int, str],
) -> set[int]:
    """Returns the `id` of each variable that a pattern selects, by either of its names."""
    ignored: set[int] = set()
    for pattern in patterns:
        selected = {
            id(variable)
            for variable in variables
            if selects(pattern, names[id(variable)]) or selects(pattern, variable_name(variable))
        }
        if not selected:
            raise SettingError(
                _IGNORE,
                no_match_message("variable", pattern, [*names.values()]),
                code="unknown-name",
            )
        ignored |= selected
    return ignored


def _ignore_advice(model: tf_keras.Model, mismatches: dict[int, str]) -> str:
    layers = [
        named.name
        for named in named_layers(model)
        if any(id(w) in mismatches for w in named.weights)
    ]
    names = ", ".join(layers[:_MAX_SHOWN])
    return f"\nto keep the initial values of these layers, set {_IGNORE}: [{names}]"
