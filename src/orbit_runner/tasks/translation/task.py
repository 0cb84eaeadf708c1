"""Translation with a Transformer, and BLEU of translations by beam search."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.text.pipeline import TrainingPairs, eval_pairs
from orbit_runner.data.text.source import EOS, PairSource
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary
from orbit_runner.distribute.process_group import Workers
from orbit_runner.registry import TEXT_MODELS
from orbit_runner.tasks.base import EXAMPLES, Task, section_of
from orbit_runner.tasks.report_examples import ReportExamples
from orbit_runner.tasks.serving import Predictor, Serving, require_no_top_k
from orbit_runner.tasks.translation.config import TranslationConfig, TranslationDataConfig
from orbit_runner.tasks.translation.data import batching_of, open_pairs
from orbit_runner.tasks.translation.metrics import (
    CorpusBleu,
    Perplexity,
    TokenAccuracy,
    smoothed_cross_entropy,
    token_mask,
)
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from orbit_runner.tasks.metrics import TaskMetric
    from orbit_runner.utils.types import Tensors


_Batch = dict[str, tf.Tensor]
OUTPUTS, IDS, SENTENCES = "outputs", "ids", "sentences"
_NOT_SELECTED = -1
_SENTENCES = 10


class TranslationTask(Task):
    """Translation of sentences from one language to another."""

    task_config: TranslationConfig
    # For the report: the last evaluation's translations, by sentence number.
    _translations: Mapping[int, str] = types.MappingProxyType({})

    def build_model(self) -> tf_keras.Model:
        """Builds the network `model.name` for the vocabulary of the run.

        For its inputs and outputs, see `orbit_runner.models.transformer`.
        """
        config = self.task_config.model
        return TEXT_MODELS.get(config.name).load()(config, vocab_size=self.vocab_size, eos_id=EOS)

    def build_inputs(
        self,
        params: TranslationDataConfig,
        input_context: tf.distribute.InputContext | None = None,
        start_step: int | tf.Tensor = 0,
    ) -> tf.data.Dataset:
        """Returns one worker's pipeline of a section. Training starts at the batch of `start_step`.

        For training, it yields features and labels endlessly. Features are `inputs` and `targets`,
        int32 [batch, length]. Labels are `targets` and `share`, float32 [batch], the factor of the
        cross entropy of a row's tokens: the number of rows divided by the number of tokens in the
        global batch. For evaluation, it yields features, labels and weights, float32 [batch], each
        pair once; labels are then `targets` and `id`, int64 [batch], the numbers of the pairs.
        """
        options = PipelineOptions.from_config(params)
        if params.is_training:
            return self._training_pairs(params).dataset(
                start_step=start_step, input_context=input_context, options=options
            )
        return eval_pairs(
            self.pairs(params),
            global_batch_size=params.global_batch_size,
            max_length=params.max_seq_length,
            static_shapes=params.static_batch,
            drop_remainder=params.drop_remainder,
            input_context=input_context,
            options=options,
            cache=params.cache,
            element=_evaluation_element,
        )

    def batch_at(self, params: TranslationDataConfig) -> Callable[[tf.Tensor], Tensors] | None:
        """Returns a function that creates the batch of one step, for asynchronous training."""
        return self._training_pairs(params).batch_at()

    def _training_pairs(self, params: TranslationDataConfig) -> TrainingPairs:
        batching = batching_of(params, self.pairs(params), self.excluded_examples(params))
        return TrainingPairs(element=_training_element, **batching)

    def num_examples(self, params: TranslationDataConfig) -> int:
        """Returns the number of pairs of a section that are used."""
        return self.pairs(params).size - len(self.excluded_examples(params))

    def steps_per_epoch(self, params: TranslationDataConfig) -> float:
        """Returns the number of training batches in which each pair occurs once."""
        return self._training_pairs(params).order().steps_per_epoch

    def example_losses(
        self, labels: Mapping[str, tf.Tensor], model_outputs: tf.Tensor
    ) -> tf.Tensor:
        """Returns what each row adds to the mean cross entropy of the tokens of the global batch.

        It is float32 [batch], in nats. Its mean over the rows of all replicas is the mean over
        tokens. Labels are `targets`, int32 [batch, length], and `share`, float32 [batch].
        `model_outputs` are logits, float32 [batch, length, vocabulary].
        """
        entropy = self._cross_entropy(labels["targets"], model_outputs)
        return tf.reduce_sum(entropy, axis=-1) * labels["share"]

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        """Returns the accuracy of the next token, and in evaluation the perplexity."""
        metrics: list[tf_keras.metrics.Metric] = [TokenAccuracy("token_accuracy")]
        return metrics if training else [*metrics, Perplexity("perplexity")]

    def validation_step(
        self, inputs: Tensors, model: tf_keras.Model, metrics: Sequence[TaskMetric] | None = None
    ) -> dict[str, tf.Tensor]:
        """Evaluates one batch on one replica, and translates it if BLEU is requested.

        `inputs` are the features, labels and weights of `build_inputs`. Returns `loss`, the mean
        over the batch's target tokens; `examples`, the number of these tokens, which is the weight
        of the loss; `sentences`, the number of sentences; and the result of `decode`.
        """
        features, labels, weights = inputs
        targets = labels["targets"]
        logits = model(features, training=False)
        self.process_metrics(metrics or [], labels, logits, sample_weight=weights)
        counted = token_mask(targets) * weights[:, tf.newaxis]
        total = tf.reduce_sum(self._cross_entropy(targets, logits) * counted)
        tokens = tf.reduce_sum(counted)
        logs = {self.loss: tf.math.divide_no_nan(total, tokens), EXAMPLES: tokens}
        logs[SENTENCES] = tf.math.count_nonzero(weights)
        if not self._bleu_examples:
            return logs
        selected = tf.logical_and(weights > 0, labels["id"] < self._bleu_examples)
        static = self.task_config.validation_data.static_batch
        return logs | decode(model, features["inputs"], labels["id"], selected, static=static)

    def aggregate_logs(
        self, state: Translations | None = None, step_outputs: Any = None
    ) -> Translations:
        """Collects the translations of a step on the host.

        `state` is the result of the previous call, or None.
        """
        state = Translations() if state is None else state
        state.add(step_outputs)
        return state

    def reduce_aggregated_logs(
        self, aggregated_logs: Any, global_step: tf.Tensor | None = None
    ) -> dict[str, float]:
        """Returns `validation_examples`, and `bleu` if there are references.

        Both are over the sentences of all workers.
        """
        del global_step
        sum_over_workers = Workers(tf.distribute.get_strategy()).all_reduce_sum
        logs: dict[str, float] = {
            "validation_examples": sum_over_workers([aggregated_logs.sentences])[0]
        }
        references = self._references
        if references is None or not self._bleu_examples:
            return logs
        assert self.vocabulary is not None
        metric = self._bleu
        ids = aggregated_logs.ids()
        translations = self.vocabulary.decode(aggregated_logs.rows())
        # A proxy, because `tf.Module` would wrap a dict.
        self._translations = types.MappingProxyType(dict(zip(ids, translations, strict=True)))
        counts = metric.counts(translations, [references[n] for n in ids])
        return logs | {"bleu": metric.score(sum_over_workers(counts))}

    def report_examples(
        self, model: tf_keras.Model, batches: Iterable[Tensors]
    ) -> ReportExamples | None:
        """Returns the first sentences that the last evaluation has translated; None for none."""
        del model, batches
        if not self._translations or self.vocabulary is None or self._references is None:
            return None
        translations, references = self._translations, self._references
        numbers = sorted(translations)[:_SENTENCES]
        pairs = self.pairs(self.task_config.validation_data)
        sources = self.vocabulary.decode(pairs.sources.row(n).tolist() for n in numbers)
        count = f"the {len(translations):,} sentences that were translated"
        return ReportExamples(
            note=f"the first {len(numbers)} of {count}",
            head=("source", "reference", "translation"),
            rows=[
                (source, references[n], translations[n])
                for n, source in zip(numbers, sources, strict=True)
            ],
        )

    def serving(self, model: tf_keras.Model) -> Serving:
        """Returns the signatures `tokens` and, if there is a vocabulary, `text`."""
        from orbit_runner.tasks.translation.serving import translation_serving

        max_length = self.task_config.validation_data.max_seq_length
        return translation_serving(model, self.vocabulary, max_length)

    def predictor(
        self, signatures: Mapping[str, tf.types.experimental.Callable], *, top_k: int | None = None
    ) -> Predictor:
        """Returns the predictor that translates lines.

        Raises `RunnerError` if `top_k` is given, because a sentence has one translation, or if
        there is no vocabulary.
        """
        require_no_top_k(top_k)
        from orbit_runner.tasks.translation.serving import LinePredictor

        return LinePredictor(signatures)

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The subword vocabulary, or None if all data are ids."""
        vocabulary: Vocabulary | None = self.learned
        return vocabulary

    @property
    def vocab_size(self) -> int:
        """The number of token ids."""
        return self.vocabulary.size if self.vocabulary else self.task_config.vocab_size

    def pairs(self, params: TranslationDataConfig) -> PairSource:
        """Returns the pairs of a section. Raises `SettingError` if they cannot be read."""
        vocabulary = self.vocabulary
        with self.data_scope(section_of(params)):
            return open_pairs(params).read(self.vocab_size, vocabulary)

    def _cross_entropy(self, targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return smoothed_cross_entropy(targets, logits, self.task_config.model.label_smoothing)

    @functools.cached_property
    def _references(self) -> tuple[str, ...] | None:
        data = self.task_config.validation_data
        return self.pairs(data).references

    @property
    def _bleu_examples(self) -> int:
        selected = self.task_config.bleu_examples
        references = self._references
        available = len(references) if references is not None else 0
        return available if selected is None else min(selected, available)

    @functools.cached_property
    def _bleu(self) -> CorpusBleu:
        config = self.task_config
        metric = CorpusBleu(tokenize=config.bleu_tokenize, lowercase=config.bleu_lowercase)
        note(f"BLEU signature: {metric.signature}")
        return metric


def _training_element(batch: _Batch) -> tuple[_Batch, _Batch]:
    targets = batch["targets"]
    features = {"inputs": batch["inputs"], "targets": targets}
    return features, {"targets": targets, "share": batch["share"]}


def _evaluation_element(batch: _Batch, weights: tf.Tensor) -> tuple[_Batch, _Batch, tf.Tensor]:
    features = {"inputs": batch["inputs"], "targets": batch["targets"]}
    return features, {"targets": batch["targets"], "id": batch["id"]}, weights


def decode(
    model: tf_keras.Model,
    inputs: tf.Tensor,
    ids: tf.Tensor,
    selected: tf.Tensor,
    *,
    static: bool,
) -> dict[str, tf.Tensor]:
    """Translates the rows of a batch that `selected`, bool [batch], selects, by beam search.

    `inputs` are the sources, int32 [batch, length], and `ids` their numbers, int64 [batch]. With
    `static`, all rows are translated, which keeps shapes static. Returns `outputs`, int32
    [rows, tokens], and `ids`, int64 [rows], -1 for rows that were not selected.
    """
    if static:
        outputs = model({"inputs": inputs}, training=False)[OUTPUTS]
        return {OUTPUTS: outputs, IDS: tf.where(selected, ids, _NOT_SELECTED)}
    selected_inputs = tf.boolean_mask(inputs, selected)
    outputs = tf.cond(
        tf.reduce_any(selected),
        lambda: model({"inputs": selected_inputs}, training=False)[OUTPUTS],
        lambda: tf.zeros([0, 0], tf.int32),
    )
    return {OUTPUTS: outputs, IDS: tf.boolean_mask(ids, selected)}


class Translations:
    """The translations of the replicas of this worker."""

    def __init__(self) -> None:
        self.sentences = 0  # The number of evaluated sentences, including those not translated.
        self._rows: dict[int, np.ndarray] = {}

    def add(self, logs: Mapping[str, Sequence[tf.Tensor]]) -> None:
        """Adds a step.

        `logs` has, for each replica, the number of sentences and the result of `decode`.
        """
        self.sentences += sum(int(count) for count in logs[SENTENCES])
        for ids, outputs in zip(logs.get(IDS, ()), logs.get(OUTPUTS, ()), strict=True):
            pairs = zip(ids.numpy().tolist(), outputs.numpy(), strict=True)
            self._rows.update({number: row for number, row in pairs if number != _NOT_SELECTED})

    def ids(self) -> list[int]:
        """Returns the numbers of the sentences in ascending order."""
        return sorted(self._rows)

    def rows(self) -> Iterator[np.ndarray]:
        """Yields the token ids of the translations in the order of `ids`."""
        return (self._rows[number] for number in self.ids())
