"""ONNX, with tf2onnx and onnxruntime, which the extra `onnx` installs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.errors import RunnerError, first_line
from orbit_runner.serving.formats.base import NetworkFormat
from orbit_runner.utils.streams import discard_native_output_scope

if TYPE_CHECKING:
    import numpy as np

    from orbit_runner.serving.network import Network, NumpyFunction
    from orbit_runner.utils.types import Tensors

_OPSET = 18


class Onnx(NetworkFormat):
    """An ONNX file."""

    def write(self, network: Network, path: Path, features: Iterable[Tensors]) -> None:
        """Writes a network. Raises `RunnerError` if ONNX lacks an op."""
        import tf2onnx

        try:
            function = network.function(None)
            with discard_native_output_scope():
                tf2onnx.convert.from_function(
                    function,
                    input_signature=list(function.input_signature),
                    opset=_OPSET,
                    output_path=str(path),
                )
        except OSError:
            raise
        except Exception as error:  # The converter raises errors of several kinds.
            raise RunnerError(
                f"the network cannot be converted: {first_line(error)}", code="export-failed"
            ) from error

    def load(self, path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> NumpyFunction:
        """Loads a file with ONNX Runtime on the CPU."""
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

        def run(values: Sequence[np.ndarray]) -> list[np.ndarray]:
            feeds = dict(zip(inputs, values, strict=True))
            return list(session.run(list(outputs), feeds))

        return run


FORMAT = Onnx(name="onnx", file="model.onnx", packages=("tf2onnx", "onnxruntime"), tolerance=1e-3)
