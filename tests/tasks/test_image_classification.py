"""The task: its loss and metrics against numpy, and what it passes to the pipelines."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.array_pipeline import train_dataset
from orbit_runner.tasks.image_classification.sources import load_source
from orbit_runner.tasks.image_classification.task import ImageClassificationTask
from orbit_runner.tasks.metrics import RunningMean, SparseAccuracy
from tests.support.digits import cnn_config, digits_config

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(6, 10)).astype(np.float32) * 3
LABELS = RNG.integers(0, 10, size=6).astype(np.int32)


def _task(**changes):
    return ImageClassificationTask(digits_config(**changes).task)


def _entropy(smoothing=0.0):
    shifted = LOGITS.astype(np.float64) - LOGITS.max(axis=1, keepdims=True)
    log_share = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    target = np.eye(10)[LABELS] * (1 - smoothing) + smoothing / 10
    return -(target * log_share).sum(axis=1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_cross_entropy_matches_numpy(smoothing, weight):
    task = _task(task__losses__label_smoothing=smoothing, task__losses__loss_weight=weight)
    losses = task.example_losses(tf.constant(LABELS), tf.constant(LOGITS))
    assert losses.shape == [6]
    np.testing.assert_allclose(losses.numpy(), weight * _entropy(smoothing), rtol=1e-5)


def test_the_loss_of_a_batch_is_a_weighted_mean():
    task, weights = _task(), np.array([1, 1, 0, 1, 0, 1], np.float32)
    plain = task.build_losses(LABELS, tf.constant(LOGITS))
    np.testing.assert_allclose(plain.numpy(), _entropy().mean(), rtol=1e-5)
    aux = [tf.constant(2.0), tf.constant(3.0)]
    loss = task.build_losses(LABELS, tf.constant(LOGITS), aux, tf.constant(weights))
    np.testing.assert_allclose(loss.numpy(), _entropy()[weights > 0].mean() + 5.0, rtol=1e-5)
    nothing = task.build_losses(LABELS, tf.constant(LOGITS), None, tf.zeros([6]))
    assert nothing.numpy() == 0.0


@pytest.mark.parametrize("rate", [0.0, 0.02])
def test_weight_decay_is_half_the_sum_of_squared_kernels(rate):
    config = cnn_config(task__losses__l2_weight_decay=rate)
    model = ImageClassificationTask(config.task).build_model()
    kernels = [value for value in model.get_weights() if value.ndim > 1]
    assert len(kernels) == 4
    expected = rate * sum(float((kernel.astype(np.float64) ** 2).sum()) / 2 for kernel in kernels)
    np.testing.assert_allclose(sum(float(loss) for loss in model.losses), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("k", "training", "names"),
    [
        (5, False, ["accuracy", "top_5_accuracy"]),
        (9, False, ["accuracy", "top_9_accuracy"]),
        (10, False, ["accuracy"]),
        (5, True, ["accuracy"]),
    ],
)
def test_top_k_needs_more_than_k_classes(k, training, names):
    metrics = _task(task__top_k=k).build_metrics(training=training)
    assert [metric.name for metric in metrics] == names


def test_metrics_ignore_examples_with_zero_weight():
    task, weights = _task(task__top_k=3), np.array([1, 1, 0, 1, 0, 1], np.float32)
    metrics = task.build_metrics(training=False)
    task.process_metrics(metrics, LABELS, tf.constant(LOGITS), sample_weight=tf.constant(weights))
    order = np.argsort(-LOGITS, axis=1)
    hits = order == LABELS[:, np.newaxis]
    for metric, k in zip(metrics, (1, 3), strict=True):
        expected = hits[:, :k].any(axis=1)[weights > 0].mean()
        np.testing.assert_allclose(metric.result().numpy(), expected, rtol=1e-6)


def test_accuracy_and_running_mean_work_without_weights():
    accuracy, mean = SparseAccuracy("a"), RunningMean("m")
    accuracy.update_state(LABELS, tf.constant(LOGITS))
    np.testing.assert_allclose(accuracy.result(), (LOGITS.argmax(1) == LABELS).mean(), rtol=1e-6)
    mean.update_state(tf.constant(3.0))
    assert (mean.result().numpy(), mean.weight().numpy()) == (3.0, 1.0)
    mean.reset_state()
    assert (mean.result().numpy(), mean.weight().numpy()) == (0.0, 0.0)


def _train(start_step=0, **changes):
    config = digits_config(**{f"task__train_data__{k}": v for k, v in changes.items()})
    task = ImageClassificationTask(config.task)
    batch = next(iter(task.build_inputs(config.task.train_data, start_step=start_step)))
    return tuple(part.numpy() for part in batch)


@pytest.mark.slow
def test_training_inputs_reflect_every_setting():
    source = load_source(digits_config().task.train_data)

    def expected(**options):
        (batch,) = train_dataset(source, global_batch_size=64, **options).take(1)
        return batch["image"].numpy(), batch["label"].numpy()

    from orbit_runner.data.augment import CropFlip

    cases = [
        ({}, {"seed": 0}),
        ({"seed": 3}, {"seed": 3}),
        ({"shuffle_buffer_size": 1}, {"seed": 0, "shuffle": False}),
        ({"augment": "crop"}, {"seed": 0, "augmentation": CropFlip(padding=4, flip=False)}),
        ({"augment": "crop_flip"}, {"seed": 0, "augmentation": CropFlip(padding=4, flip=True)}),
        (
            {"augment": "crop_flip", "augment_padding": 1},
            {"seed": 0, "augmentation": CropFlip(padding=1, flip=True)},
        ),
    ]
    seen = set()
    for changes, options in cases:
        images, labels = _train(**changes)
        other_images, other_labels = expected(**options)
        np.testing.assert_array_equal(images, other_images)
        np.testing.assert_array_equal(labels, other_labels)
        seen.add(images.tobytes())
    assert len(seen) == len(cases)
    later, _ = _train(start_step=9)
    np.testing.assert_array_equal(later, expected(seed=0, start_step=9)[0])


def test_tf_data_settings_reach_the_pipeline():
    config = digits_config(
        task__train_data__deterministic=False,
        task__train_data__ram_budget=1,
        task__train_data__autotune_algorithm="MAX_PARALLELISM",
    )
    task = ImageClassificationTask(config.task)
    options = task.build_inputs(config.task.train_data).options()
    assert options.deterministic is False
    assert options.autotune.ram_budget == 2**30
    algorithm = tf.data.experimental.AutotuneAlgorithm.MAX_PARALLELISM
    assert options.autotune.autotune_algorithm == algorithm
