"""Settings of fine-tuning: which layers are trained, from which step on, and how fast."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_runner.config.schema.base import Config, config_class, field

_PATTERNS = "patterns of layer names, such as `stage1*`"


@config_class
class LayerRate(Config):
    """The learning rate of some layers."""

    layers: list[str] = field((), help=_PATTERNS)
    factor: float = field(
        1.0, gt=0.0, le=1000.0, help="factor of the learning rate of these layers"
    )


@config_class
class Unfreeze(Config):
    """The step from which some frozen layers are trained."""

    step: int = field(1, ge=1, help="number of steps before the layers are trained")
    layers: list[str] = field((), help=_PATTERNS)


@config_class
class FineTuning(Config):
    """Which layers are trained, from which step on, and with which learning rate."""

    freeze: list[str] = field((), help=f"layers that are not trained: {_PATTERNS}")
    unfreeze: list[Unfreeze] = field((), help="frozen layers that are trained from a step on")
    learning_rates: list[LayerRate] = field(
        (), help="factors of the learning rate; the first entry that matches a layer counts"
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) for entries without patterns and layers that never froze."""
        for name in ("unfreeze", "learning_rates"):
            for index, item in enumerate(getattr(self, name)):
                if not item.layers:
                    yield f"{name}[{index}].layers", f"is not set; it needs {_PATTERNS}"
        if self.unfreeze and not self.freeze:
            yield "unfreeze", "no layer is frozen, because freeze is not set"
