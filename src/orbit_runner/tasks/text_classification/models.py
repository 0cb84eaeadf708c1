"""Configs of the networks that classify texts."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.base import Config, config_class, field


@config_class
class TextClassifierConfig(Config):
    """A network that classifies texts, selected by name."""

    name: str = field("", help="name of the model; `runner list` shows all")
    embedding_width: int = field(64, ge=1, le=65536, help="width of the embeddings of tokens")
    dropout_rate: float = field(0.0, ge=0.0, le=0.99, help="dropout rate of each layer")


@config_class
class BagOfWordsConfig(TextClassifierConfig):
    """The mean of the embeddings of a text's tokens, and dense layers."""

    hidden_units: list[int] = field(
        (), ge=1, le=65536, help="number of units in each hidden layer; []: a linear model"
    )


@config_class
class TextTransformerConfig(TextClassifierConfig):
    """The encoder of a Transformer, and the mean of its outputs over the tokens."""

    num_layers: int = field(2, ge=1, le=1000, help="number of layers")
    num_attention_heads: int = field(4, ge=1, le=1024, help="number of attention heads")
    intermediate_size: int = field(
        256, ge=1, le=2**18, help="inner width of the feed-forward layers"
    )

    def problems(self) -> Iterator[Problem]:
        """Yields sizes that do not fit together."""
        width = self.embedding_width
        heads = self.num_attention_heads
        if width % 2:
            yield Problem(
                "embedding_width",
                f"got {width}, expected an even number, for sines and cosines",
                code="not-divisible",
            )
        if width % heads:
            yield Problem(
                "num_attention_heads",
                f"got {heads}, expected a divisor of the width, {width}",
                code="not-divisible",
            )


@config_class
class BertConfig(TextClassifierConfig):
    """Model Garden's BERT encoder with the vocabulary of the texts, and the mean of its outputs."""

    num_layers: int = field(4, ge=1, le=1000, help="number of layers")
    num_attention_heads: int = field(4, ge=1, le=1024, help="number of attention heads")
    intermediate_size: int = field(
        256, ge=1, le=2**18, help="inner width of the feed-forward layers"
    )
    initializer_range: float = field(
        0.02, gt=0.0, le=1.0, help="standard deviation of the initial kernels and embeddings"
    )

    def problems(self) -> Iterator[Problem]:
        """Yields heads that do not divide the width."""
        width = self.embedding_width
        heads = self.num_attention_heads
        if width % heads:
            yield Problem(
                "num_attention_heads",
                f"got {heads}, expected a divisor of the width, {width}",
                code="not-divisible",
            )
