"""`run.json`: the command, the environment and the outcome of a run."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.determinism.numerics_record import available_cores, version_of
from orbit_runner.utils.files import (
    read_json_object,
    set_aside,
    timestamp,
    to_jsonable,
    write_atomically,
)
from orbit_runner.version import __version__

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_PACKAGES = ("tensorflow", "tf_keras", "tf-models-official", "gin-config", "numpy", "PyYAML")


def describe_software() -> dict[str, object]:
    """Returns the versions of the packages and of the platform."""
    return {
        "orbit_runner": __version__,
        "python": platform.python_version(),
        **{name: version_of(name) for name in _PACKAGES},
        "platform": platform.platform(),
    }


def describe_devices() -> dict[str, object]:
    """Returns the devices that TensorFlow sees; imports TensorFlow."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    names = [tf.config.experimental.get_device_details(gpu).get("device_name", "") for gpu in gpus]
    return {
        "physical_devices": [device.name for device in tf.config.list_physical_devices()],
        "gpus": names,
        "cpu_cores": tf.config.threading.get_intra_op_parallelism_threads() or available_cores(),
    }


class RunRecord:
    """Writes `run.json` of a run; a resumed run adds an attempt to it.

    If `path` is None, writes nothing. `note` is called with a warning if an existing file is not a
    valid record.
    """

    def __init__(
        self,
        path: Path | None,
        argv: Sequence[str],
        mode: str,
        seed: int,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._path = path
        self._earlier_attempts = _attempts(path, note) if path else []
        self._attempt: dict[str, object] = {
            "argv": list(argv),
            "mode": mode,
            "seed": seed,
            "started": timestamp(),
            "software": describe_software(),
            "command": sys.executable,
        }

    def update(self, **values: object) -> None:
        """Adds JSON-compatible values to this attempt and writes the record."""
        self._attempt.update(values)
        if self._path is None:
            return
        attempts = [*self._earlier_attempts, self._attempt]
        write_atomically(
            self._path, json.dumps(to_jsonable({"attempts": attempts}), indent=2) + "\n"
        )

    def finish(self, outcome: str, **values: object) -> None:
        """Records how this attempt ended: `done`, `left` or an error message, and other values."""
        self.update(finished=timestamp(), outcome=outcome, **values)


def _attempts(path: Path, note: Callable[[str], None]) -> list[JsonObject]:
    if not os.path.lexists(path):
        return []
    try:
        attempts = read_json_object(path)["attempts"]
        if isinstance(attempts, list) and all(isinstance(attempt, dict) for attempt in attempts):
            return attempts
        problem = "it contains no list of attempts"
    except KeyError:
        problem = "it contains no list of attempts"
    except OSError as error:
        problem = error.strerror or str(error)  # The note names the file.
    except ValueError as error:
        problem = str(error)
    note(f"warning: {path} cannot be read ({problem}); moved to {set_aside(path)}")
    return []
