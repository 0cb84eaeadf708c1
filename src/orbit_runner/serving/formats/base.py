"""`ExportFormat`: what a format of exports declares about itself. Imports no TensorFlow.

The modules of this package each contain a format, and import TensorFlow inside functions. To add
one, add its module and a line to `registry.EXPORT_FORMATS`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.registry import EXPORT_FORMATS

if TYPE_CHECKING:
    import tf_keras

    from orbit_runner.serving.network import Network, NumpyFunction
    from orbit_runner.utils.types import Tensors


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """A format of exports.

    Attributes:
        name: The name in `trainer.export_formats` and `--format`.
        file: The file in the directory of an export that has the model.
        packages: What it imports and the runner does not install. The extra of the same name as the
            format installs them.
    """

    name: str
    file: str
    packages: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkFormat(ExportFormat, abc.ABC):
    """A format for the network alone, without the signatures of the task.

    Attributes:
        tolerance: The largest difference of an output, in units of the largest output.
        metric_tolerance: The largest degradation of the metric, which then decides in place of the
            outputs if the task has a metric; None if the outputs always decide.
        batch: The size of the batches that the network in the file takes; None for any.
        is_calibrated: Whether training examples determine the ranges of its numbers.
        loads_keras_model: Whether `load` returns a Keras model.
    """

    tolerance: float
    metric_tolerance: float | None = None
    batch: int | None = None
    is_calibrated: bool = False
    loads_keras_model: bool = False

    @abc.abstractmethod
    def write(self, network: Network, path: Path, features: Iterable[Tensors]) -> None:
        """Writes a network to a file. The same network gives the same bytes.

        `features` are those of single training examples. Raises `RunnerError` if the format does
        not support the network.
        """

    @abc.abstractmethod
    def load(
        self, path: Path, inputs: Sequence[str], outputs: Sequence[str]
    ) -> NumpyFunction | tf_keras.Model:
        """Returns the function of a file: a `NumpyFunction`, or a Keras model.

        `inputs` and `outputs` are the names, in the order of the arrays of the function.
        """


def export_formats() -> dict[str, ExportFormat]:
    """Returns all formats by name, SavedModel first."""
    return {entry.name: entry.load() for entry in EXPORT_FORMATS.registered()}


def network_formats() -> dict[str, NetworkFormat]:
    """Returns the formats for the network alone by name."""
    formats = export_formats().items()
    return {name: format for name, format in formats if isinstance(format, NetworkFormat)}
