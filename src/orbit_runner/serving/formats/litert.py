"""LiteRT (TensorFlow Lite): float32, float16 weights, and int8 with calibration."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.errors import RunnerError, first_line
from orbit_runner.serving.formats.base import NetworkFormat
from orbit_runner.tasks.serving import DEFAULT_SIGNATURE
from orbit_runner.utils.streams import discard_native_output_scope

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    from orbit_runner.serving.network import Network, NumpyFunction
    from orbit_runner.utils.types import Tensors

# The converter lists the ops that LiteRT lacks, and those that need TensorFlow's kernels.
_OPS = re.compile(r"^(?:TF Select|Flex|Custom) ops: (.+)$", re.M)
_OP = re.compile(r"'?tf\.(\w+)'? op is neither")
_MOST_OPS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class LiteRT(NetworkFormat):
    """A LiteRT file, whose inputs and outputs are float32 or integers, as those of the network.

    Attributes:
        weights: The type of the weights.
    """

    file: str = "model.tflite"
    batch: int | None = 1
    weights: str = "float32"

    def write(self, network: Network, path: Path, features: Iterable[Tensors]) -> None:
        """Writes a network. Raises `RunnerError` if LiteRT lacks an op."""
        with tempfile.TemporaryDirectory() as directory, _quiet_scope():
            try:
                network.save(Path(directory), batch=1)
                path.write_bytes(self._converter(directory, network, features).convert())
            except (OSError, RunnerError):
                raise
            except Exception as error:  # The converter raises errors of several kinds.
                raise RunnerError(
                    f"the network cannot be converted: {_describe_error(error)}",
                    code="export-failed",
                ) from error

    def load(self, path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> NumpyFunction:
        """Loads a file with the interpreter of LiteRT."""
        import numpy as np

        with _quiet_scope():
            interpreter = _interpreter(path)
        runner = interpreter.get_signature_runner(DEFAULT_SIGNATURE)

        def run(values: Sequence[np.ndarray]) -> list[np.ndarray]:
            answers = []
            for row in range(len(values[0])):
                feeds = {n: v[row : row + 1] for n, v in zip(inputs, values, strict=True)}
                answer = runner(**feeds)
                answers.append([answer[name] for name in outputs])
            return [np.concatenate(parts) for parts in zip(*answers, strict=True)]

        return run

    def _converter(
        self, directory: str, network: Network, features: Iterable[Tensors]
    ) -> tf.lite.TFLiteConverter:
        import tensorflow as tf

        converter = tf.lite.TFLiteConverter.from_saved_model(
            directory, signature_keys=[DEFAULT_SIGNATURE]
        )
        if self.weights != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if self.weights == "float16":
            converter.target_spec.supported_types = [tf.float16]
        if self.is_calibrated:
            converter.representative_dataset = lambda: _representative_dataset(network, features)
        return converter


FLOAT32 = LiteRT(name="litert", tolerance=1e-3)
FLOAT16 = LiteRT(name="litert_float16", tolerance=1e-2, weights="float16")
# One percentage point of an accuracy.
INT8 = LiteRT(
    name="litert_int8", tolerance=0.2, metric_tolerance=0.01, weights="int8", is_calibrated=True
)


def _interpreter(path: Path) -> Interpreter:
    try:
        # TensorFlow's own copy is deprecated.
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        import tensorflow as tf

        Interpreter = tf.lite.Interpreter
    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    return interpreter


@contextlib.contextmanager
def _quiet_scope() -> Iterator[None]:
    """Discards the messages of native code, and a deprecation warning."""
    with discard_native_output_scope(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _representative_dataset(
    network: Network, features: Iterable[Tensors]
) -> Iterator[dict[str, np.ndarray]]:
    import tensorflow as tf

    for example in features:
        values = [value.numpy() for value in tf.nest.flatten(example)]
        yield dict(zip(network.inputs, values, strict=True))


def _describe_error(error: Exception) -> str:
    """Returns the ops that do not convert, without the dump of the graph around them."""
    text = str(error)
    listed_ops = [part.strip() for match in _OPS.findall(text) for part in match.split(",")]
    ops = [*dict.fromkeys([*listed_ops, *_OP.findall(text)])]
    if not ops:
        return first_line(error)
    more = f" and {len(ops) - _MOST_OPS} more" if len(ops) > _MOST_OPS else ""
    return f"LiteRT lacks {', '.join(ops[:_MOST_OPS])}{more}"
