"""The sizes of Transformers that have names; needs no tensorflow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """One set of parameters.

    Attributes:
        embedding_width: Width of embeddings and layers, d.
        num_layers: Layers of the encoder, and of the decoder.
        num_attention_heads: Heads of each attention.
        intermediate_size: Inner width of the feed-forward layers.
        dropout_rate: Share left out behind embeddings, attention and feed-forward layers.
    """

    embedding_width: int
    num_layers: int
    num_attention_heads: int
    intermediate_size: int
    dropout_rate: float = 0.1


# Vaswani et al. 2017, table 3; `tiny` is the one that the forerunner's tests had.
SIZES: Mapping[str, Size] = MappingProxyType(
    {
        "tiny": Size(
            embedding_width=32, num_layers=6, num_attention_heads=4, intermediate_size=256
        ),
        "base": Size(
            embedding_width=512, num_layers=6, num_attention_heads=8, intermediate_size=2048
        ),
        "big": Size(
            embedding_width=1024, num_layers=6, num_attention_heads=16, intermediate_size=4096
        ),
    }
)
