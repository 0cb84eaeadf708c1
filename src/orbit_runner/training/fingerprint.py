"""One number for all weights: equal numbers mean equal bits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf


def fingerprint(variables: Iterable[tf.Variable]) -> str:
    """Returns the SHA-256 over variables: name, type, shape and bytes of each, in order.

    Args:
        variables: Such as `model.variables`.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for variable in variables:
        value = np.ascontiguousarray(variable.numpy())
        digest.update(f"{variable.name}|{value.dtype.str}|{value.shape}|".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()
