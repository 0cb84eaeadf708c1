"""The config of the network for ratings."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.base import Config, config_class, field


@config_class
class NeuMFConfig(Config):
    """GMF and MLP; with the fields of Model Garden's NCF flags."""

    name: str = field("", help="name of the model; `runner list` shows all")
    mf_dim: int = field(8, ge=1, le=65536, help="width of the GMF embeddings")
    layers: list[int] = field(
        (64, 32, 16, 8),
        ge=1,
        le=65536,
        help="widths of the MLP's input (user and item embeddings concatenated) and of its layers",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields widths that two embeddings cannot have."""
        if not self.layers or self.layers[0] % 2:
            got = list(self.layers)
            message = f"got {got}, expected an even number first, for two equal embeddings"
            yield Problem("layers", message, code="not-divisible")
