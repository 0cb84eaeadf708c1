"""What decides the bits of a result: seeds, determinism, threads, precision."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from orbit_runner.config.runtime import RuntimeConfig

_POLICIES = {"float32": "float32", "float16": "mixed_float16", "bfloat16": "mixed_bfloat16"}


def configure_numerics(runtime: RuntimeConfig) -> None:
    """Sets threads, determinism, eager mode and precision for this process.

    To be called before the first op, since threads cannot change later.

    Args:
        runtime: The settings.
    """
    if runtime.intra_op_threads:
        tf.config.threading.set_intra_op_parallelism_threads(runtime.intra_op_threads)
    if runtime.inter_op_threads:
        tf.config.threading.set_inter_op_parallelism_threads(runtime.inter_op_threads)
    if runtime.deterministic:
        tf.config.experimental.enable_op_determinism()
    tf.config.run_functions_eagerly(runtime.run_eagerly)
    policy = _POLICIES[runtime.mixed_precision_dtype or "float32"]
    tf_keras.mixed_precision.set_global_policy(policy)


def seed_everything(seed: int) -> None:
    """Seeds Python, numpy, TensorFlow and Keras; to be called right before a model is built.

    Args:
        seed: The seed.
    """
    tf_keras.backend.clear_session()
    tf_keras.utils.set_random_seed(seed)
