"""Vision transformers (Dosovitskiy et al. 2020), as Model Garden has them."""

from __future__ import annotations

from collections.abc import Sequence

import tf_keras

from orbit_runner.models.heads import classifier
from orbit_runner.models.normalize import normalized_input
from orbit_runner.models.vit_sizes import patch_problem, patch_size


def vit(
    *,
    input_shape: Sequence[int],
    num_classes: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    input_dtype: str = "uint8",
    model_name: str = "vit-b16",
    pooler: str = "token",
    dropout_rate: float = 0.0,
    attention_dropout_rate: float = 0.0,
    init_stochastic_depth_rate: float = 0.0,
    original_init: bool = True,
) -> tf_keras.Model:
    """Builds an encoder of patches and a classifier whose kernel starts at zero.

    There is no layer between the encoder and the classifier (`representation_size` of the paper).

    Args:
        input_shape: `(height, width, channels)` of one image, whole patches each way.
        num_classes: The number of logits.
        mean: What to subtract from each channel, in raw pixel units; None for nothing.
        std: What to divide each channel by, in raw pixel units; None for nothing.
        input_dtype: The dtype of the raw pixels.
        model_name: Width, depth and size of the patches: a name of `vit_sizes.py`.
        pooler: What is classified: `token`, the encoding of a token put before the patches, or
            `gap`, the mean of the patches' encodings.
        dropout_rate: The share left out of the embedded patches and of what each perceptron adds.
        attention_dropout_rate: The share left out of the attention weights and of what attention
            adds.
        init_stochastic_depth_rate: How often the last block adds nothing, in training; blocks
            before it do so the less often the earlier they are, linearly.
        original_init: Whether kernels start as in the paper (Glorot, uniform) or as in DeiT
            (Touvron et al. 2021; a normal distribution of deviation 0.02).

    Returns:
        A model from `[batch, height, width, channels]` raw pixels to `[batch, num_classes]` logits
        in float32.

    Raises:
        ValueError: If the image is not of whole patches, or `mean` or `std` do not fit.
    """
    problem = patch_problem(model_name, input_shape)
    if problem:
        raise ValueError(problem)
    from official.vision.modeling.backbones.vit import VIT_SPECS, VisionTransformer

    inputs, x = normalized_input(input_shape, input_dtype, mean, std)
    spec = VIT_SPECS[model_name]
    # Names count what was built before in this process; the names of a network must not.
    tf_keras.backend.reset_uids()
    backbone = VisionTransformer(
        input_specs=tf_keras.layers.InputSpec(shape=x.shape),
        patch_size=patch_size(model_name),
        hidden_size=spec["hidden_size"],
        pooler=pooler,
        dropout_rate=dropout_rate,
        attention_dropout_rate=attention_dropout_rate,
        init_stochastic_depth_rate=init_stochastic_depth_rate,
        original_init=original_init,
        **spec["transformer"],
    )
    return classifier(
        inputs,
        backbone(x)["pre_logits"],
        num_classes=num_classes,
        dropout_rate=0.0,
        kernel_initializer="zeros",
        name=model_name.replace("-", "_"),
    )
