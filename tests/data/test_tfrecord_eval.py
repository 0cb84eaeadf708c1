from __future__ import annotations

import numpy as np
import pytest

from orbit_runner.data.array_pipeline import eval_dataset
from orbit_runner.data.order.sharding import eval_steps
from orbit_runner.data.source import ArraySource
from orbit_runner.data.tfrecord import reader
from orbit_runner.data.tfrecord.source import load
from tests.support.batches import assert_equal_batches, global_batches
from tests.support.tfrecords import eval_records, pixels, write_set


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make(*sizes):
        write_set(tmp_path, sizes)
        return load(data_dir=str(tmp_path), input_path=["train-*"])

    return make


def _array(size):
    image = np.stack([pixels(number) for number in range(size)])
    return ArraySource("made", {"image": image, "label": np.arange(size, dtype=np.int32)})


def _evaluate(make, source, batch, replicas, pipelines, **settings):
    steps = eval_steps(source.size, batch, settings.get("drop_remainder", False))

    def rows(context):
        dataset = make(source, global_batch_size=batch, input_context=context, **settings)
        assert dataset.cardinality() == steps * replicas // pipelines
        return dataset

    return global_batches(rows, replicas, pipelines, steps)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("sizes", "batch", "chunk", "drop_remainder"),
    [
        ((0, 6, 4), 4, 1, False),
        ((0, 6, 4), 4, 1024, True),
        ((12,), 4, 1024, False),
        ((1, 2), 8, 1024, False),
        ((1,), 4, 1, False),
        ((70, 81), 24, 50, False),
        ((70, 81), 24, 50, True),
    ],
)
@pytest.mark.parametrize(("replicas", "pipelines"), [(1, 1), (2, 1), (4, 2)])
def test_record_batches_match_array_batches(
    made, monkeypatch, sizes, batch, chunk, drop_remainder, replicas, pipelines
):
    monkeypatch.setattr(reader, "_CHUNK_RECORDS", chunk)
    settings = {"drop_remainder": drop_remainder}
    got = _evaluate(eval_records, made(*sizes), batch, replicas, pipelines, **settings)
    expected = _evaluate(eval_dataset, _array(sum(sizes)), batch, replicas, pipelines, **settings)
    assert_equal_batches(got, expected)
