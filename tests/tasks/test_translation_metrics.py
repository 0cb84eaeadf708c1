"""Loss, metrics and BLEU of translation, compared with numpy, Model Garden and sacrebleu."""

import numpy as np
import pytest
import sacrebleu
import tensorflow as tf
from official.nlp.tasks import translation as garden

from orbit_runner.tasks.translation.metrics import (
    CorpusBleu,
    Perplexity,
    TokenAccuracy,
    negative_log_likelihood,
    smoothed_cross_entropy,
)
from orbit_runner.tasks.translation.task import Translations, TranslationTask, decode
from tests.support.configs import in_both_sections
from tests.support.translations import sentences, translation_config, write_set

VOCAB = 11
RNG = np.random.default_rng(3)
LOGITS = (RNG.normal(size=(4, 5, VOCAB)) * 2).astype(np.float32)
TARGETS = RNG.integers(1, VOCAB, size=(4, 5)).astype(np.int32)
TARGETS[:, ::2] = LOGITS[:, ::2, 1:].argmax(-1) + 1
TARGETS[1, 3:] = TARGETS[2, 1:] = TARGETS[3] = 0
MASK = TARGETS > 0


def _entropy(smoothing):
    logits = LOGITS.astype(np.float64)
    log_share = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    spread = np.full((4, 5, VOCAB), smoothing / (VOCAB - 1))
    np.put_along_axis(spread, TARGETS[..., np.newaxis], 1 - smoothing, axis=-1)
    return -(spread * log_share).sum(axis=-1) * MASK


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_smoothed_cross_entropy_matches_numpy(smoothing):
    losses = smoothed_cross_entropy(tf.constant(TARGETS), tf.constant(LOGITS), smoothing)
    np.testing.assert_allclose(losses, _entropy(smoothing), rtol=1e-5, atol=1e-6)
    assert (losses.numpy()[~MASK] == 0).all()


def test_gradient_of_the_loss_matches_model_garden():
    # Model Garden subtracts the smallest possible loss, so that a perfect model has 0.
    with tf.GradientTape(persistent=True) as tape:
        logits = tf.constant(LOGITS)
        tape.watch(logits)
        ours = tf.reduce_sum(smoothed_cross_entropy(tf.constant(TARGETS), logits, 0.1))
        theirs, weights = garden._padded_cross_entropy_loss(logits, TARGETS, 0.1, VOCAB)
        theirs = tf.reduce_sum(theirs)
    np.testing.assert_allclose(
        tape.gradient(ours, logits), tape.gradient(theirs, logits), atol=1e-6
    )
    lowest = -0.9 * np.log(0.9) - 0.1 * np.log(0.1 / (VOCAB - 1))
    np.testing.assert_allclose(ours - theirs, lowest * weights.numpy().sum(), rtol=1e-5)


def _task():
    config = translation_config("nowhere", **in_both_sections(source="synthetic"))
    return TranslationTask(config.task)


@pytest.mark.parametrize("weights", [None, np.array([1, 0, 1, 1], np.float32)])
def test_metrics_ignore_padding_and_rows_with_zero_weight(weights):
    counted = MASK if weights is None else MASK & (weights > 0)[:, np.newaxis]
    labels = {"targets": tf.constant(TARGETS)}
    accuracy, perplexity = TokenAccuracy("a"), Perplexity("p")
    for metric in (accuracy, perplexity):
        # Twice, as two batches would.
        for _ in range(2):
            metric.update_state(labels, tf.constant(LOGITS), sample_weight=weights)
    hits = (LOGITS.argmax(-1) == TARGETS)[counted]
    assert 0 < hits.mean() < 1
    np.testing.assert_allclose(accuracy.result(), hits.mean(), rtol=1e-6)
    entropy = negative_log_likelihood(tf.constant(TARGETS), tf.constant(LOGITS)).numpy()
    np.testing.assert_allclose(perplexity.result(), np.exp(entropy[counted].mean()), rtol=1e-5)
    assert Perplexity("p").result().numpy() == 1


def test_validation_step_weights_the_loss_by_tokens():
    task = _task()

    def model(features, training):
        return tf.constant(LOGITS)

    weights = np.array([1, 1, 0, 1], np.float32)
    batch = (
        {"inputs": tf.constant(TARGETS), "targets": tf.constant(TARGETS)},
        {"targets": tf.constant(TARGETS), "id": tf.range(4, dtype=tf.int64)},
        tf.constant(weights),
    )
    logs = task.validation_step(batch, model)
    counted = MASK[weights > 0]
    assert float(logs["examples"]) == counted.sum()
    expected = _entropy(0.1)[weights > 0].sum() / counted.sum()
    np.testing.assert_allclose(float(logs["loss"]), expected, rtol=1e-5)
    assert int(logs["sentences"]) == 3


REFERENCES = [
    "Two dogs run across the green grass.",
    "A man, in a red hat, plays guitar!",
    "Ein kleines Mädchen klettert.",
    "Nobody is here today, is there?",
]
TRANSLATIONS = [
    "Two dogs are running across the grass.",
    "A man in a red hat plays the guitar!",
    "ein Mädchen klettert.",
    "",
]


@pytest.mark.parametrize("tokenize", ["13a", "intl", "char", "none"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_score_and_signature_match_sacrebleu(tokenize, lowercase):
    metric = CorpusBleu(tokenize=tokenize, lowercase=lowercase)
    theirs = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase)
    expected = theirs.corpus_score(TRANSLATIONS, [REFERENCES])
    assert metric.score(metric.counts(TRANSLATIONS, REFERENCES)) == expected.score
    assert 10 < expected.score < 90
    assert metric.signature == str(theirs.get_signature())


def test_bleu_counts_of_parts_add_up_to_the_whole():
    metric = CorpusBleu()
    parts = [metric.counts(TRANSLATIONS[a:b], REFERENCES[a:b]) for a, b in [(0, 1), (1, 4), (4, 4)]]
    total = [sum(column) for column in zip(*parts, strict=True)]
    assert total == metric.counts(TRANSLATIONS, REFERENCES)
    assert metric.score(parts[2]) == 0.0
    assert metric.score(metric.counts(REFERENCES, REFERENCES)) == pytest.approx(100)


class Echo:
    """A fake model: its translation of a sentence is the sentence itself."""

    def __init__(self):
        self.rows = []

    def __call__(self, inputs, training):
        assert not training
        self.rows.append(inputs["inputs"].shape[0])
        return {"outputs": inputs["inputs"]}


@pytest.mark.parametrize(("static", "rows"), [(False, [2]), (True, [4, 4])])
def test_only_selected_sentences_are_translated(static, rows):
    inputs = tf.constant([[5, 1], [6, 1], [7, 1], [8, 1]])
    ids = tf.constant([3, 0, 9, 1], tf.int64)
    model, gathered = Echo(), Translations()
    for selected in ([False, True, False, True], [False] * 4):
        logs = decode(model, inputs, ids, tf.constant(selected), static=static)
        logs = {name: (value,) for name, value in logs.items()}
        gathered.add(logs | {"sentences": (tf.constant(4),)})
    assert model.rows == rows
    assert gathered.ids() == [0, 1]
    assert [row.tolist() for row in gathered.rows()] == [[6, 1], [8, 1]]
    assert gathered.sentences == 8


@pytest.mark.sample(3)
@pytest.mark.parametrize(("asked", "expected"), [(None, 21), (5, 5), (0, None)])
def test_bleu_is_computed_on_the_first_sentences_of_the_dataset(
    asked, expected, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = translation_config(write_set(tmp_path / "set"), task__bleu_examples=asked)
    task = TranslationTask(config.task)
    words, pairs = task.vocabulary, sentences(21, 1)
    state = None
    # Two replicas, and batches by length: the first sentences may be anywhere.
    for batch in task.build_inputs(config.task.validation_data):
        features, labels, weights = batch
        chosen = tf.logical_and(weights > 0, labels["id"] < (21 if asked is None else asked))
        # The "translation" is the target, except for the first sentence.
        outputs = tf.boolean_mask(features["targets"], chosen)
        ids = tf.boolean_mask(labels["id"], chosen)
        outputs = tf.where((ids == 0)[:, tf.newaxis], 5, outputs)
        half = len(ids) // 2
        logs = {
            "sentences": (tf.math.count_nonzero(weights),),
            "outputs": (outputs[:half], outputs[half:]),
            "ids": (ids[:half], ids[half:]),
        }
        state = task.aggregate_logs(state, logs)
    logs = task.reduce_aggregated_logs(state)
    assert logs["validation_examples"] == 21
    if expected is None:
        assert "bleu" not in logs
        return
    references = [target for _, target in pairs[:expected]]
    translations = words.decode(np.asarray(row) for row in state.rows())
    assert translations[1:] == references[1:]
    theirs = sacrebleu.corpus_bleu(translations, [references])
    assert logs["bleu"] == theirs.score
    assert 0 < theirs.score < 100
