"""The task on images in files: each source, its splits, wrong settings, and exact resumes."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.config.errors import ConfigError
from orbit_runner.data.arrays import Gathered
from orbit_runner.data.dataset import class_difference
from orbit_runner.data.images import NATURAL_MEAN
from orbit_runner.data.images.decode import decode_for_evaluation
from orbit_runner.tasks.base import WeightedLabels
from orbit_runner.tasks.image_classification.sources import (
    load_source,
    pixel_statistics,
    section_source,
)
from orbit_runner.tasks.image_classification.task import ImageClassificationTask
from orbit_runner.train.run_warnings import find_shared_examples
from tests.support.array_records import write_array_file
from tests.support.digits import digits_config
from tests.support.hugging_face import class_label, image_table, save_to_disk
from tests.support.images import (
    png,
    write_folder,
    write_listed,
    write_records,
    write_tfds,
)
from tests.support.problems import pairs, raises
from tests.support.toy import run

_SIZE = [12, 10, 3]
_TRAIN, _EVAL = "task__train_data__", "task__validation_data__"
_SECTIONS = ("train_data", "validation_data")
_FRACTIONS = {"train": 0.7, "validation": 0.3}
_COUNTS = {"ant": 20, "bee": 12, "cat": 9}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The same 41 images in each format, which tests only read."""
    root = tmp_path_factory.mktemp("images")
    names = [*_COUNTS]
    write_folder(root / "image_folder" / "train", _COUNTS)
    write_folder(root / "image_folder" / "val", {"ant": 3, "cat": 4}, first=50)
    write_listed(root / "image_csv", _COUNTS)
    write_records(root / "tfrecord", [25, 16], classes=3, offset=1)
    write_records(root / "array_record", [25, 16], classes=3, offset=1, write=write_array_file)
    write_tfds(root, "toy", {"train": (25, 16), "validation": (6,)}, names)
    arrays = {"train": (25, 16), "test": (5,)}
    write_tfds(root, "arrays", arrays, names, file_format="array_record")
    table = image_table([png(n) for n in range(41)], kind=[n % 3 for n in range(41)])
    features = {"image": {"_type": "Image"}, "kind": class_label(*names)}
    save_to_disk(root / "hugging_face", table, features)
    return root


@pytest.fixture
def make_config(root, tmp_path, own_cache):
    records = {"input_path": "train*", "label_offset": 1}
    places = {
        "image_csv": {"input_path": "images", "labels_file": "labels.csv"},
        "tfrecord": records,
        "array_record": records,
        "tfds": {"tfds_data_dir": str(root), "tfds_name": "toy"},
        "tfds arrays": {"tfds_data_dir": str(root), "tfds_name": "arrays"},
    }

    def make(kind, **changes):
        settings = {
            "task__model__input_size": _SIZE,
            "task__model__num_classes": 3,
            **{f"trainer__{name}_interval": 4 for name in ("validation", "checkpoint", "summary")},
            "trainer__train_steps": 4,
        }
        if kind == "image_csv" and "task__split__fractions" not in changes:
            settings["task__split__column"] = "part"
        for section in (_TRAIN, _EVAL):
            own = {"source": kind.partition(" ")[0], "global_batch_size": 8, **places.get(kind, {})}
            if "tfds" not in kind:
                own["data_dir"] = str(root / kind)
            settings |= {f"{section}{name}": value for name, value in own.items()}
        return digits_config(**{**settings, **changes})

    return make


def _split(make_config, kind, **changes):
    """The config of both sections on parts of the same images."""
    place = {}
    if kind == "image_folder":
        folder = make_config(kind).task.train_data.data_dir
        place = {f"{section}data_dir": f"{folder}/train" for section in (_TRAIN, _EVAL)}
    settings = {"task__split__fractions": _FRACTIONS, **place, **changes}
    return make_config(kind, **settings)


def _places(config, section):
    source = section_source(config.task, getattr(config.task, section))
    return [str(source.place(number)) for number in range(source.size)]


@pytest.mark.slow
def test_every_augmentation_reaches_the_training_images(make_config):
    """Each changes pixels: erasing, jitter of colors, RandAugment and mixed images."""
    recipe = {
        "color_jitter": 0.4,
        "random_erasing": {"probability": 1.0},
        "aug_type": {"type": "randaug", "randaug": {"magnitude": 5, "cutout_const": 4}},
        "mixup_and_cutmix": {"mixup_alpha": 0.2},
    }
    seen = set()
    for name in ("", *recipe):
        changes = {f"{_TRAIN}{name}": recipe[name]} if name else {}
        config = make_config("tfds", **{f"{_TRAIN}augment": "inception"}, **changes)
        task = ImageClassificationTask(config.task)
        image, *_ = next(iter(task.build_inputs(config.task.train_data)))
        seen.add(image.numpy().tobytes())
    assert len(seen) == 1 + len(recipe)


@pytest.mark.parametrize(
    "kind",
    ["image_folder", "image_csv", "tfrecord", "array_record", "hugging_face", "tfds arrays"],
)
def test_the_sections_read_separate_parts_of_the_same_images(make_config, kind):
    config = _split(make_config, kind)
    assert [*config.data.problems()] == []
    train, validation = (_places(config, section) for section in _SECTIONS)
    assert len(set(train) | set(validation)) == len(train) + len(validation) == 41
    assert 5 <= len(validation) <= 20
    assert find_shared_examples(config) is None
    if kind != "tfds arrays":  # Without a split, evaluation reads another split of the dataset.
        shared = find_shared_examples(_split(make_config, kind, task__split=None))
        assert shared.count == shared.size == 41
        assert "task.split" in shared.advice


@pytest.mark.parametrize(
    ("kind", "split", "path", "message"),
    [
        ("array_record", {"hash_of": ["id"]}, "split.hash_of", "the images have no columns"),
        ("image_csv", {"hash_of": ["persn"]}, "split.hash_of", "unknown column 'persn'"),
        ("hugging_face", {"hash_of": ["kid"]}, "split.hash_of", "unknown column 'kid'"),
        ("image_folder", {"fractions": {"train": 0.9, "validation": 1e-6}},
         "validation_data.split", "part 'validation' has no rows of 41"),
    ],
)  # fmt: skip
def test_what_cannot_be_split_is_named(make_config, kind, split, path, message):
    changes = {f"task__split__{name}": value for name, value in split.items()}
    config = _split(make_config, kind, **changes)
    assert message in dict(pairs(config.data.problems()))[path]


@pytest.mark.parametrize(
    ("kind", "setting"), [("tfds", "tfds_split"), ("hugging_face", "hugging_face_split")]
)
def test_split_of_a_section_that_another_setting_chooses_is_refused(make_config, kind, setting):
    with pytest.raises(ConfigError) as caught:
        make_config(kind, **{f"{_EVAL}split": "train"})
    (problem,) = caught.value.problems
    assert problem.path == "task.validation_data.split"
    assert f"{setting} chooses a part" in problem.message


def test_sources_of_a_mixture_are_split(make_config, tmp_path):
    mixture = [{"weight": 1.0}, {"weight": 1.0, "data_dir": str(tmp_path / "more")}]
    write_folder(tmp_path / "more", {"ant": 10, "bee": 10, "cat": 10}, first=200)
    config = _split(make_config, "image_folder", task__train_data__mixture=mixture)
    mixed = _places(config, "train_data")
    alone = _places(_split(make_config, "image_folder"), "train_data")
    assert mixed[: len(alone)] == alone
    assert 10 < len(mixed) - len(alone) < 30


def test_classes_of_validation_images_must_be_those_of_training(make_config, root):
    labels = root / "image_csv" / "labels.csv"
    lines = labels.read_text().splitlines()
    kinds = [",".join(line.split(",")[:2]) for line in lines[1:] if ",cat," not in line]
    labels.with_name("other.csv").write_text("file,kind\n" + "\n".join(kinds))
    named = {f"{_TRAIN}labels_file": "other.csv", "task__split__column": "''", "task__split": None}
    problems = dict(pairs(make_config("image_csv", **named).data.problems()))
    assert problems["validation_data.source"].endswith(
        "\nset validation_data.classes_file to the labels_file of train_data"
    )


@pytest.mark.slow
def test_bad_images_are_skipped_and_reported_up_to_the_limit(make_config, tmp_path, capfd):
    write_folder(tmp_path / "bad", {"ant": 7, "bee": 9, "cat": 8})
    places = sorted((tmp_path / "bad").rglob("*.jpg"))[:2]
    for place in places:
        place.write_bytes(b"rubbish")
    changes = {f"{_TRAIN}data_dir": str(tmp_path / "bad")}
    with raises("bad-record") as caught:
        run(make_config("image_folder", **changes), tmp_path / "strict", "train")
    assert caught.value.field == "data_dir"
    config = make_config("image_folder", **changes, **{f"{_TRAIN}max_bad_images": 2})
    run(config, tmp_path / "run", "train")
    stderr = capfd.readouterr().err
    assert all(stderr.count(f"{place}: cannot be decoded; bad image") == 1 for place in places)


def test_loss_and_accuracy_accept_mixed_labels():
    task = ImageClassificationTask(digits_config().task)
    logits = tf.constant([[2.0] + [0.0] * 9, [0.0] * 9 + [1.0]])
    shares = np.zeros((2, 10), np.float32)
    shares[0, [0, 3]], shares[1, [4, 9]] = (0.75, 0.25), (0.6, 0.4)
    losses = task.example_losses(tf.constant(shares), logits)
    log = tf.nn.log_softmax(logits).numpy()
    np.testing.assert_allclose(losses, -(shares * log).sum(axis=1), rtol=1e-6)
    for training, names in ((True, ["accuracy"]), (False, ["accuracy", "top_5_accuracy"])):
        metrics = task.build_metrics(training=training)
        assert [metric.name for metric in metrics] == names
        task.process_metrics(metrics, tf.constant(shares), logits)
        assert metrics[0].result() == 0.5
        weights = tf.constant([1.0, 0.0])
        weighted = WeightedLabels(tf.constant(shares), weights, weights)
        task.process_metrics(metrics, weighted, logits)
        assert float(metrics[0].result()) == pytest.approx(2 / 3)


def test_preflight_reports_image_sizes_unsupported_by_the_network():
    config = digits_config(task__model={"name": "vit", "model_name": "vit-ti16"})
    ((field, message),) = pairs(config.data.problems())
    assert field == "model.input_size"
    assert message.startswith("got images of 8 × 8 pixels, expected multiples of 16")
    config = digits_config(
        task__model={"name": "vit", "model_name": "vit-ti16", "input_size": [32, 32, 1]}
    )
    assert list(config.data.problems()) == []


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (("a", "c"), "has other classes than train_data: only here c; only in train_data b"),
        (("a",), "has other classes than train_data: only in train_data b"),
        (("b", "a"), "has the classes of train_data in another order: b, a, expected a, b"),
        (tuple("abcdefghi"), "has other classes than train_data: only here c, d, e, f, g "
         "and 2 more"),
    ],
)  # fmt: skip
def test_classes_that_differ_are_named_by_side(labels, text):
    assert class_difference(labels, ("a", "b"), "train_data") == text


def test_synthetic_images_match_the_network_and_use_little_memory():
    config = digits_config(
        task__model__input_size=[224, 224, 3], task__model__num_classes=7,
        task__train_data__source="synthetic", task__train_data__augment="inception",
        task__train_data__synthetic__num_examples=5000, task__validation_data__source="synthetic",
    )  # fmt: skip
    task = ImageClassificationTask(config.task)
    source = load_source(config.task.train_data, [224, 224, 3], 7)
    images = source.arrays["image"]
    assert isinstance(images, Gathered)
    assert images.nbytes <= 2**26
    assert source.size == 5000
    labels = source.arrays["label"]
    assert (labels.min(), labels.max()) == (0, 6)
    image, label = next(iter(task.build_inputs(config.task.train_data)))
    assert image.shape == (64, 224, 224, 3)
    assert image.dtype == tf.uint8
    assert int(tf.reduce_max(label)) < 7


@pytest.mark.slow
def test_in_memory_images_are_resized_to_the_input_size(tmp_path):
    config = digits_config(
        task__model__input_size=[16, 12, 3], task__train_data__augment="inception",
        task__train_data__crop_area_range=[0.5, 1.0],
    )  # fmt: skip
    task = ImageClassificationTask(config.task)
    image, _ = next(iter(task.build_inputs(config.task.train_data)))
    assert image.shape == (64, 16, 12, 3)
    rows = list(task.build_inputs(config.task.validation_data))
    assert sum(float(tf.reduce_sum(weight)) for *_, weight in rows) == 359
    raw = load_source(config.task.validation_data).arrays["image"][:1]
    resized = tf.image.resize(tf.image.grayscale_to_rgb(tf.constant(raw)), [16, 12])
    np.testing.assert_array_equal(rows[0][0][:1], tf.cast(tf.round(resized), tf.uint8))


@pytest.mark.slow
def test_evaluation_uses_the_configured_center_crop(make_config):
    config = make_config("image_folder", **{f"{_EVAL}center_crop_fraction": 0.5})
    task = ImageClassificationTask(config.task)
    image, *_ = next(iter(task.build_inputs(config.task.validation_data)))
    first = Path(load_source(config.task.validation_data).location(0))
    expected = decode_for_evaluation(
        tf.constant(first.read_bytes()), _SIZE, center_crop_fraction=0.5
    )
    np.testing.assert_array_equal(image[0], expected)


def test_natural_images_use_the_statistics_of_imagenet(make_config):
    for kind in ("image_folder", "tfrecord", "tfds"):
        source = load_source(make_config(kind).task.train_data)
        assert pixel_statistics(source, _SIZE)[0] == NATURAL_MEAN
        assert pixel_statistics(source)[0] == (127.5,)
    digits = load_source(digits_config().task.train_data)
    assert pixel_statistics(digits, [32, 32, 3])[0] == digits.mean
