"""Which vision transformers there are, and what images they take; needs no tensorflow."""

from __future__ import annotations

from collections.abc import Sequence

# Names of Model Garden's, whose table has the widths and depths.
VIT_NAMES = ("vit-ti16", "vit-s16", "vit-b16", "vit-b32", "vit-l16", "vit-l32")


def patch_size(model_name: str) -> int:
    """Returns the width and height of the patches, in pixels.

    Args:
        model_name: One of `VIT_NAMES`.
    """
    return int(model_name[-2:])


def patch_problem(model_name: str, shape: Sequence[int]) -> str:
    """Says what is wrong with the size of the images; empty if nothing is.

    Args:
        model_name: One of `VIT_NAMES`.
        shape: `(height, width, channels)` of one image.
    """
    size = patch_size(model_name)
    if all(length >= size and length % size == 0 for length in shape[:2]):
        return ""
    return (
        f"got images of {shape[0]} × {shape[1]} pixels, expected multiples of {size}, the patches "
        f"of {model_name}"
    )
