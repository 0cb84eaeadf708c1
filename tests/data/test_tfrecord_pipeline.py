import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.array_pipeline import eval_dataset, train_dataset
from orbit_runner.data.augment import CropFlip
from orbit_runner.data.images.pipeline import decode_at_once
from orbit_runner.data.images.readers import make_reader
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.records import RecordOrder
from orbit_runner.data.order.sharding import replica_slices
from orbit_runner.data.order.tf_arrays import TENSORFLOW
from orbit_runner.data.source import ArraySource
from orbit_runner.data.tfrecord import reader
from orbit_runner.data.tfrecord.pipeline import select_own_positions
from orbit_runner.data.tfrecord.source import load
from tests.support.batches import assert_equal_batches, evaluation_batches, global_batches
from tests.support.tfrecords import (
    SHAPE,
    SIZES,
    eval_records,
    example,
    pixels,
    train_records,
    write_file,
    write_set,
)

_SEED, _SIZE, _BATCH = 11, sum(SIZES), 16


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        write_set(folder)
        return load(data_dir=str(folder), input_path=["train-*"])


def _train(source, steps, *, batch=_BATCH, replicas=1, pipelines=1, seed=_SEED, **settings):
    def make(context):
        return train_records(
            source, global_batch_size=batch, seed=seed, input_context=context, **settings
        )

    return global_batches(make, replicas, pipelines, steps)


@pytest.mark.parametrize(("replicas", "pipelines"), [(1, 1), (4, 2), (4, 4), (1, 3), (2, 3)])
@pytest.mark.parametrize("start_step", [0, 5])
def test_select_own_matches_the_positions_of_the_slices(replicas, pipelines, start_step):
    for pipeline in range(pipelines):
        context = tf.distribute.InputContext(pipelines, pipeline, replicas)
        slices = replica_slices(12, context)
        positions = np.arange(start_step * 12, (start_step + 9) * 12)
        elements = tf.range(slices.elements(9), dtype=tf.int64)
        expected = slices.positions(elements, start_step).numpy().reshape(-1)
        got = select_own_positions(slices, positions, start_step)
        np.testing.assert_array_equal(positions[got], expected)
        np.testing.assert_array_equal(
            select_own_positions(slices, tf.constant(positions), start_step), got
        )


def test_augmentation_matches_that_of_an_array_source(source):
    settings = {"global_batch_size": _BATCH, "seed": _SEED, "augmentation": CropFlip(2)}
    expected = train_dataset(_array(_SIZE), shuffle=False, **settings).take(40)
    got = _train(source, 40, augmentation=CropFlip(2), shuffle_buffer_size=1)
    assert_equal_batches(got, list(expected.as_numpy_iterator()))


@pytest.mark.slow
def test_pipeline_starts_at_a_step_tensor(source):
    settings = {"global_batch_size": _BATCH, "seed": _SEED, "shuffle_buffer_size": 7}

    @tf.function
    def labels(first):
        return next(iter(train_records(source, start_step=first, **settings)))["label"]

    for step in (0, 35):
        expected = next(iter(train_records(source, start_step=step, **settings)))["label"]
        np.testing.assert_array_equal(labels(tf.constant(step, tf.int64)), expected)


@pytest.mark.slow
def test_start_reads_only_the_blocks_of_its_window(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(reader, "_CHUNK_RECORDS", 1)
    paths = write_set(tmp_path, [200] * 4)
    source = load(data_dir=str(tmp_path), input_path=["train-*"])
    start_step = 1000
    position, settings = start_step * 8, {"shuffle_buffer_size": 40, "start_step": start_step}
    (expected,) = _train(source, 1, batch=8, **settings)
    epoch, place = divmod(position, source.size)
    blocks = source.blocks()
    order, starts = RecordOrder(blocks.records, _SEED, 40, TENSORFLOW).blocks(
        tf.constant(epoch, tf.int64)
    )
    window = place // 40 * 40
    ends = starts.numpy() + blocks.records[order.numpy()]
    needed = order.numpy()[(starts.numpy() < window + 40) & (ends > window)]
    assert len(needed) <= 2
    block_of = {(blocks.file[k], blocks.offset[k]): k for k in needed}
    for file, path in enumerate(paths):
        original, content = path.read_bytes(), bytearray(path.stat().st_size)
        for (_, offset), block in ((key, k) for key, k in block_of.items() if key[0] == file):
            end = offset + blocks.length[block]
            content[offset:end] = original[offset:end]
        path.write_bytes(content)
    (got,) = _train(source, 1, batch=8, options=PipelineOptions(prefetch=0), **settings)
    assert_equal_batches([got], [expected])
    with pytest.raises(tf.errors.DataLossError):
        _train(source, 100, batch=8, **settings)


def test_training_pipeline_has_static_shapes_and_no_external_state(source):
    context = tf.distribute.InputContext(2, 0, 4)
    settings = {"augmentation": CropFlip(2), "shuffle_buffer_size": 50, "input_context": context}
    dataset = train_records(source, global_batch_size=16, seed=1, **settings)
    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    assert dataset.element_spec == {
        "image": tf.TensorSpec([4, *SHAPE], tf.uint8),
        "label": tf.TensorSpec([4], tf.int32),
    }
    policy = tf.data.experimental.ExternalStatePolicy.FAIL
    dataset._as_serialized_graph(external_state_policy=policy)


def test_decoding_graph_has_no_stateful_ops(source):
    # Op determinism would decode one batch at a time.
    reader = make_reader(source)

    def decode_batch(records, ids):
        batch = reader.look_up({"record": records, "id": ids}, 4)
        return decode_at_once(reader, batch, SHAPE)

    decode = tf.function(decode_batch).get_concrete_function(
        tf.TensorSpec([3], tf.string), tf.TensorSpec([3], tf.int64)
    )
    types = {op.type for op in decode.graph.get_operations() if op.op_def.is_stateful}
    assert types == set()


def _set_of(folder, *records):
    good = example(tf.io.encode_png(pixels(0)).numpy(), 0)
    write_file(folder / "a", [good] * 3)
    write_file(folder / "b", [good, *records])
    return load(data_dir=str(folder), input_path=["a", "b"])


@pytest.mark.sample(1)
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    ("shape", "label", "message"),
    [
        ((7, 5, 3), 0, r"b: record 1: got an image of shape \[7 5 3\], expected \[6, 5, 3\] as"),
        ((6, 5, 3), 4, "b: record 1: got label 4, expected 0 to 3"),
        ((6, 5, 3), -1, "b: record 1: got label -1, expected 0 to 3"),
    ],
)
def test_record_with_wrong_shape_or_label_is_reported(tmp_path, shape, label, message):
    record = example(tf.io.encode_png(pixels(1, shape)).numpy(), label)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        _train(_set_of(tmp_path, record), 1, batch=5, num_classes=4)


@pytest.mark.usefixtures("own_cache")
def test_jpeg_and_gray_images_are_decoded(tmp_path):
    gray = tf.io.encode_png(pixels(1, (6, 5, 1))).numpy()
    jpeg = tf.io.encode_jpeg(pixels(2)).numpy()
    (got,) = _train(_set_of(tmp_path, example(gray, 1), example(jpeg, 2)), 1, batch=6)
    np.testing.assert_array_equal(got["label"], [0, 0, 0, 0, 1, 2])
    np.testing.assert_array_equal(got["image"][4], np.repeat(pixels(1, (6, 5, 1)), 3, axis=2))
    np.testing.assert_array_equal(got["image"][5], tf.io.decode_jpeg(jpeg))


@pytest.mark.usefixtures("own_cache")
def test_file_changed_since_indexing_is_rejected(tmp_path):
    source = _set_of(tmp_path, example(b"", 1))
    write_file(tmp_path / "a", [example(tf.io.encode_png(pixels(0)).numpy(), 0)] * 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a: has changed since its records"):
        _train(source, 1, batch=2)


@pytest.fixture
def make_source(tmp_path, own_cache):
    def make(*sizes):
        write_set(tmp_path, sizes)
        return load(data_dir=str(tmp_path), input_path=["train-*"])

    return make


def _array(size):
    image = np.stack([pixels(number) for number in range(size)])
    return ArraySource("made", {"image": image, "label": np.arange(size, dtype=np.int32)})


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("sizes", "batch", "chunk", "drop_remainder", "replicas", "pipelines"),
    [
        ((0, 6, 4), 4, 1024, True, 2, 1),
        ((1, 2), 8, 1024, False, 4, 2),
        ((70, 81), 24, 50, False, 4, 2),
        ((12,), 4, 1, False, 1, 1),
    ],
)
def test_record_batches_match_array_batches(
    make_source, monkeypatch, sizes, batch, chunk, drop_remainder, replicas, pipelines
):
    monkeypatch.setattr(reader, "_CHUNK_RECORDS", chunk)
    settings = {"drop_remainder": drop_remainder}
    got, expected = (
        evaluation_batches(make, source, batch, replicas, pipelines, **settings)
        for make, source in (
            (eval_records, make_source(*sizes)),
            (eval_dataset, _array(sum(sizes))),
        )
    )
    assert_equal_batches(got, expected)
