"""The names of the vision transformers, and their image sizes; does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence

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
        f"got images of {shape[0]} × {shape[1]} pixels, expected multiples of {size}, the patches "
        f"of {model_name}"
    )
