"""Turns errors of TensorFlow that a setting causes into messages about that setting."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import flat_settings, inline_yaml, plain_value
from orbit_runner.data.tfrecord.bad_record import add_offset, find_bad_record
from orbit_runner.errors import DataError, SettingError, shorten
from orbit_runner.train.memory_errors import (
    GPU_ADVICE,
    TRAIN_DATA,
    is_out_of_memory,
    memory_error_scope,
)

# Matches what `data/tfrecord/pipeline.py` reports about a bad record.
_BAD_RECORD = re.compile(r"(?:could not correctly convert string|assertion failed): \[?(.*\S: .*)")
_UNCOMPILED = re.compile(
    r"Detected unsupported operations when trying to compile graph .*? on \S+: (\w+)"
    r"|tf2xla conversion failed"
)
# The op that an error names, and the scopes in its name that are not layers.
_NODE = re.compile(r"\{\{(?:function_)?node ([^{}\s]+)\}\}")
_NO_LAYER = re.compile(r"gradient_tape|while|body|cond|replica_\d+|\w*PartitionedCall\w*|_\d+")
_UNKNOWN_ACTIVATION = re.compile(r"Unknown activation function '(.+?)'")
_TOO_LARGE = re.compile(r"would have more than 2\*\*63 - 1 elements|[Oo]verflow")
_SHAPE = re.compile(r"[Ss]hape ?(\[[0-9, ]+\])")
# What TensorFlow writes before the reason for which an element cannot be made.
_PIPELINE_PLACE = re.compile(
    r"\{\{function_node [^{}]*\}\} ?|Error in user-defined .*?Iterator::\S+: "
)
_NO_REASON = ("Graph execution error", "Detected at", "<stack traces", "[[", "File ", "(")
_IMAGE_ERROR = re.compile(r"JPEG|PNG|GIF|BMP|Decode(?:AndCrop)?(?:Jpeg|Png|Image)|decode_image")
_IN_RECORDS = re.compile(r": record \d+ |: has changed since its records were counted")


@contextlib.contextmanager
def error_message_scope(
    config: ExperimentConfig,
    section: str = TRAIN_DATA,
    *,
    replicas: int = 1,
    step: Callable[[], int] = lambda: 0,
) -> Iterator[None]:
    """Raises SettingError or DataError for errors of a `with` block that have a known cause.

    Args:
        config: The experiment.
        section: The data section that is used: `train_data` or `validation_data`.
        replicas: The number of replicas that share a batch.
        step: Returns the current global step.
    """
    try:
        with memory_error_scope(config, section, replicas=replicas, step=step):
            yield
    except tf.errors.UnimplementedError as error:
        _raise_uncompiled(error)
        line = _find_line(error, "determinis")
        if not line:
            raise
        raise SettingError(
            "runtime.deterministic",
            f"{_describe_op(error)} has no deterministic kernel on this device: {line}\n"
            "set runtime.enable_xla to true, remove the layer, or set runtime.deterministic to "
            "false: then the same config may give other weights",
            code="not-supported",
        ) from error
    except tf.errors.InvalidArgumentError as error:
        _raise_uncompiled(error)
        _raise_bad_example(str(error), step, error)
        _raise_bad_element(error, config, section)
        raise
    except tf.errors.DataLossError as error:
        _raise_bad_example(str(error), step, error)
        _raise_bad_element(error, config, section)
        raise
    except UnicodeDecodeError as error:
        # TensorFlow's message contains the record, which Python cannot decode.
        _raise_bad_example(bytes(error.object).decode(errors="replace"), step, error)
        raise


@contextlib.contextmanager
def model_error_scope(config: ExperimentConfig) -> Iterator[None]:
    """Raises SettingError if a model in a `with` block has a known problem.

    It may have an unknown activation, or need more memory than there is.
    """
    try:
        yield
    except (tf.errors.OpError, MemoryError) as error:
        too_large = isinstance(error, tf.errors.InvalidArgumentError) and _TOO_LARGE.search(
            str(error)
        )
        if not (too_large or isinstance(error, MemoryError) or is_out_of_memory(error)):
            raise
        shape = match[1] if (match := _SHAPE.search(str(error))) else ""
        raise SettingError(
            _find_size_setting(config, shape),
            f"the model does not fit into memory{f': a tensor of shape {shape}' if shape else ''}\n"
            "make its layers smaller, or use a machine with more memory"
            + (f"\n{GPU_ADVICE}" if config.runtime.num_gpus else ""),
            code="out-of-memory",
        ) from error
    except ValueError as error:
        name = match[1] if (match := _UNKNOWN_ACTIVATION.search(str(error))) else ""
        paths = [path for path, value in flat_settings(config).items() if name and value == name]
        if not paths:
            raise
        raise SettingError(
            paths[0],
            f"unknown activation {name!r}\nallowed: Keras activations, such as relu or gelu",
            code="unknown-name",
        ) from error


def _find_size_setting(config: ExperimentConfig, shape: str) -> str:
    """Returns the path of the setting that is the largest dimension of a shape, or `task.model`."""
    largest = max(map(int, re.findall(r"[0-9]+", shape)), default=0)
    numbers = _numbers(flat_settings(config), "")
    paths = (path for path, number in numbers if largest and number == largest)
    return next((path for path in paths if path.startswith("task.model")), "task.model")


def _numbers(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yields the numbers in settings with their paths."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _numbers(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _numbers(item, f"{path}[{index}]")
    else:
        yield path, value


def _raise_bad_example(message: str, step: Callable[[], int], error: Exception) -> None:
    """Raises DataError if an error is about an example."""
    named = _BAD_RECORD.search(message)
    problem = add_offset(named[1].rstrip("]")) if named else find_bad_record(message, step())
    if problem:
        field = "input_path" if _IN_RECORDS.search(problem) else "data_dir"
        raise DataError(problem, field=field, code="bad-record") from error


def _raise_bad_element(error: tf.errors.OpError, config: ExperimentConfig, section: str) -> None:
    """Raises SettingError if the input pipeline of a Model Garden task cannot make an element."""
    message = str(error)
    if not config.is_official or "IteratorGetNext" not in message:
        return
    data = getattr(config.task, section, None)
    path = f"task.{section}"
    name = next((n for n in ("input_path", "tfds_name") if getattr(data, n, None)), "")
    if name:
        files = getattr(data, name)
        of = f"of {files if isinstance(files, str) else inline_yaml(plain_value(files))} "
    else:
        of = ""
    lines = (_PIPELINE_PLACE.sub("", line).strip() for line in message.splitlines())
    reason = next((line for line in lines if line and not line.startswith(_NO_REASON)), "")
    advice = "correct the record, or remove it"
    if _IMAGE_ERROR.search(message) and getattr(data, "decode_jpeg_only", False):
        advice = (
            f"the task decodes only JPEG images; set {path}.decode_jpeg_only to false to decode "
            "PNG, GIF and BMP images, too, or write JPEG images"
        )
    raise SettingError(
        f"{path}.{name}" if name else path,
        f"an example {of}cannot be read: {shorten(reason)}\n{advice}",
        code="bad-record",
    ) from error


def _raise_uncompiled(error: Exception) -> None:
    """Raises SettingError if XLA could not compile a step."""
    uncompiled = _UNCOMPILED.search(str(error))
    if uncompiled:
        line = _find_line(error, "support") or _find_line(error, "implementation")
        reason = uncompiled[1] or line or "an op is not supported"
        raise SettingError(
            "runtime.enable_xla",
            f"XLA cannot compile the step: {reason}\nset it to false",
            code="not-supported",
        ) from error


def _describe_op(error: Exception) -> str:
    """Returns the op that an error names, and the scopes in its name, such as its layer."""
    node = _NODE.search(str(error))
    if node is None:
        return "an op of the model"
    *scopes, op = node[1].split("/")
    layers = "/".join(scope for scope in scopes if not _NO_LAYER.fullmatch(scope))
    return f"op {op} in {layers}" if layers else f"op {op}"


def _find_line(error: Exception, word: str) -> str:
    lines = (line.strip() for line in str(error).splitlines() if line.strip())
    return next((line[:200] for line in lines if word.lower() in line.lower()), "")
