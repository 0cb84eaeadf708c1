"""Configures what determines the bits of a result: seeds, determinism, threads, precision."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.determinism import keras_3, portable_ops
from orbit_runner.determinism.portable import set_portable_variables
from orbit_runner.determinism.portable_ops import use_portable_ops
from orbit_runner.errors import SettingError
from orbit_runner.tf_internals import (
    disable_op_determinism,
    eager_generator,
    is_op_determinism_enabled,
    keras_generator,
    set_eager_generator,
    set_keras_generator,
)

_POLICIES = {"float32": "float32", "float16": "mixed_float16", "bfloat16": "mixed_bfloat16"}


def configure_numerics(runtime: RuntimeConfig, *, require_threads: bool = True) -> None:
    """Sets threads, determinism, eager mode and precision for this process.

    Must be called before the first op, because the numbers of threads cannot change later. If
    TensorFlow has already started with other numbers, raises `SettingError`, unless
    `require_threads` is False. Training requires them, because they affect the bits of the weights,
    and with portable numerics, the variables that TensorFlow reads when it is imported.
    """
    if require_threads:
        set_portable_variables(runtime)
    for kind in ("intra_op", "inter_op"):
        with contextlib.nullcontext() if require_threads else contextlib.suppress(SettingError):
            _set_threads(runtime, kind)
    if runtime.deterministic:
        tf.config.experimental.enable_op_determinism()
    tf.config.run_functions_eagerly(runtime.run_eagerly)
    use_portable_ops(runtime.is_portable)
    policy = _POLICIES[runtime.mixed_precision_dtype or "float32"]
    tf_keras.mixed_precision.set_global_policy(policy)
    if keras_3.is_imported():
        keras_3.configure()


def _set_threads(runtime: RuntimeConfig, kind: str) -> None:
    name = f"{kind}_threads"
    count = getattr(runtime, name)
    threading = tf.config.threading
    if runtime.is_portable and kind == "intra_op":
        count = 1
    if not count:
        return
    try:
        getattr(threading, f"set_{kind}_parallelism_threads")(count)
    except RuntimeError as error:
        started = getattr(threading, f"get_{kind}_parallelism_threads")()
        raise SettingError(
            f"runtime.{name}",
            f"got {count}, but TensorFlow has already started in this process with {started} "
            "(0: its default)\n"
            "it must be set before the first op: start a new process, or set it to 0",
            code="too-late",
        ) from error


def reset_keras() -> None:
    """Clears the Keras state of earlier runs. Must be called before a task is created."""
    tf_keras.backend.clear_session()


def seed_everything(seed: int, *, keep_objects: bool = False) -> None:
    """Seeds Python, NumPy, TensorFlow and Keras. Must be called right before a model is built.

    If `keep_objects` is True, objects that the task has already created stay valid. Otherwise,
    setting TensorFlow's seed deletes its kernels, and with them resources such as tokenizers.
    """
    keras_3.reset()
    if not keep_objects:
        tf_keras.backend.clear_session()
        tf_keras.utils.set_random_seed(seed)
        return
    tf_keras.backend.reset_uids()  # so that layers are named as in any other process
    random.seed(seed)
    np.random.seed(seed % 2**32)
    set_keras_generator(random.Random(seed))
    set_tensorflow_seed(seed)


@contextlib.contextmanager
def restored_generators_scope() -> Iterator[None]:
    """Lets a `with` block seed Python, NumPy, TensorFlow and Keras, and restores their generators.

    Unlike in `unchanged_generators_scope`, the block begins with the generators of the caller.
    """
    python = random.getstate()
    arrays = np.random.get_state()
    seed, rng = eager_generator()
    state = None if rng is None else rng.getstate()
    keras = keras_generator()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
        if rng is None or state is None:
            set_eager_generator(seed, None)
        elif eager_generator()[1] is not rng:
            rng.setstate(state)
            set_eager_generator(seed, rng)
        set_keras_generator(keras)


@contextlib.contextmanager
def unchanged_generators_scope() -> Iterator[None]:
    """Restores the random generators of Python, NumPy and TensorFlow after a `with` block."""
    with restored_generators_scope():
        seed, _ = eager_generator()
        # Not a copy: ops with equal seeds share a kernel, whose state cannot be restored.
        set_eager_generator(seed, random.Random(f"other than {seed}"))
        yield


@contextlib.contextmanager
def restored_process_scope() -> Iterator[None]:
    """Restores the generators and what `configure_numerics` sets after a `with` block.

    Numbers of threads and virtual devices stay: TensorFlow cannot change them once it has started.
    """
    is_deterministic = is_op_determinism_enabled()
    is_eager = tf.config.functions_run_eagerly()
    policy = tf_keras.mixed_precision.global_policy()
    is_portable = portable_ops.is_enabled()
    try:
        with restored_generators_scope(), keras_3.restored_scope():
            yield
    finally:
        if not is_deterministic:
            disable_op_determinism()
        tf.config.run_functions_eagerly(is_eager)
        tf_keras.mixed_precision.set_global_policy(policy)
        use_portable_ops(is_portable)


def set_tensorflow_seed(seed: int) -> None:
    """Sets the eager seed as `tf.random.set_seed` does, but keeps the kernels."""
    set_eager_generator(seed, random.Random(seed))
