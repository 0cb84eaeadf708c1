"""Model Garden's Transformer in its named sizes, with its variables created."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tf_keras
from official.nlp.modeling import layers, models

from orbit_runner.models.catalog import SIZES, TransformerSize
from orbit_runner.models.configs import StackConfig, TransformerConfig

if TYPE_CHECKING:
    import tensorflow as tf


def transformer(
    config: TransformerConfig, *, vocab_size: int, eos_id: int = 1
) -> models.Seq2SeqTransformer:
    """Returns a Transformer (Vaswani et al. 2017) whose embeddings and output share their weights.

    The model maps `{"inputs": int32 [batch, n], "targets": int32 [batch, m]}` to float32 logits
    [batch, m, vocab_size]. Without `targets`, it returns the best translation that beam search
    finds: `outputs`, int32 [batch, tokens], and `scores`, [batch].

    Both languages share one vocabulary; token id 0 is padding.
    """
    size = SIZES[config.preset]
    if config.dropout_rate is not None:
        size = dataclasses.replace(size, dropout_rate=config.dropout_rate)
    model = models.Seq2SeqTransformer(
        vocab_size=vocab_size,
        eos_id=eos_id,
        embedding_width=config.embedding_width or size.embedding_width,
        dropout_rate=size.dropout_rate,
        encoder_layer=models.TransformerEncoder(**_stack_options(config.encoder, size)),
        decoder_layer=TransformerDecoder(**_stack_options(config.decoder, size)),
        padded_decode=config.padded_decode,
        decode_max_length=config.decode_max_length,
        extra_decode_length=config.extra_decode_length,
        beam_size=config.beam_size,
        alpha=config.alpha,
        name="transformer",
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


def _stack_options(config: StackConfig, size: TransformerSize) -> dict[str, object]:
    """Returns the arguments of a stack; those that the config leaves open are of the preset."""
    preset_options = {
        "num_layers": size.num_layers,
        "num_attention_heads": size.num_attention_heads,
        "intermediate_size": size.intermediate_size,
        "dropout_rate": size.dropout_rate,
    }
    overrides = {name: value for name, value in config.as_dict().items() if value is not None}
    return preset_options | overrides
