"""Batches by step number, as asynchronous workers compute them, are equal to the pipeline's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.array_pipeline import train_chunks, train_dataset
from orbit_runner.data.augment import CropFlip
from orbit_runner.data.source import ArraySource
from orbit_runner.data.tfrecord.source import load
from tests.support.tfrecords import train_records, write_set

SIZE, BATCH, SEED = 37, 8, 5


def source() -> ArraySource:
    images = np.random.default_rng(0).integers(0, 255, [SIZE, 6, 6, 1], np.uint8)
    return ArraySource("images", {"image": images, "label": np.arange(SIZE, dtype=np.int32)})


@pytest.mark.sample(1)
@pytest.mark.parametrize("augmentation", [None, CropFlip(padding=1)])
@pytest.mark.parametrize("shuffle", [True, False])
def test_batch_at_a_step_matches_the_pipeline(shuffle: bool, augmentation: CropFlip | None) -> None:
    settings: dict[str, Any] = {
        "global_batch_size": BATCH,
        "seed": SEED,
        "shuffle": shuffle,
        "augmentation": augmentation,
        "element": lambda batch: (batch["image"], batch["label"]),
    }
    batch_at = tf.function(train_chunks(source(), **settings).batch_at)
    pipeline = train_dataset(source(), start_step=3, **settings)
    for step, (images, labels) in zip(range(3, 15), pipeline, strict=False):
        found = batch_at(tf.constant(step, tf.int64))
        assert found[0].shape == (BATCH, 6, 6, 1)
        np.testing.assert_array_equal(found[0], images)
        np.testing.assert_array_equal(found[1], labels)


@pytest.mark.slow
def test_array_pipeline_starts_at_a_step_tensor() -> None:
    @tf.function
    def labels(first: tf.Tensor) -> tf.Tensor:
        made = train_dataset(source(), global_batch_size=BATCH, seed=SEED, start_step=first)
        return next(iter(made))["label"]

    for step in (0, 1, 9):
        whole = train_dataset(source(), global_batch_size=BATCH, seed=SEED, start_step=step)
        np.testing.assert_array_equal(
            labels(tf.constant(step, tf.int64)), next(iter(whole))["label"]
        )


@pytest.mark.slow
@pytest.mark.parametrize("buffer", [1, 7, 1000])
def test_record_pipeline_starts_at_a_step_tensor(
    buffer: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_set(tmp_path)
    records = load(data_dir=str(tmp_path), input_path=["train-*"])
    settings: dict[str, Any] = {
        "global_batch_size": BATCH,
        "seed": SEED,
        "shuffle_buffer_size": buffer,
    }

    @tf.function
    def labels(first: tf.Tensor) -> tf.Tensor:
        return next(iter(train_records(records, start_step=first, **settings)))["label"]

    for step in (0, 2, 35):
        whole = train_records(records, start_step=step, **settings)
        np.testing.assert_array_equal(
            labels(tf.constant(step, tf.int64)), next(iter(whole))["label"]
        )
