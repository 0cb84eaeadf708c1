"""ONNX, with tf2onnx and onnxruntime, which the extra `onnx` installs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orbit_runner.errors import RunnerError, first_line
from orbit_runner.serving.network import Network, NumpyFunction
from orbit_runner.utils.streams import discard_native_output_scope

_OPSET = 18


def write(network: Network, path: Path) -> None:
    """Writes a network for batches of any size. Raises `RunnerError` if ONNX lacks an op."""
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
        raise RunnerError(f"the network cannot be converted: {first_line(error)}") from error


def load(path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> NumpyFunction:
    """Loads a file with ONNX Runtime on the CPU. `inputs` and `outputs` are the names."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(values: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = dict(zip(inputs, values, strict=True))
        return list(session.run(list(outputs), given))

    return run
