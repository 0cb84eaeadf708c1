"""The named sizes of Transformers and vision transformers; does not import TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerSize:
    """The hyperparameters of one size."""

    embedding_width: int  # Also the width of the layers.
    num_layers: int  # Of the encoder, and of the decoder.
    num_attention_heads: int
    intermediate_size: int  # Inner width of the feed-forward layers.
    dropout_rate: float = 0.1  # After embeddings, attention and feed-forward layers.


# Vaswani et al. 2017, table 3. `tiny` is from the tests of this project's predecessor.
SIZES: Mapping[str, TransformerSize] = MappingProxyType(
    {
        "tiny": TransformerSize(
            embedding_width=32, num_layers=6, num_attention_heads=4, intermediate_size=256
        ),
        "base": TransformerSize(
            embedding_width=512, num_layers=6, num_attention_heads=8, intermediate_size=2048
        ),
        "big": TransformerSize(
            embedding_width=1024, num_layers=6, num_attention_heads=16, intermediate_size=4096
        ),
    }
)

# Model Garden's names; its `VIT_SPECS` contains the widths and depths.
VIT_NAMES = ("vit-ti16", "vit-s16", "vit-b16", "vit-b32", "vit-l16", "vit-l32")


def patch_size(model_name: str) -> int:
    """Returns the width and height of the patches, in pixels."""
    return int(model_name[-2:])


def patch_problem(model_name: str, shape: Sequence[int]) -> str:
    """Returns an error message if the image size is not valid, otherwise an empty string."""
    size = patch_size(model_name)
    if all(length >= size and length % size == 0 for length in shape[:2]):
        return ""
    return (
        f"got images of {shape[0]} × {shape[1]} pixels, expected multiples of {size}, the patch "
        f"size of {model_name}"
    )
