"""Applies the operations of RandAugment and AutoAugment without random draws."""

from __future__ import annotations

import tensorflow as tf
from official.vision.ops import augment

_GRAY = [128] * 3


def apply_operation(
    image: tf.Tensor, text: str, cutout_const: float, translate_const: float
) -> tf.Tensor:
    """Applies an operation with the given magnitude, sign and center, and nothing random."""
    name, *rest = text.split(" ")
    if name == "Cutout":
        level, _, row, column = rest
        half = int(float(level) / 10 * cutout_const)
        return augment._fill_rectangle(image, int(column), int(row), half, half, 0 * image + 128)
    scales = {"Rotate": 30.0, "ShearX": 0.3, "ShearY": 0.3}
    scales |= dict.fromkeys(("TranslateX", "TranslateY"), translate_const)
    level = float(rest[0]) if rest else 0.0
    if name in scales:
        assert rest[0][0] in "+-"
        return augment.NAME_TO_FUNC[name](image, level / 10 * scales[name], _GRAY)
    arguments = augment.level_to_arg(cutout_const, translate_const)[name](level)
    return augment.NAME_TO_FUNC[name](image, *arguments)
