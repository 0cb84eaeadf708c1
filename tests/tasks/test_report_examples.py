"""What tasks let the report show of an evaluation."""

import re
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.cli.main import main
from orbit_runner.tasks import report_examples
from orbit_runner.tasks.report_examples import classification_examples
from tests.support.images import write_folder

_CLASSES = 3


def _logits():
    return np.random.default_rng(0).normal(size=(200, _CLASSES)).astype(np.float32)


def _model():
    """The logits of an image are its first pixels."""
    inputs = tf_keras.Input([2, 2, 1])
    return tf_keras.Model(inputs, tf_keras.layers.Flatten()(inputs)[:, :_CLASSES])


def _batches(logits, labels, *more):
    pixels = np.pad(logits, ((0, 0), (0, 4 - _CLASSES))).reshape(-1, 2, 2, 1)
    tensors = [tf.constant(array) for array in (pixels, labels, *more)]
    return [tuple(array[n : n + 64] for array in tensors) for n in range(0, len(labels), 64)]


@pytest.mark.parametrize("one_hot", [False, True])
def test_confusion_matrix_and_worst_mistakes_are_those_of_the_logits(one_hot):
    logits, labels = _logits(), np.arange(200) % _CLASSES
    batch_labels = np.eye(_CLASSES, dtype=np.float32)[labels] if one_hot else labels

    examples = classification_examples(
        _model(), _batches(logits, batch_labels), names=["a", "b", "c"]
    )

    shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    predicted = logits.argmax(axis=-1)
    pairs = Counter(zip(labels.tolist(), predicted.tolist(), strict=True))
    assert examples.confusion == pairs
    wrong = [n for n in range(200) if predicted[n] != labels[n]]
    assert len(wrong) > 24
    worst = sorted(wrong, key=lambda n: shares[n, labels[n]])[:24]
    names = "abc"
    assert examples.captions == [
        f"{names[labels[n]]} → {names[predicted[n]]} {shares[n].max():.2f}\nexample {n}"
        for n in worst
    ]
    np.testing.assert_array_equal(examples.images.reshape(24, 4)[:, :_CLASSES], logits[worst])
    correct = sum(count for (a, b), count in pairs.items() if a == b)
    assert examples.note.startswith(f"{correct} correct predictions for the first 200 examples")


def test_rows_without_weight_are_left_out():
    weights = np.ones(200, np.float32)
    weights[[3, 150]] = 0
    labels = np.zeros(200, np.int32)

    examples = classification_examples(_model(), _batches(_logits(), labels, weights), total=198)

    assert sum(examples.confusion.values()) == 198
    assert "all 198 examples" in examples.note
    assert not {"example 3", "example 150"} & {text.split("\n")[1] for text in examples.captions}


def test_examples_end_at_the_limit(monkeypatch):
    monkeypatch.setattr(report_examples, "_MAX_EXAMPLES", 70)
    batches = iter(_batches(_logits(), np.zeros(200, np.int32)))

    examples = classification_examples(_model(), batches, total=200)

    assert sum(examples.confusion.values()) == 70
    assert "the first 70 examples of 200" in examples.note
    assert len(list(batches)) == 2  # The rest was not read.


@pytest.mark.slow
def test_mistakes_name_the_right_files_if_an_image_cannot_be_decoded(tmp_path):
    for part in ("train", "val"):
        write_folder(tmp_path / "set" / part, dict.fromkeys("abcdefgh", 1))
    damaged = min((tmp_path / "set/val/b").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:40])
    section = f"{{source: image_folder, data_dir: {tmp_path}/set, global_batch_size: 4, "
    (tmp_path / "e.yaml").write_text(
        "task:\n  name: image_classification\n  model: {name: cnn, input_size: [8, 8, 3]}\n"
        f"  train_data: {section}max_bad_images: 0}}\n"
        f"  validation_data: {section}max_bad_images: 1}}\n"
        "trainer: {train_steps: 1, optimizer_config: {optimizer: {type: sgd}}}\n"
    )
    flags = [f"--experiment={tmp_path}/e.yaml", f"--model_dir={tmp_path}/run"]
    rate = "{type: constant, constant: {learning_rate: 0.001}}"
    assert main([*flags, f"--trainer.optimizer_config.learning_rate={rate}", "--quiet"]) == 0
    assert main(["report", f"{tmp_path}/run"]) == 0

    page = (tmp_path / "run/report.html").read_text().replace("<wbr>", "")
    mistakes = re.findall(r"<figcaption>(\w) → \w [\d.]+<br>(\w)/[\w.]+", page)
    assert len({label for label, _ in mistakes}) > 3
    assert all(label == directory for label, directory in mistakes), mistakes
