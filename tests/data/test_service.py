"""Batches from tf.data services are equal to those of one process, in the same order."""

import pytest
import tensorflow as tf

from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.tfrecord.source import load
from tests.support.batches import assert_equal_batches
from tests.support.tfrecords import eval_records, train_records, write_set

service = tf.data.experimental.service


@pytest.mark.slow
def test_services_give_the_same_record_batches(tmp_path):
    pairs = []
    for _ in range(2):
        dispatcher = service.DispatchServer()
        host = dispatcher.target.partition("://")[2]
        pairs.append((dispatcher, service.WorkerServer(service.WorkerConfig(host))))
    addresses = tuple(dispatcher.target for dispatcher, _ in pairs)
    paths = write_set(tmp_path)
    source = load(input_path=[str(path) for path in paths])

    def made(services):
        options = PipelineOptions(services=services)
        train = train_records(
            source, global_batch_size=16, seed=4, start_step=3, shuffle_buffer_size=50,
            options=options,
        )  # fmt: skip
        evaluation = eval_records(source, global_batch_size=16, options=options)
        return list(train.take(6).as_numpy_iterator()), list(evaluation.as_numpy_iterator())

    for ours, theirs in zip(made(addresses), made(()), strict=True):
        assert len(theirs) > 0
        assert_equal_batches(ours, theirs)
