"""SavedModel: the signatures of the task, which TensorFlow loads without this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.config.schema.trainer import SAVED_MODEL
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.serving.formats.base import ExportFormat
from orbit_runner.storage.paths import readable_path
from orbit_runner.tasks.serving import DEFAULT_SIGNATURE, Serving

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

# The directory for files that TensorFlow itself does not read.
EXTRA = "assets.extra"
FORMAT = ExportFormat(name=SAVED_MODEL, file="saved_model.pb")
_TEXT_OP = b"TFText>"  # The prefix of the names of the ops of TensorFlow Text.


def write(model: tf_keras.Model, serving: Serving, path: Path) -> None:
    """Writes the directory of a SavedModel. Raises `RunnerError` if the model cannot be saved."""
    import tensorflow as tf

    from orbit_runner.serving.network import track_values

    root = tf.Module()
    track_values(root, model)
    root.resources = list(serving.resources)
    signatures = dict(serving.signatures)
    signatures[DEFAULT_SIGNATURE] = signatures[serving.default]
    try:
        tf.saved_model.save(root, str(path), signatures=signatures)
    except (OSError, tf.errors.OpError):
        raise
    except Exception as error:  # The code of the model is traced, and may raise any error.
        raise RunnerError(
            f"{SAVED_MODEL}: the model cannot be saved: {first_line(error)}", code="export-failed"
        ) from error


def load_signatures(path: Path) -> dict[str, Callable[..., dict[str, tf.Tensor]]]:
    """Returns the signatures of a SavedModel by name.

    Each takes keyword arguments and returns a dict of tensors. Raises `RunnerError` if the model
    cannot be loaded.
    """
    import tensorflow as tf

    try:
        folder = readable_path(path)
        if _TEXT_OP in (Path(folder) / FORMAT.file).read_bytes():
            import tensorflow_text  # noqa: F401 -- registers its ops.
        return dict(tf.saved_model.load(folder).signatures)
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise RunnerError(
            f"{path} cannot be loaded: {first_line(error)}", path="WHERE", code="export-failed"
        ) from error


def describe_signatures(
    signatures: Mapping[str, tf.types.experimental.GenericFunction],
) -> dict[str, dict[str, dict[str, str]]]:
    """Returns inputs and outputs of signatures by name, as text: `uint8 [?, 8, 8, 1]`."""
    import tensorflow as tf

    from orbit_runner.serving.network import describe_spec

    descriptions = {}
    for name, function in signatures.items():
        traced = function.get_concrete_function()
        inputs = traced.structured_input_signature
        named = {spec.name: spec for spec in tf.nest.flatten(inputs)}
        descriptions[name] = {
            "inputs": {key: describe_spec(spec) for key, spec in named.items()},
            "outputs": {
                key: describe_spec(spec) for key, spec in traced.structured_outputs.items()
            },
        }
    return descriptions
