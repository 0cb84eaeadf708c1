"""Pipelines whose first step is a tensor begin with the batch of that step."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.array_pipeline import train_dataset
from orbit_runner.data.source import ArraySource
from orbit_runner.data.tfrecord.source import load
from tests.support.tfrecords import train_records, write_set

SIZE, BATCH, SEED = 37, 8, 5


def source():
    images = np.random.default_rng(0).integers(0, 255, [SIZE, 6, 6, 1], np.uint8)
    return ArraySource("images", {"image": images, "label": np.arange(SIZE, dtype=np.int32)})


@pytest.mark.slow
def test_array_pipeline_starts_at_a_step_tensor():
    @tf.function
    def labels(first):
        dataset = train_dataset(source(), global_batch_size=BATCH, seed=SEED, start_step=first)
        return next(iter(dataset))["label"]

    for step in (0, 1, 9):
        dataset = train_dataset(source(), global_batch_size=BATCH, seed=SEED, start_step=step)
        np.testing.assert_array_equal(
            labels(tf.constant(step, tf.int64)), next(iter(dataset))["label"]
        )


@pytest.mark.slow
@pytest.mark.parametrize("buffer", [1, 7, 1000])
def test_record_pipeline_starts_at_a_step_tensor(buffer, tmp_path, own_cache):
    write_set(tmp_path)
    records = load(data_dir=str(tmp_path), input_path=["train-*"])
    settings = {
        "global_batch_size": BATCH,
        "seed": SEED,
        "shuffle_buffer_size": buffer,
    }

    @tf.function
    def labels(first):
        return next(iter(train_records(records, start_step=first, **settings)))["label"]

    for step in (0, 2, 35):
        dataset = train_records(records, start_step=step, **settings)
        np.testing.assert_array_equal(
            labels(tf.constant(step, tf.int64)), next(iter(dataset))["label"]
        )
