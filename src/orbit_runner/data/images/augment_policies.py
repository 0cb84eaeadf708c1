"""RandAugment and AutoAugment: Model Garden's operations, drawn with keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.errors import DataError

# From image, seed, number of the example and epoch to an image; uint8 [height, width, 3].
Policy = Callable[[tf.Tensor, int, tf.Tensor, tf.Tensor], tf.Tensor]


def rand_augment(
    *,
    num_layers: int,
    magnitude: float,
    cutout_const: float,
    translate_const: float,
    prob_to_apply: float | None,
    exclude_ops: Sequence[str],
) -> Policy:
    """Makes RandAugment (Cubuk et al., RandAugment, 2020), with Model Garden's arguments.

    Args:
        num_layers: Operations on an image.
        magnitude: How strong each is, 0 to 10.
        cutout_const: Factor of the size that is cut out.
        translate_const: Factor of how far images are moved.
        prob_to_apply: Chance of each operation; always where None.
        exclude_ops: Names of operations that are left out.

    Returns:
        The policy.

    Raises:
        DataError: There is no such operation.
    """
    from official.vision.ops import augment

    unknown = sorted(set(exclude_ops) - set(augment.RandAugment().available_ops))
    if unknown:
        known = ", ".join(augment.RandAugment().available_ops)
        raise DataError(
            f"got {unknown[0]!r} in exclude_ops of randaug, expected some of {known}",
            field="aug_type",
        )
    made = augment.RandAugment(
        num_layers=num_layers,
        magnitude=magnitude,
        cutout_const=cutout_const,
        translate_const=translate_const,
        prob_to_apply=prob_to_apply,
        exclude_ops=list(exclude_ops),
    )
    return _keyed_policy(made)


def auto_augment(*, augmentation_name: str, cutout_const: float, translate_const: float) -> Policy:
    """Makes AutoAugment (Cubuk et al., AutoAugment, 2019), with Model Garden's arguments.

    Args:
        augmentation_name: The policy.
        cutout_const: Factor of the size that is cut out.
        translate_const: Factor of how far images are moved.

    Returns:
        The policy.
    """
    from official.vision.ops import augment

    made = augment.AutoAugment(
        augmentation_name=augmentation_name,
        cutout_const=cutout_const,
        translate_const=translate_const,
    )
    return _keyed_policy(made)


def _keyed_policy(augmenter: Any) -> Policy:
    # Nothing of it needs AutoGraph, which would take more time than all the rest of the tracing.
    @tf.autograph.experimental.do_not_convert
    def policy(image: tf.Tensor, seed: int, number: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        with keyed_draws_scope(seed, number, epoch, "augmentation"):
            return tf.ensure_shape(augmenter.distort(image), image.shape)

    return policy
