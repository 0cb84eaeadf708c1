"""Model Garden's Transformer, in the sizes that have names, with its variables in place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tf_keras
from official.nlp.modeling import models

from orbit_runner.models.transformer_sizes import SIZES, Size


def transformer(
    *,
    vocab_size: int,
    eos_id: int = 1,
    preset: str = "base",
    encoder: Mapping[str, Any] | None = None,
    decoder: Mapping[str, Any] | None = None,
    embedding_width: int | None = None,
    dropout_rate: float | None = None,
    **decoding: Any,
) -> models.Seq2SeqTransformer:
    """Builds a Transformer (Vaswani et al. 2017) whose embeddings and output share their weights.

    Args:
        vocab_size: Number of token ids, one vocabulary for both languages; id 0 is padding.
        eos_id: The id that ends a sentence.
        preset: A name in `SIZES`.
        encoder: Arguments of Model Garden's `TransformerEncoder`; the preset's where None.
        decoder: Arguments of Model Garden's `TransformerDecoder`; the preset's where None.
        embedding_width: Width of all layers; the preset's where None.
        dropout_rate: Share of the embeddings left out, and what the stacks have where theirs is
            None; the preset's where None.
        **decoding: `padded_decode`, `decode_max_length`, `extra_decode_length`, `beam_size` and
            `alpha` of Model Garden's `Seq2SeqTransformer`.

    Returns:
        A model of `{"inputs": int32 [batch, n], "targets": int32 [batch, m]}` that gives logits,
        float32 [batch, m, vocab_size]; without `targets` it gives `outputs`, int32 [batch, tokens],
        and `scores`, [batch], of the best translation that beam search finds.
    """
    size = SIZES[preset]
    if dropout_rate is not None:
        size = dataclasses.replace(size, dropout_rate=dropout_rate)
    model = models.Seq2SeqTransformer(
        vocab_size=vocab_size,
        eos_id=eos_id,
        embedding_width=embedding_width or size.embedding_width,
        dropout_rate=size.dropout_rate,
        encoder_layer=models.TransformerEncoder(**_stack(encoder, size)),
        decoder_layer=models.TransformerDecoder(**_stack(decoder, size)),
        name="transformer",
        **decoding,
    )
    # A subclassed model makes its variables when it is called; a restore needs them before.
    ids = {name: tf_keras.Input([None], dtype="int32") for name in ("inputs", "targets")}
    model(ids)
    return model


def count_parameters(
    *, vocab_size: int, width: int, filter_size: int, layers: int, decoder_layers: int | None = None
) -> int:
    """Computes the number of weights, without biases in attention.

    Args:
        vocab_size: Token ids, v.
        width: Width of the layers, d.
        filter_size: Inner width of the feed-forward layers, f.
        layers: Layers of the encoder.
        decoder_layers: Layers of the decoder; as many where None.

    Returns:
        v·d for the shared embedding; 4d² an attention, 2df + f + d a feed-forward layer, and 2d a
        norm, of which each stack has one more at its end.
    """
    decoders = layers if decoder_layers is None else decoder_layers
    attention, norm = 4 * width**2, 2 * width
    feed_forward = 2 * width * filter_size + filter_size + width
    encoder = layers * (attention + feed_forward + 2 * norm) + norm
    decoder = decoders * (2 * attention + feed_forward + 3 * norm) + norm
    return vocab_size * width + encoder + decoder


def _stack(options: Mapping[str, Any] | None, size: Size) -> dict[str, Any]:
    given = {name: value for name, value in (options or {}).items() if value is not None}
    of_preset = {
        "num_layers": size.num_layers,
        "num_attention_heads": size.num_attention_heads,
        "intermediate_size": size.intermediate_size,
        "dropout_rate": size.dropout_rate,
        # Model Garden's own defaults are those of its layers, not of the paper.
        "attention_dropout_rate": 0.1,
        "intermediate_dropout": 0.1,
    }
    return of_preset | given
