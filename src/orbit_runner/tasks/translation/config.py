"""Config of the translation task. Fields that Model Garden also has keep its names."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.base import Rule, config_class, field
from orbit_runner.config.schema.data import (
    DataConfig,
    source_field,
    training_field,
    validation_field,
)
from orbit_runner.models.configs import TextModelConfig
from orbit_runner.registry import TEXT_MODELS, TEXT_SOURCES
from orbit_runner.tasks.shared_config import NetworkTaskConfig


@config_class
class TranslationDataConfig(DataConfig):
    """Pairs of sentences and their input pipeline."""

    _rules = (
        Rule("batch_tokens", lambda data: data.batch_tokens and data.global_batch_size,
             "global_batch_size is also set, to {s.global_batch_size}; set only one", "conflict"),
        Rule("batch_tokens", lambda data: data.batch_tokens and not data.is_training,
             "is not supported in evaluation; set global_batch_size instead"),
    )  # fmt: skip
    source: str = source_field(TEXT_SOURCES)
    src_lang: str = field(
        "", help="source language, which is the suffix of its file names, such as en"
    )
    tgt_lang: str = field(
        "", help="target language, which is the suffix of its file names, such as de"
    )
    split: str = field(
        "",
        help="prefix of the file names; by default train or validation, depending on is_training",
    )
    batch_tokens: int = field(
        0,
        ge=0,
        le=2**28,
        exclusive_with="global_batch_size",
        help="maximum tokens per language in a training batch over all replicas, including padding",
    )
    global_batch_size: int = field(
        0,
        ge=0,
        le=2**24,
        exclusive_with="batch_tokens",
        help="number of sentence pairs in a batch over all replicas",
    )
    batch_rows_multiple: int = field(
        8,
        ge=1,
        le=2**20,
        help="with batch_tokens: pairs per batch are a multiple of this; replicas × "
        "accumulation steps divide it",
    )
    max_seq_length: int = field(
        256,
        ge=2,
        le=2**20,
        help="maximum tokens per sentence with end token; longer: skipped in "
        "training, truncated in evaluation",
    )
    static_batch: bool = field(
        False, help="pad all batches to the same shape, as TPUs and XLA require"
    )

    def problems(self) -> Iterator[Problem]:
        """Yields settings of the dataset that contradict each other."""
        by_tokens = self.is_training and self.batch_tokens
        for problem in super().problems():
            if problem.path != "global_batch_size" or not by_tokens:
                yield problem


@config_class
class TranslationConfig(NetworkTaskConfig):
    """Translation of sentences from one language to another."""

    _rules = (
        Rule("validation_data.static_batch",
             lambda t: getattr(t.model, "padded_decode", 0) and not t.validation_data.static_batch,
             "is false, but model.padded_decode requires true", "conflict"),
    )  # fmt: skip
    model: TextModelConfig = field(factory=TextModelConfig, help="the model", variants=TEXT_MODELS)
    train_data: TranslationDataConfig = training_field(TranslationDataConfig)
    validation_data: TranslationDataConfig = validation_field(TranslationDataConfig)
    sentencepiece_model_path: str = field(
        "",
        path="file",
        help="path of the vocabulary of both languages; by default it is built from "
        "the training text",
    )
    vocab_size: int = field(
        8000,
        ge=8,
        le=2**24,
        help="size of the vocabulary if it is built, or if the sentences are synthetic",
    )
    vocab_character_coverage: float = field(
        1.0,
        gt=0.0,
        le=1.0,
        help="fraction of the training text's characters covered by a vocabulary that is built",
    )
    bleu_examples: int | None = field(
        None,
        ge=0,
        help="number of sentences, from the first, to compute BLEU on; null: all, 0: none",
    )
    bleu_tokenize: str = field(
        "13a",
        allowed=("13a", "intl", "char", "zh", "none"),
        help="sacrebleu tokenizer for BLEU",
    )
    bleu_lowercase: bool = field(False, help="ignore case in BLEU")

    @property
    def batch_shapes_vary(self) -> bool:
        """Whether training batches have many different shapes."""
        return not self.train_data.static_batch
