"""Turns errors of TensorFlow that a setting causes into messages about that setting."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from orbit_runner.checkpoint.disk_errors import describe_disk_problem
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.tfrecord.bad_record import add_offset, find_bad_record
from orbit_runner.errors import DataError, SettingError, shorten

TRAIN_DATA = "train_data"
VALIDATION_DATA = "validation_data"
# What CUDA and copies to a GPU report in place of a `ResourceExhaustedError`.
_NO_GPU_MEMORY = re.compile(
    r"CUDA_ERROR_OUT_OF_MEMORY|Status: out of memory|Dst tensor is not initialized"
)
# Matches what `data/tfrecord/pipeline.py` reports about a bad record.
_BAD_RECORD = re.compile(r"(?:could not correctly convert string|assertion failed): \[?(.*\S: .*)")
_IN_RECORDS = re.compile(r": record \d+ |: has changed since its records were counted")
_UNCOMPILED = re.compile(r"Detected unsupported operations when trying|tf2xla conversion failed")
# What TensorFlow writes around a reason: the number of the error, the node, the function, the op.
_PLACE = re.compile(
    r"^\s*(\(\d+\) \w+: *)?(\{\{.*?\}\} ?)?|Error in user-defined .*?Iterator::\S+: |\s*\[Op:.*$"
)
_NO_REASON = re.compile(
    r"Graph execution error|Detected at|<stack traces|\[\[|File |\(|\d+ root error|$"
)


@contextlib.contextmanager
def error_message_scope(config: ExperimentConfig, section: str = TRAIN_DATA) -> Iterator[None]:
    """Raises SettingError or DataError for errors of a `with` block that have a known cause.

    `section` is the data section that is used.
    """
    try:
        yield
    except UnicodeDecodeError as error:
        # TensorFlow's message contains the record, which Python cannot decode.
        _raise_bad_example(bytes(error.object).decode(errors="replace"), error)
        raise
    except tf.errors.OpError as error:
        if _is_out_of_memory(error):
            raise _batch_error(error, config, section) from error
        problem = _setting_error(error)
        if problem is not None:
            raise problem from error
        if isinstance(error, (tf.errors.InvalidArgumentError, tf.errors.DataLossError)):
            _raise_bad_example(str(error), error)
            _raise_bad_element(error, config, section)
        raise


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return not describe_disk_problem(error)
    return isinstance(error, tf.errors.OpError) and bool(_NO_GPU_MEMORY.search(str(error)))


def _batch_error(error: Exception, config: ExperimentConfig, section: str) -> SettingError:
    """Returns the error for a batch that needs more memory than there is."""
    data = getattr(config.task, section, None)
    names = ["global_batch_size"]
    advice = "try a smaller batch"
    if section == TRAIN_DATA:
        names.insert(0, "batch_tokens")
        advice += ", or a larger trainer.gradient_accumulation_steps: the same batch in parts"
    name = next((name for name in names if getattr(data, name, None)), "")
    got = f"got {getattr(data, name)}: " if name else ""
    return SettingError(
        f"task.{section}.{name}" if name else "task",
        f"{got}out of memory: {_reason(error, 'OOM|memory|allocate')}\n{advice}",
        code="out-of-memory",
    )


def _setting_error(error: tf.errors.OpError) -> SettingError | None:
    """Returns the error for an op that XLA or determinism does not support; None for others."""
    text = str(error)
    if _UNCOMPILED.search(text):
        return SettingError(
            "runtime.enable_xla",
            f"XLA cannot compile the step: {_reason(error)}\nset it to false",
            code="not-supported",
        )
    if not isinstance(error, tf.errors.UnimplementedError) or "determinis" not in text.lower():
        return None
    return SettingError(
        "runtime.deterministic",
        f"an op has no deterministic kernel on this device: {_reason(error, 'determinis')}\n"
        "set runtime.enable_xla to true, remove the layer, or set runtime.deterministic to false: "
        "then the same config may give other weights",
        code="not-supported",
    )


def _raise_bad_example(message: str, error: Exception) -> None:
    """Raises DataError if an error is about an example."""
    named = _BAD_RECORD.search(message)
    problem = add_offset(named[1].rstrip("]")) if named else find_bad_record(message)
    if problem:
        field = "input_path" if _IN_RECORDS.search(problem) else "data_dir"
        raise DataError(problem, field=field, code="bad-record") from error


def _raise_bad_element(error: tf.errors.OpError, config: ExperimentConfig, section: str) -> None:
    """Raises SettingError if the input pipeline of a Model Garden task cannot make an element."""
    if not config.is_official or "IteratorGetNext" not in str(error):
        return
    path = f"task.{section}"
    data = getattr(config.task, section, None)
    name = next((f".{n}" for n in ("input_path", "tfds_name") if getattr(data, n, None)), "")
    raise SettingError(
        f"{path}{name}",
        f"an example cannot be read: {shorten(_reason(error))}\ncorrect or remove it",
        code="bad-record",
    ) from error


def _reason(error: BaseException, words: str = "") -> str:
    """Returns the first line that says why, if possible one that matches a pattern."""
    lines = (_PLACE.sub("", line).strip() for line in str(error).splitlines())
    reasons = [line[:200] for line in lines if not _NO_REASON.match(line)]
    matching = (line for line in reasons if re.search(words, line))
    return next(matching, reasons[0] if reasons else type(error).__name__)
