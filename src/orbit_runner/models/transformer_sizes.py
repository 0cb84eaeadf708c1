"""The sizes of Transformers that have names; does not import TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """The hyperparameters of one size."""

    embedding_width: int  # Also the width of the layers.
    num_layers: int  # Of the encoder, and of the decoder.
    num_attention_heads: int
    intermediate_size: int  # Inner width of the feed-forward layers.
    dropout_rate: float = 0.1  # After embeddings, attention and feed-forward layers.


# Vaswani et al. 2017, table 3. `tiny` is from the tests of this project's predecessor.
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
