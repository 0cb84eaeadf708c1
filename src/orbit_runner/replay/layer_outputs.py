"""The outputs of the layers in a step: their range, and the arrays of some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.replay.examination import LayerOutput


class LayerOutputs:
    """Collects the outputs of layers over all replicas; keeps the arrays of `kept_layers`."""

    def __init__(self, kept_layers: Sequence[str]) -> None:
        self._kept_arrays = {name: list[np.ndarray]() for name in kept_layers}
        self._parts: dict[str, list[_Part]] = {}

    def add(self, layer: str, outputs: Any) -> None:
        """Adds the result of a call of a layer; of several tensors, only the first one counts."""
        found = (one for one in tf.nest.flatten(outputs) if hasattr(one, "numpy"))
        output = next((one for one in found if one.dtype.is_floating), None)
        if output is None:
            return
        value = output.numpy()
        self._parts.setdefault(layer, []).append(_Part(value))
        if layer in self._kept_arrays:
            self._kept_arrays[layer].append(value)

    def summaries(self) -> list[LayerOutput]:
        """Returns the outputs of all layers that were called."""
        return [_merge_parts(layer, parts) for layer, parts in self._parts.items()]

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the outputs of the layers to keep; those of several calls are concatenated."""
        found = {}
        for layer, values in self._kept_arrays.items():
            if values:
                alike = values[0].ndim and len({one.shape[1:] for one in values}) == 1
                found[f"{layer}/output"] = np.concatenate(values) if alike else values[0]
        return found


class _Part:
    """The range of an output. Half precision is read as float32."""

    def __init__(self, value: np.ndarray) -> None:
        wide = value if value.dtype in (np.float32, np.float64) else value.astype(np.float32)
        finite = np.isfinite(wide)
        good = wide[finite] if not finite.all() else wide
        self.shape, self.size = value.shape, int(good.size)
        self.non_finite = int(wide.size - good.size)
        self.sum = float(good.sum(dtype=np.float64)) if good.size else 0.0
        self.min = float(good.min()) if good.size else None
        self.max = float(good.max()) if good.size else None


def _merge_parts(layer: str, parts: Sequence[_Part]) -> LayerOutput:
    size = sum(part.size for part in parts)
    return LayerOutput(
        layer=layer,
        shape=parts[0].shape,
        mean=sum(part.sum for part in parts) / size if size else None,
        min=min((part.min for part in parts if part.min is not None), default=None),
        max=max((part.max for part in parts if part.max is not None), default=None),
        non_finite=sum(part.non_finite for part in parts),
    )
