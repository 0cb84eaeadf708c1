"""RandAugment and AutoAugment: Model Garden's operations, with keyed random draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.errors import DataError

if TYPE_CHECKING:
    from official.vision.ops import augment

# From (image, seed, example number, epoch) to an image; images are uint8 [height, width, 3].
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
    """Returns RandAugment (Cubuk et al., RandAugment, 2020), with Model Garden's arguments.

    `magnitude` is from 0 to 10. If `prob_to_apply` is None, each operation is always applied.
    Raises `DataError` if `exclude_ops` has the name of an unknown operation.
    """
    from official.vision.ops import augment

    unknown = sorted(set(exclude_ops) - set(augment.RandAugment().available_ops))
    if unknown:
        known = ", ".join(augment.RandAugment().available_ops)
        raise DataError(
            f"got {unknown[0]!r} in exclude_ops of randaug; allowed: {known}",
            field="aug_type",
            code="unknown-name",
        )
    augmenter = augment.RandAugment(
        num_layers=num_layers,
        magnitude=magnitude,
        cutout_const=cutout_const,
        translate_const=translate_const,
        prob_to_apply=prob_to_apply,
        exclude_ops=list(exclude_ops),
    )
    return _keyed_policy(augmenter)


def auto_augment(*, augmentation_name: str, cutout_const: float, translate_const: float) -> Policy:
    """Returns AutoAugment (Cubuk et al., AutoAugment, 2019), with Model Garden's arguments."""
    from official.vision.ops import augment

    augmenter = augment.AutoAugment(
        augmentation_name=augmentation_name,
        cutout_const=cutout_const,
        translate_const=translate_const,
    )
    return _keyed_policy(augmenter)


def _keyed_policy(augmenter: augment.ImageAugment) -> Policy:
    # Nothing here needs AutoGraph, which would take longer than the rest of the tracing.
    @tf.autograph.experimental.do_not_convert
    def policy(image: tf.Tensor, seed: int, number: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        with keyed_draws_scope(seed, number, epoch, "augmentation"):
            return tf.ensure_shape(augmenter.distort(image), image.shape)

    return policy
