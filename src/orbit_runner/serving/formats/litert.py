"""LiteRT (TensorFlow Lite): float32, float16 weights, and int8 with calibration."""

from __future__ import annotations

import contextlib
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.errors import RunnerError, first_line
from orbit_runner.serving.export_directory import LITERT_FLOAT16, LITERT_INT8
from orbit_runner.serving.network import Network, NumpyFunction
from orbit_runner.tasks.serving import DEFAULT_SIGNATURE
from orbit_runner.utils.streams import discard_native_output_scope

# The converter lists the ops that LiteRT lacks, and those that need TensorFlow's kernels.
_OPS = re.compile(r"^(?:TF Select|Flex|Custom) ops: (.+)$", re.M)
_OP = re.compile(r"'?tf\.(\w+)'? op is neither")
_MOST_OPS = 8
PREFIX = "litert"  # of the names of the formats


def write(network: Network, path: Path, name: str, features: Iterable[Any]) -> None:
    """Writes a network for batches of one example. `name` is the name of the format.

    `features` are those of single examples, to calibrate int8. Inputs and outputs are float32 or
    integers, as those of the network. Raises `RunnerError` if LiteRT lacks an op.
    """
    with tempfile.TemporaryDirectory() as folder, _quiet_scope():
        try:
            network.save(Path(folder), batch=1)
            converter = tf.lite.TFLiteConverter.from_saved_model(
                folder, signature_keys=[DEFAULT_SIGNATURE]
            )
            if name in (LITERT_FLOAT16, LITERT_INT8):
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
            if name == LITERT_FLOAT16:
                converter.target_spec.supported_types = [tf.float16]
            if name == LITERT_INT8:
                converter.representative_dataset = lambda: _representative_dataset(
                    network, features
                )
            path.write_bytes(converter.convert())
        except (OSError, RunnerError):
            raise
        except Exception as error:  # The converter raises errors of several kinds.
            raise RunnerError(
                f"the network cannot be converted: {_describe_error(error)}"
            ) from error


def load(path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> NumpyFunction:
    """Loads a file with the interpreter of LiteRT. `inputs` and `outputs` are the names."""
    with _quiet_scope():
        interpreter = _interpreter(path)
    runner = interpreter.get_signature_runner(DEFAULT_SIGNATURE)

    def run(values: Sequence[np.ndarray]) -> list[np.ndarray]:
        found = []
        for row in range(len(values[0])):
            given = {n: v[row : row + 1] for n, v in zip(inputs, values, strict=True)}
            answer = runner(**given)
            found.append([answer[name] for name in outputs])
        return [np.concatenate(parts) for parts in zip(*found, strict=True)]

    return run


def _interpreter(path: Path) -> Any:
    try:
        # TensorFlow's own copy is deprecated.
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
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
    network: Network, features: Iterable[Any]
) -> Iterator[dict[str, np.ndarray]]:
    for one in features:
        values = [value.numpy() for value in tf.nest.flatten(one)]
        yield dict(zip(network.inputs, values, strict=True))


def _describe_error(error: Exception) -> str:
    """Returns the ops that do not convert, without the dump of the graph around them."""
    text = str(error)
    found = [part.strip() for match in _OPS.findall(text) for part in match.split(",")]
    ops = [*dict.fromkeys([*found, *_OP.findall(text)])]
    if not ops:
        return first_line(error)
    more = f" and {len(ops) - _MOST_OPS} more" if len(ops) > _MOST_OPS else ""
    return f"LiteRT lacks {', '.join(ops[:_MOST_OPS])}{more}"
