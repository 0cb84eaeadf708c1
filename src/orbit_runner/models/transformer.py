"""Model Garden's Transformer in its named sizes, with its variables created."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tf_keras
from official.nlp.modeling import layers, models

from orbit_runner.models.catalog import SIZES, TransformerSize

if TYPE_CHECKING:
    import tensorflow as tf


def transformer(
    *,
    vocab_size: int,
    eos_id: int = 1,
    preset: str = "base",
    encoder: Mapping[str, object] | None = None,
    decoder: Mapping[str, object] | None = None,
    embedding_width: int | None = None,
    dropout_rate: float | None = None,
    **decoding: Any,
) -> models.Seq2SeqTransformer:
    """Returns a Transformer (Vaswani et al. 2017) whose embeddings and output share their weights.

    The model maps `{"inputs": int32 [batch, n], "targets": int32 [batch, m]}` to float32 logits
    [batch, m, vocab_size]. Without `targets`, it returns the best translation that beam search
    finds: `outputs`, int32 [batch, tokens], and `scores`, [batch].

    Both languages share one vocabulary; token id 0 is padding. `preset` is a name in `SIZES`, whose
    values replace other arguments that are None. `encoder` and `decoder` are arguments of Model
    Garden's `TransformerEncoder` and `TransformerDecoder`. `dropout_rate` is for the embeddings,
    and for stacks that do not set their own. `decoding` can contain `padded_decode`,
    `decode_max_length`, `extra_decode_length`, `beam_size` and `alpha` of Model Garden's
    `Seq2SeqTransformer`.
    """
    size = SIZES[preset]
    if dropout_rate is not None:
        size = dataclasses.replace(size, dropout_rate=dropout_rate)
    model = models.Seq2SeqTransformer(
        vocab_size=vocab_size,
        eos_id=eos_id,
        embedding_width=embedding_width or size.embedding_width,
        dropout_rate=size.dropout_rate,
        encoder_layer=models.TransformerEncoder(**_stack_options(encoder, size)),
        decoder_layer=TransformerDecoder(**_stack_options(decoder, size)),
        name="transformer",
        **decoding,
    )
    # A subclassed model creates its variables when it is first called, but a restore needs them.
    ids = {name: tf_keras.Input([None], dtype="int32") for name in ("inputs", "targets")}
    model(ids)
    for block in model.submodules:
        if isinstance(block, layers.TransformerDecoderBlock):
            # It is never called. A run would read training data to create its variables.
            del block.self_attention_output_dense
    return model


class _DecoderBlock(layers.TransformerDecoderBlock):
    """A decoder block that can normalize after the sums in mixed precision, as the encoder can.

    Layer normalization returns float32. In Model Garden's block, the next sum adds it to a float16
    or bfloat16 output, which fails. Here, the dropout before that sum returns float32.
    """

    def build(self, input_shape: Sequence[tf.TensorShape]) -> None:
        super().build(input_shape)
        self.encdec_attention_dropout = tf_keras.layers.Dropout(self.dropout_rate, dtype="float32")
        self.output_dropout = tf_keras.layers.Dropout(self.dropout_rate, dtype="float32")


class TransformerDecoder(models.TransformerDecoder):
    """Model Garden's decoder, which supports mixed precision with `norm_first=False`, too.

    The names of the variables contain the name of the class, which is therefore the same.
    """

    decoder_layers: list[layers.TransformerDecoderBlock]
    output_normalization: tf_keras.layers.LayerNormalization

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the layers. In float32 or with `norm_first`, they are Model Garden's."""
        super().build(input_shape)
        if self.compute_dtype == "float32" or self.get_config()["norm_first"]:
            return
        blocks = [_DecoderBlock.from_config(block.get_config()) for block in self.decoder_layers]
        normalization = self.output_normalization
        # Keras lists variables in the order in which layers are assigned.
        del self.decoder_layers, self.output_normalization
        self.decoder_layers = blocks
        self.output_normalization = normalization


def _stack_options(
    options: Mapping[str, object] | None, size: TransformerSize
) -> dict[str, object]:
    overrides = {name: value for name, value in (options or {}).items() if value is not None}
    preset_options = {
        "num_layers": size.num_layers,
        "num_attention_heads": size.num_attention_heads,
        "intermediate_size": size.intermediate_size,
        "dropout_rate": size.dropout_rate,
        # Model Garden's own defaults are not those of the paper.
        "attention_dropout_rate": 0.1,
        "intermediate_dropout": 0.1,
    }
    return preset_options | overrides
