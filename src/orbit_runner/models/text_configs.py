"""Configs of the translation networks, with Model Garden's field names."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_runner.config.errors import Problem, not_set
from orbit_runner.config.schema.base import Config, config_class, field
from orbit_runner.models.catalog import SIZES

# The elementwise activations of Keras.
ACTIVATIONS = ("elu", "exponential", "gelu", "hard_sigmoid", "leaky_relu", "linear", "mish", "relu",
               "relu6", "selu", "sigmoid", "softplus", "softsign", "swish", "tanh")  # fmt: skip


def _rate_field(help: str) -> float | None:
    return field(None, ge=0.0, le=0.99, help=help)


@config_class
class TextModelConfig(Config):
    """A text network, selected by name."""

    name: str = field("", help="name of the model; `runner list` shows all")
    label_smoothing: float = field(
        0.1,
        ge=0.0,
        le=0.99,
        help="fraction of each target's probability that is spread over all other tokens",
    )


@config_class
class StackConfig(Config):
    """The layers of an encoder or a decoder. None means the value of the preset."""

    num_layers: int | None = field(
        None, ge=1, le=1000, help="number of layers; null: that of the preset"
    )
    num_attention_heads: int | None = field(
        None, ge=1, le=1024, help="number of attention heads; null: that of the preset"
    )
    intermediate_size: int | None = field(
        None,
        ge=1,
        le=2**18,
        help="inner width of the feed-forward layers; null: that of the preset",
    )
    activation: str = field(
        "relu", allowed=ACTIVATIONS, help="activation function inside the feed-forward layers"
    )
    dropout_rate: float | None = _rate_field(
        "dropout rate after attention and feed-forward layers; null: dropout_rate of the model"
    )
    attention_dropout_rate: float = field(
        0.1, ge=0.0, le=0.99, help="dropout rate of the attention weights"
    )
    intermediate_dropout: float = field(
        0.1, ge=0.0, le=0.99, help="dropout rate inside the feed-forward layers"
    )
    use_bias: bool = field(False, help="use biases in attention")
    norm_first: bool = field(
        True,
        help="normalize the input of each layer; false: the sum of its input and "
        "output, as in the paper",
    )
    norm_epsilon: float = field(
        1e-6, gt=0.0, help="small constant added to the variance in layer normalization"
    )


@config_class
class TransformerConfig(TextModelConfig):
    """The Transformer of Vaswani et al. 2017. None means the value of the preset."""

    preset: str = field("base", allowed=tuple(SIZES), help="named preset of sizes and dropout rate")
    encoder: StackConfig = field(factory=StackConfig, help="settings of the encoder")
    decoder: StackConfig = field(factory=StackConfig, help="settings of the decoder")
    embedding_width: int | None = field(
        None,
        ge=2,
        le=65536,
        help="width of the embeddings and of all layers; null: that of the preset",
    )
    dropout_rate: float | None = _rate_field(
        "dropout rate of the embeddings, and default of encoder and decoder; null: the preset's"
    )
    padded_decode: bool = field(
        False, help="decode with static shapes, as TPUs require; needs decode_max_length"
    )
    decode_max_length: int | None = field(
        None,
        ge=1,
        le=2**16,
        help="maximum number of tokens of a translation; null: length of the source "
        "plus extra_decode_length",
    )
    extra_decode_length: int = field(
        50,
        ge=0,
        le=2**16,
        help="number of tokens a translation may exceed its source by, if "
        "decode_max_length is null",
    )
    beam_size: int = field(
        4, ge=1, le=1000, help="beam width: number of candidate translations; 1: greedy search"
    )
    alpha: float = field(
        0.6,
        ge=0.0,
        help="strength of length normalization in beam search (Wu et al. 2016, equation 14)",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields sizes that do not fit together."""
        size = SIZES[self.preset]
        width = self.embedding_width or size.embedding_width
        if width % 2:
            message = f"got {width}, expected an even number, for sines and cosines"
            yield Problem("embedding_width", message, code="not-divisible")
        for section in ("encoder", "decoder"):
            heads = getattr(self, section).num_attention_heads or size.num_attention_heads
            if width % heads:
                message = f"got {heads}, expected a divisor of the width, {width}"
                yield Problem(f"{section}.num_attention_heads", message, code="not-divisible")
        if self.padded_decode and self.decode_max_length is None:
            yield not_set("decode_max_length", "is not set, but padded_decode requires it")
