"""Runs of the task on text files: strategies, exactness, shapes, and learning."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary
from orbit_runner.tasks.translation.serving import translate
from orbit_runner.tasks.translation.task import TranslationTask
from tests.support.toy import Notes, records, run
from tests.support.translations import translation_config, write_set

pytestmark = pytest.mark.usefixtures("own_cache")


def _no_dropout():
    names = ("dropout_rate", "attention_dropout_rate", "intermediate_dropout")
    stacks = {f"task__model__{s}__{n}": 0.0 for s in ("encoder", "decoder") for n in names}
    return {"task__model__dropout_rate": 0.0, **stacks}


@pytest.mark.slow
def test_a_run_of_16_bits_trains_and_evaluates(tmp_path):
    config = translation_config(
        write_set(tmp_path / "set"),
        trainer__train_steps=3,
        task__bleu_lowercase=True,
        runtime__mixed_precision_dtype="bfloat16",
    )
    notes = Notes()
    model, logs = run(config, tmp_path / "run", notes=notes)
    assert notes.reasons == []
    assert logs["validation_examples"] == 21
    assert {"token_accuracy", "perplexity", "bleu", "validation_loss"} <= set(logs)
    # The model is untrained, so the perplexity is about the number of ids.
    assert 20 < logs["perplexity"] < 150
    assert all(np.isfinite(value).all() for value in model.get_weights())
    (record,) = records(tmp_path / "run", "train")
    assert record["training_loss"] > 2
    kept = Vocabulary.load(tmp_path / "run" / "assets" / "vocabulary.model")
    assert kept.size == 40
    (signature,) = (note for note in notes.notes if note.startswith("BLEU signature: "))
    assert "case:lc" in signature
    assert "tok:13a" in signature


@pytest.mark.slow
def test_mirrored_strategy_gives_the_losses_of_one_device(tmp_path):
    config = translation_config(write_set(tmp_path / "set"), **_no_dropout())
    accumulating = config.replace(trainer=config.trainer.replace(gradient_accumulation_steps=2))
    (one_device, one_logs), (two, two_logs), (pieces, _) = (
        run(config, tmp_path / "one"),
        run(config, tmp_path / "two", strategy="mirrored2"),
        run(accumulating, tmp_path / "pieces", "train"),
    )
    losses = [records(tmp_path / name, "train") for name in ("one", "two", "pieces")]
    first, *others = [[record["training_loss"] for record in run_records] for run_records in losses]
    for other in others:
        np.testing.assert_allclose(first, other, rtol=1e-5)
    for model in (two, pieces):
        for mine, theirs in zip(one_device.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=2e-5)
    for name in ("validation_loss", "perplexity", "token_accuracy", "validation_examples"):
        np.testing.assert_allclose(one_logs[name], two_logs[name], rtol=1e-4)
    np.testing.assert_allclose(one_logs["bleu"], two_logs["bleu"], atol=1e-6)


@pytest.mark.slow
def test_static_batch_and_padded_decode_give_fixed_shapes(tmp_path):
    config = translation_config(
        write_set(tmp_path / "set"),
        task__train_data__static_batch=True,
        task__validation_data__static_batch=True,
        task__model__padded_decode=True,
        task__model__decode_max_length=20,
        trainer__train_steps=2,
    )
    task = TranslationTask(config.task)
    spec = task.build_inputs(config.task.train_data).element_spec
    shapes = {tuple(part.shape) for part in tf.nest.flatten(spec)}
    assert shapes == {(8, 32), (8,)}
    model, logs = run(config, tmp_path / "run")
    assert logs["validation_examples"] == 21
    batch = next(iter(task.build_inputs(config.task.validation_data)))
    ids = batch[0]["inputs"]
    fixed, free = model({"inputs": ids}), translate(model, ids)
    assert fixed["outputs"].shape == [8, 20]
    decode = task.vocabulary.decode
    assert decode(fixed["outputs"].numpy()) == decode(free["outputs"].numpy())
    np.testing.assert_allclose(fixed["scores"], free["scores"], rtol=1e-5)


@pytest.mark.slow
def test_model_learns_to_translate_word_by_word(tmp_path):
    config = translation_config(
        write_set(tmp_path / "set", train=400),
        **_no_dropout(),
        task__model__embedding_width=32,
        task__model__label_smoothing=0.0,
        task__train_data__batch_tokens=1024,
        trainer__train_steps=400,
        trainer__validation_interval=400,
        trainer__checkpoint_interval=400,
        trainer__summary_interval=400,
        trainer__optimizer_config__learning_rate__constant__learning_rate=0.01,
    )
    _, logs = run(config, tmp_path / "run")
    # Untrained, a tenth of the words would be right at best, and no four in a row.
    assert logs["token_accuracy"] > 0.95
    assert logs["bleu"] > 50
