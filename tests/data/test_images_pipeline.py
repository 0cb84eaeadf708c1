"""Pipelines of images in files and records: their order, and images that do not decode."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.augment import CropFlip
from orbit_runner.data.images import files
from orbit_runner.data.images.dataset import ImageArrays
from orbit_runner.data.images.decode_errors import BadImages
from orbit_runner.data.images.mixing import Mixing
from orbit_runner.data.images.pipeline import eval_images, train_images
from orbit_runner.data.images.train_image import Preprocessing
from orbit_runner.data.tfds import load as load_tfds
from orbit_runner.data.tfrecord import source as records
from tests.support.batches import assert_equal_batches, contexts, global_batches
from tests.support.images import (
    GARBAGE,
    cut_short,
    jpeg,
    photo,
    write_folder,
    write_records,
    write_tfds,
)
from tests.support.problems import raises
from tests.support.tfrecords import example, write_file

_SHAPE = (10, 12, 3)
_COUNTS = {"ant": 9, "bee": 8, "cat": 6}


@pytest.fixture
def make_source(tmp_path, own_cache):
    def make(kind):
        place = tmp_path / kind
        if kind == "image_folder":
            write_folder(place, _COUNTS)
            return files.load(split="train", data_dir=str(place))
        if kind == "tfrecord":
            write_records(place, [9, 0, 14], classes=3, offset=1)
            return records.load(data_dir=str(place), input_path=["train*"], label_offset=1)
        if kind == "tfds":
            write_tfds(place, "toy", {"train": (16, 9)}, ["a", "b", "c"])
            return load_tfds(tfds_name="toy", tfds_data_dir=str(place)).select(np.arange(1, 24))
        images = np.stack([photo(number, 20, 22) for number in range(23)])
        labels = np.arange(23, dtype=np.int32) % 3
        return ImageArrays("made", {"image": images, "label": labels})

    return make


def _train(source, **settings):
    usual = {
        "shape": _SHAPE, "resize": True, "global_batch_size": 8, "seed": 5, "num_classes": 3,
        "shuffle_buffer_size": 10, "bad": BadImages("train_data", 0),
        "preprocessing": Preprocessing(areas=(0.2, 1.0), flip=True),
    }  # fmt: skip
    return train_images(source, **{**usual, **settings})


def _evaluate(source, **settings):
    usual = {"shape": _SHAPE, "resize": True, "num_classes": 3}
    return eval_images(source, **{**usual, "bad": BadImages("validation_data", 0), **settings})


def _take(dataset, count):
    return list(dataset.take(count).as_numpy_iterator())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "replicas", "pipelines"), [("image_folder", 4, 2), ("tfrecord", 2, 1)]
)
def test_batches_depend_only_on_seed_and_step(make_source, kind, replicas, pipelines):
    source = make_source(kind)
    assert source.size == 23
    settings = {"mixing": Mixing(num_classes=3), "augmentation": CropFlip(2)}
    all_batches = _take(_train(source, **settings), 7)
    assert_equal_batches(_take(_train(source, start_step=5, **settings), 2), all_batches[5:7])

    def rows(context):
        return _train(source, input_context=context, start_step=1, **settings)

    assert_equal_batches(global_batches(rows, replicas, pipelines, 3), all_batches[1:4])
    other = _take(_train(source, seed=6, **settings), 1)
    assert (other[0]["image"] != all_batches[0]["image"]).any()
    assert all_batches[0]["image"].dtype == np.uint8
    assert all_batches[0]["label"].shape == (8, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "drop_remainder"), [("image_folder", False), ("tfrecord", False), ("arrays", True)]
)
def test_evaluation_counts_each_image_once(make_source, kind, drop_remainder):
    source = make_source(kind)
    steps = 2 if drop_remainder else 3

    def rows(context):
        return _evaluate(
            source, global_batch_size=8, input_context=context, drop_remainder=drop_remainder
        )

    all_batches = _take(rows(None), 9)
    assert len(all_batches) == steps
    weights = np.concatenate([batch["weight"] for batch in all_batches])
    np.testing.assert_array_equal(weights, [1.0] * min(23, 8 * steps) + [0.0] * (8 * steps - 23))
    assert_equal_batches(global_batches(rows, 4, 2, steps), all_batches)
    assert sum(len(list(rows(context))) for context in contexts(4, 2)) == 4 * steps


@pytest.mark.slow
def test_label_out_of_range_is_reported_with_its_record(make_source):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"record \d+: got label 2, expected"):
        list(_evaluate(make_source("tfrecord"), global_batch_size=8, num_classes=2))


def test_mixing_requires_an_even_batch_per_replica(make_source):
    context = contexts(8, 1)[0]
    with raises("not-divisible"):
        _train(make_source("image_folder"), mixing=Mixing(num_classes=3), input_context=context)


def test_image_size_defaults_to_that_of_the_first_image(tmp_path):
    for number in range(6):
        (tmp_path / "ant").mkdir(exist_ok=True)
        (tmp_path / "ant" / f"{number}.jpg").write_bytes(jpeg(number, 9, 7))
    source = files.load(split="train", data_dir=str(tmp_path))
    assert source.image_shape == (9, 7, 3)
    settings = {"shape": source.image_shape, "resize": False, "global_batch_size": 6}
    (batch,) = _evaluate(source, **settings)
    expected = [tf.io.decode_jpeg(jpeg(number, 9, 7)).numpy() for number in range(6)]
    np.testing.assert_array_equal(batch["image"], expected)
    (tmp_path / "ant" / "3.jpg").write_bytes(jpeg(3, 9, 8))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"3.jpg: cannot be decoded"):
        list(_evaluate(source, **settings))


@pytest.fixture
def spoilt(tmp_path, own_cache):
    """Writes 20 images, some of which do not decode, and returns the names of those."""

    def make(kind, contents, places):
        images = [jpeg(number) for number in range(20)]
        for place, content in zip(places, contents, strict=True):
            images[place] = content
        folder = tmp_path / kind
        folder.mkdir()
        if kind == "tfrecord":
            for file, part in enumerate((images[:7], images[7:])):
                write_file(folder / f"train-{file}", [example(image, 1) for image in part])
            named = [(0, p) if p < 7 else (1, p - 7) for p in places]
            names = [f"{folder}/train-{file}: record {place}" for file, place in named]
            return records.load(data_dir=str(folder), input_path=["train*"], any_size=True), names
        (folder / "ant").mkdir()
        paths = [folder / "ant" / f"{number:02}.jpg" for number in range(20)]
        for path, image in zip(paths, images, strict=True):
            path.write_bytes(image)
        source = files.load(split="train", data_dir=str(folder))
        return source, [str(paths[place]) for place in places]

    return make


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["image_folder", "tfrecord"])
def test_bad_images_have_zero_weight_and_are_reported_once(spoilt, capfd, kind):
    places = [0, 7, 13, 19]
    source, names = spoilt(kind, [*GARBAGE.values(), cut_short(), b""], places)
    bad = BadImages("train_data", 4)
    # A little over three epochs, through two separate pipelines.
    for start in (0, 7):
        batches = _take(_train(source, bad=bad, start_step=start), 8)
        assert bad.count == 4
        assert all((batch["image"][batch["weight"] == 0] == 0).all() for batch in batches)
    weights = np.concatenate([batch["weight"] for batch in _take(_train(source, bad=bad), 5)])
    assert weights.sum() == 2 * (20 - 4)
    stderr = capfd.readouterr().err
    assert [stderr.count(f"{name}: cannot be decoded; bad image") for name in names] == [1] * 4
    assert "bad image 4 of at most 4 in train_data; its weight is 0" in stderr
    rows = _take(_evaluate(source, bad=BadImages("validation_data", 4), global_batch_size=8), 9)
    counted = np.concatenate([batch["weight"] for batch in rows])
    expected = [float(place < 20 and place not in places) for place in range(24)]
    np.testing.assert_array_equal(counted, expected)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["image_folder", "tfrecord"])
@pytest.mark.parametrize("limit", [0, 1])
def test_exceeding_max_bad_images_fails_with_the_image_name(spoilt, kind, limit):
    source, names = spoilt(kind, [b"", b"rubbish"], [3, 17])
    bad = BadImages("train_data", limit)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(_evaluate(source, bad=bad, global_batch_size=4))
    assert f"{names[limit]}: cannot be decoded" in str(caught.value)
    if limit:
        assert "bad image 2 of train_data, more than task.train_data.max_bad_images=1" in str(
            caught.value
        )
        assert bad.count == 2


def test_batch_of_only_bad_images_is_kept_with_zero_weight(spoilt):
    source, _ = spoilt("image_folder", [b"x"] * 4, [4, 5, 6, 7])
    batches = _take(_evaluate(source, bad=BadImages("v", 4), global_batch_size=4), 9)
    assert [batch["weight"].sum() for batch in batches] == [4, 0, 4, 4, 4]
    assert (batches[1]["image"] == 0).all()


@pytest.mark.slow
def test_cached_batches_do_not_read_files_again(make_source, tmp_path):
    dataset = _evaluate(make_source("image_folder"), global_batch_size=8, cache=True)
    expected = _take(dataset, 4)
    for path in (tmp_path / "image_folder").rglob("*.*"):
        path.unlink()
    assert_equal_batches(_take(dataset, 4), expected)
