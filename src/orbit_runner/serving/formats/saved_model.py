"""SavedModel: the signatures of the task, which TensorFlow loads without this package."""

from __future__ import annotations

from collections.abc import Callable
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

    from orbit_runner.utils.types import JsonObject

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


def describe(serving: Serving) -> JsonObject:
    """Returns inputs and outputs of the signatures by name, and which one is the default."""
    from orbit_runner.serving.network import describe_function

    signatures = serving.signatures.items()
    described = {name: describe_function(function) for name, function in signatures}
    return {"signatures": described, "default": serving.default}
