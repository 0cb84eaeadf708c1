"""Vision transformers (Dosovitskiy et al. 2020), from Model Garden."""

from __future__ import annotations

from collections.abc import Sequence

import tf_keras

from orbit_runner.models.heads import classifier
from orbit_runner.models.normalize import normalized_input
from orbit_runner.models.transformer_sizes import patch_problem, patch_size


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
    """Returns an encoder of patches, and a classifier whose kernel is initialized to zero.

    The model maps raw pixels [batch, height, width, channels] to float32 logits [batch,
    num_classes]. `mean` and `std` are those of `Normalize`. Raises `ValueError` if height or width
    is not a multiple of the patch size. There is no layer between the encoder and the classifier
    (`representation_size` in the paper).

    `model_name` is a name in `VIT_NAMES`. `pooler` selects the input of the classifier: `token`,
    the encoding of a token before the patches, or `gap`, the mean of the patches' encodings.
    `dropout_rate` is for the embedded patches and the outputs of the MLPs; `attention_dropout_rate`
    is for the attention weights and the outputs of attention. In training, the last block is
    dropped with probability `init_stochastic_depth_rate`, and earlier blocks with linearly smaller
    ones. If `original_init` is True, kernels are initialized as in the paper (Glorot uniform),
    otherwise as in DeiT (Touvron et al. 2021; normal with a standard deviation of 0.02).
    """
    problem = patch_problem(model_name, input_shape)
    if problem:
        raise ValueError(problem)
    from official.vision.modeling.backbones.vit import VIT_SPECS, VisionTransformer

    inputs, x = normalized_input(input_shape, input_dtype, mean, std)
    spec = VIT_SPECS[model_name]
    # Layer names must not depend on what was built before in this process.
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
