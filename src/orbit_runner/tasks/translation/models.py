"""Configs of the translation networks, with Model Garden's field names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from orbit_runner.config.schema.base import Config, field
from orbit_runner.models.transformer_sizes import SIZES

# The elementwise activations of Keras.
ACTIVATIONS = ("elu", "exponential", "gelu", "hard_sigmoid", "leaky_relu", "linear", "mish", "relu",
               "relu6", "selu", "sigmoid", "softplus", "softsign", "swish", "tanh")  # fmt: skip


def _rate(help: str) -> float | None:
    return field(None, ge=0.0, le=0.99, help=help)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextModelConfig(Config):
    """A text network, selected by name."""

    name: str = field("", help="the network: a name that `runner list` shows")
    label_smoothing: float = field(
        0.1, ge=0.0, le=0.99, help="share of the target spread over all other tokens"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackConfig(Config):
    """The layers of an encoder or a decoder. None means the value of the preset."""

    num_layers: int | None = field(None, ge=1, le=1000, help="number of layers")
    num_attention_heads: int | None = field(None, ge=1, le=1024, help="heads of each attention")
    intermediate_size: int | None = field(
        None, ge=1, le=2**18, help="inner width of the feed-forward layers"
    )
    activation: str = field(
        "relu", allowed=ACTIVATIONS, help="between the two feed-forward matrices"
    )
    dropout_rate: float | None = _rate(
        "share left out behind attention and feed-forward layers; null: the model's"
    )
    attention_dropout_rate: float = field(
        0.1, ge=0.0, le=0.99, help="share of attention weights left out"
    )
    intermediate_dropout: float = field(
        0.1, ge=0.0, le=0.99, help="share left out inside the feed-forward layers"
    )
    use_bias: bool = field(False, help="biases in attention")
    norm_first: bool = field(
        True, help="normalise what goes into a layer; else its sum with what comes out (the paper)"
    )
    norm_epsilon: float = field(1e-6, gt=0.0, help="added to the variance")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig(TextModelConfig):
    """The Transformer of Vaswani et al. 2017. None means the value of the preset."""

    preset: str = field("base", allowed=tuple(SIZES), help="sizes and dropout, by name")
    encoder: StackConfig = field(factory=StackConfig, help="what reads the source")
    decoder: StackConfig = field(factory=StackConfig, help="what writes the target")
    embedding_width: int | None = field(
        None, ge=2, le=65536, help="width of the embeddings and of all layers"
    )
    dropout_rate: float | None = _rate("share of the embeddings left out")
    padded_decode: bool = field(
        False, help="decode with fixed shapes, as TPUs need; wants decode_max_length"
    )
    decode_max_length: int | None = field(
        None,
        ge=1,
        le=2**16,
        help="tokens a translation has at most; by the source where null",
    )
    extra_decode_length: int = field(
        50,
        ge=0,
        le=2**16,
        help="tokens by which a translation may be longer than its source",
    )
    beam_size: int = field(4, ge=1, le=1000, help="translations followed at once; 1: greedy")
    alpha: float = field(
        0.6, ge=0.0, help="how much beam search favours length (Wu et al. 2016, equation 14)"
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields sizes that do not fit together."""
        size = SIZES[self.preset]
        width = self.embedding_width or size.embedding_width
        if width % 2:
            yield "embedding_width", f"got {width}, expected an even number: half are sines"
        for section in ("encoder", "decoder"):
            heads = getattr(self, section).num_attention_heads or size.num_attention_heads
            if width % heads:
                yield (
                    f"{section}.num_attention_heads",
                    f"got {heads}, expected a divisor of the width, {width}",
                )
        if self.padded_decode and self.decode_max_length is None:
            yield "decode_max_length", "is not set, and padded_decode is true"
