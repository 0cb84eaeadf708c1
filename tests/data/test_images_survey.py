"""The channels of a dataset follow from all images."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from orbit_runner.config.schema.task_data import task_data
from orbit_runner.data import disk_cache
from orbit_runner.data.images.decode import decode_for_evaluation
from orbit_runner.data.images.headers import read_header
from orbit_runner.data.images.stored import StoredImages
from orbit_runner.models.configs import CnnConfig
from orbit_runner.tasks.image_classification import sources
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig
from orbit_runner.tasks.image_classification.inputs import ImageInputs
from orbit_runner.tasks.image_classification.sources import load_source
from orbit_runner.tasks.imbalance.config import MixtureSource
from tests.support.problems import pairs
from tests.support.tfrecords import example, write_file

_SIZE = (6, 5)


def _pixels(number):
    return np.random.default_rng(number).integers(0, 256, (*_SIZE, 3)).astype(np.uint8)


def _saved(number, mode, kind="PNG", **options):
    buffer = io.BytesIO()
    Image.fromarray(_pixels(number)).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def _deep(number):
    image = _pixels(number).astype(np.uint16) * 257
    return bytes(tf.io.encode_png(image).numpy())


_KINDS = {
    "gray": lambda number: _saved(number, "L"),
    "color": lambda number: _saved(number, "RGB"),
    "palette": lambda number: _saved(number, "P"),
    "rgba": lambda number: _saved(number, "RGBA"),
    "gray_alpha": lambda number: _saved(number, "LA"),
    "gray_jpeg": lambda number: _saved(number, "L", "JPEG"),
    "jpeg": lambda number: _saved(number, "RGB", "JPEG"),
    "cmyk_jpeg": lambda number: _saved(number, "CMYK", "JPEG"),
    "deep": _deep,
    "gif": lambda number: _saved(number, "P", "GIF"),
    "bmp": lambda number: _saved(number, "RGB", "BMP"),
}


def _files(*kinds):
    return [_KINDS[kind](number) for number, kind in enumerate(kinds)]


def _write_folder(root, files):
    for number, content in enumerate(files):
        path = root / "ab"[number % 2] / f"{number // 2:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _folder(root, files):
    for section in ("train", "val"):
        _write_folder(root / section, files)
    return {"source": "image_folder", "data_dir": str(root)}


def _records(root, files):
    root.mkdir(exist_ok=True)
    records = [example(content, number % 2) for number, content in enumerate(files)]
    write_file(root / "train-0", records[:1])
    write_file(root / "train-1", records[1:])
    return {"source": "tfrecord", "data_dir": str(root), "input_path": ["train-*"]}


_SOURCES = {
    "image_folder": _folder,
    "tfrecord": _records,
}


def _config(settings, *, is_training=True):
    return ImageDataConfig(is_training=is_training, global_batch_size=2, **settings)


def _task(train, validation):
    return ImageClassificationConfig(
        model=CnnConfig(name="cnn", num_classes=2),
        train_data=_config(train),
        validation_data=_config(validation, is_training=False),
    )


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.slow
@pytest.mark.parametrize("name", _SOURCES)
def test_first_gray_images_do_not_make_those_of_a_mixture_gray(name, tmp_path):
    parts = []
    for part, kinds in (("one", ("gray", "gray")), ("two", ("gray", "color"))):
        (tmp_path / part).mkdir()
        settings = _SOURCES[name](tmp_path / part, _files(*kinds))
        parts.append(MixtureSource(**settings))
    config = ImageDataConfig(
        is_training=True, global_batch_size=4, source=parts[0].source, mixture=tuple(parts)
    )
    source = load_source(config)
    assert source.spec()[0] == (*_SIZE, 3)
    images = next(iter(ImageInputs(source, config, 2).dataset(None, 0)))[0].numpy()
    assert images.shape == (4, *_SIZE, 3)
    assert (images[..., 0] != images[..., 1]).any()


@pytest.mark.parametrize(
    ("kinds", "channels"),
    [
        (("gray", "gray_jpeg", "gray_alpha"), 1),
        (("gray", "palette"), 3),
        (("gray_jpeg", "cmyk_jpeg"), 3),
        (("rgba", "rgba"), 4),
        (("rgba", "gray"), 3),
    ],
)
def test_channels_lose_no_color(kinds, channels, tmp_path):
    source = load_source(_config(_folder(tmp_path, _files(*kinds))))
    assert source.spec()[0][2] == channels


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3])
def test_every_image_can_be_decoded_and_is_served_alike(channels, tmp_path):
    gray = ("gray", "gray_jpeg", "gray_alpha")
    kinds = gray if channels == 1 else (*gray, "color", "jpeg", "cmyk_jpeg", "deep", "rgba")
    config = _config(_folder(tmp_path, _files(*kinds)), is_training=False)
    source = load_source(config)
    params = config.replace(global_batch_size=len(kinds))
    batches = ImageInputs(source, params, 2).dataset(None, 0)
    images = next(iter(batches))[0].numpy()
    assert images.shape == (len(kinds), *_SIZE, channels)
    for image, path in zip(images, source.paths, strict=True):
        served = decode_for_evaluation(
            tf.io.read_file(path), (*_SIZE, channels), center_crop_fraction=None
        )
        np.testing.assert_array_equal(image, served)


def test_model_for_images_with_transparency_accepts_files_without_it():
    for kind in ("jpeg", "gray_jpeg", "color", "cmyk_jpeg"):
        image = decode_for_evaluation(
            tf.constant(_KINDS[kind](0)), (*_SIZE, 4), center_crop_fraction=0.9
        )
        assert image.shape == (*_SIZE, 4)
        assert (image.numpy()[..., 3] == 255).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "train", "validation", "channels"),
    [
        ("image_folder", "rgba", "color", 4),
        ("tfrecord", "gray", "color", 1),
    ],
)
def test_validation_images_are_converted_to_the_channels_of_training(
    name, train, validation, channels, tmp_path
):
    for part in ("train", "val"):
        (tmp_path / part).mkdir()
    write = _SOURCES[name]
    config = _task(
        write(tmp_path / "train", _files(train, train)),
        write(tmp_path / "val", _files(validation, validation)),
    )
    assert [*task_data(config).problems()] == []
    source = load_source(config.validation_data).with_channels(channels)
    batches = ImageInputs(source, config.validation_data, 2).dataset(None, 0)
    assert next(iter(batches))[0].shape == (2, *_SIZE, channels)


@pytest.mark.parametrize("kind", [*_KINDS])
def test_header_tells_the_size_and_the_channels(kind):
    content = _KINDS[kind](1)
    header = read_header(content)
    channels = {"gray": 1, "gray_jpeg": 1, "gray_alpha": 1, "rgba": 4}.get(kind, 3)
    assert (header.height, header.width, header.channels) == (*_SIZE, channels)
    with pytest.raises(ValueError, match="bytes that start with"):
        read_header(content[:12])


@pytest.mark.parametrize("name", ["image_folder", "tfrecord"])
def test_headers_are_cached_until_a_file_changes(name, tmp_path, monkeypatch):
    monkeypatch.setattr(disk_cache, "KEPT_SECONDS", -1.0)
    config = _config(_SOURCES[name](tmp_path / "data", _files("gray", "gray")))
    dataset = load_source(config)
    assert isinstance(dataset, StoredImages)

    def load():
        sources._load_cached.cache_clear()
        return load_source(config).spec()[0][2]

    assert load() == 1
    with monkeypatch.context() as patch:
        patch.setattr(type(dataset), "headers", lambda self: pytest.fail("reads headers"))
        assert load() == 1
    _SOURCES[name](tmp_path / "data", _files("gray", "color"))
    assert load() == 3


@pytest.mark.parametrize("name", ["image_folder", "tfrecord"])
def test_images_of_different_sizes_require_an_input_size(name, tmp_path):
    odd = bytes(tf.io.encode_png(np.zeros((*_SIZE[::-1], 3), np.uint8)).numpy())
    settings = _SOURCES[name](tmp_path, [*_files("color", "color"), odd])
    config = _task(settings, settings)
    (problem,) = pairs(task_data(config).problems())
    assert problem[0] == "model.input_size"
    assert "the images of train_data have from 5 × 6 to 6 × 5 pixels" in problem[1]
    resized = config.replace(model=config.model.replace(input_size=[4, 4, 3]))
    assert [*task_data(resized).problems()] == []
