"""The task on image files: class directories, TFRecords and prepared datasets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.arrays import RepeatedArray
from orbit_runner.data.dataset import class_difference
from orbit_runner.data.images.decode import decode_for_evaluation
from orbit_runner.data.images.headers import NATURAL_MEAN
from orbit_runner.tasks.base import WeightedLabels
from orbit_runner.tasks.image_classification.sources import load_source, pixel_statistics
from orbit_runner.tasks.image_classification.task import ImageClassificationTask
from tests.support.array_records import write_array_file
from tests.support.digits import digits_config
from tests.support.images import (
    refused_problems,
    write_folder,
    write_listed,
    write_records,
    write_tfds,
)
from tests.support.problems import pairs, raises
from tests.support.toy import run, run_and_resume

_SIZE = [12, 10, 3]
_TRAIN, _EVAL = "task__train_data__", "task__validation_data__"
_RECIPE = {
    f"{_TRAIN}augment": "inception",
    f"{_TRAIN}color_jitter": 0.4,
    f"{_TRAIN}random_erasing": {"probability": 0.5},
    f"{_TRAIN}aug_type": {"type": "randaug", "randaug": {"magnitude": 5, "cutout_const": 4}},
    f"{_TRAIN}mixup_and_cutmix": {"mixup_alpha": 0.2},
}


@pytest.fixture
def files_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "set"
    write_folder(root / "folder" / "train", {"ant": 7, "bee": 9, "cat": 8})
    write_folder(root / "folder" / "val", {"ant": 3, "cat": 4}, first=50)
    write_records(root / "records", [20, 9], classes=3, offset=1)
    write_tfds(root / "tfds", "toy", {"train": (20, 13), "validation": (6,)}, ["a", "b", "c"])
    write_records(root / "arrays", [20, 9], classes=3, offset=1, write=write_array_file)
    write_listed(root, {"ant": 9, "bee": 10, "cat": 11})
    arrays = {"train": (20, 13), "test": (5,)}
    write_tfds(root / "tfds", "arrays", arrays, ["a", "b", "c"], file_format="array_record")
    places: dict[str, dict[str, Any]] = {
        "image_folder": {"data_dir": str(root / "folder")},
        "tfrecord": {"data_dir": str(root / "records"), "input_path": "train*", "label_offset": 1},
        "tfds": {"tfds_data_dir": str(root / "tfds"), "tfds_name": "toy"},
        "tfds arrays": {"tfds_data_dir": str(root / "tfds"), "tfds_name": "arrays"},
        "array_record": {
            "data_dir": str(root / "arrays"), "input_path": "train*", "label_offset": 1,
        },
        "image_csv": {
            "data_dir": str(root), "input_path": "images", "labels_file": "labels.csv",
        },
    }  # fmt: skip

    def config(kind: str, **changes: Any) -> ExperimentConfig:
        settings: dict[str, Any] = {
            "task__model__input_size": _SIZE,
            "task__model__num_classes": 3,
            f"{_TRAIN}global_batch_size": 8,
            f"{_EVAL}global_batch_size": 8,
            **{f"trainer__{name}_interval": 3 for name in ("validation", "checkpoint", "summary")},
            "trainer__train_steps": 3,
        }
        if kind == "image_csv":
            settings["task__split__column"] = "part"
        for section in (_TRAIN, _EVAL):
            settings[f"{section}source"] = kind.partition(" ")[0]
            settings |= {f"{section}{name}": value for name, value in places[kind].items()}
        return digits_config(**{**settings, **changes})

    return config


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("image_folder", 7),
        ("tfrecord", 29),
        ("tfds", 6),
        ("tfds arrays", 5),
        ("array_record", 29),
        ("image_csv", 7),
    ],
)
def test_run_on_image_files_trains_and_evaluates(
    files_config: Callable[..., ExperimentConfig], tmp_path: Path, kind: str, count: int
) -> None:
    recipe = _RECIPE if kind == "tfds" else {f"{_TRAIN}augment": "inception"}
    config = files_config(kind, **recipe)
    assert list(config.data.problems()) == []
    model, results = run(config, tmp_path / "run")
    assert model.input_shape == (None, *_SIZE)
    assert results["validation_examples"] == count
    assert np.isfinite(results["validation_loss"])
    assert 0 <= results["accuracy"] <= 1


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize("kind", ["image_csv", "array_record", "tfds", "tfds arrays"])
def test_stopped_and_resumed_run_ends_with_the_same_weights(
    files_config: Callable[..., ExperimentConfig], tmp_path: Path, kind: str, strategy: str
) -> None:
    # The first epoch ends within step 5.
    config = files_config(kind, **{f"{_TRAIN}augment": "inception", "trainer__train_steps": 6})
    run_and_resume(config, tmp_path / "runs", strategy, at=3)


def test_classes_of_validation_images_must_be_those_of_training(
    files_config: Callable[..., ExperimentConfig], tmp_path: Path
) -> None:
    labels = tmp_path / "set" / "labels.csv"
    lines = labels.read_text().splitlines()
    other = labels.with_name("other.csv")
    other.write_text("file,kind\n" + "\n".join(",".join(one.split(",")[:2]) for one in lines[1:9]))
    named = {f"{_TRAIN}labels_file": "other.csv", "task__split__column": "''", "task__split": None}
    found = dict(pairs(files_config("image_csv", **named).data.problems()))
    assert found["validation_data.source"].endswith(
        "\nset validation_data.classes_file to the labels_file of train_data"
    )


@pytest.mark.slow
def test_bad_images_are_skipped_and_reported_up_to_the_limit(
    files_config: Callable[..., ExperimentConfig],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    places = sorted((tmp_path / "set" / "folder" / "train").rglob("*.jpg"))[:2]
    for place in places:
        place.write_bytes(b"rubbish")
    with raises("bad-record") as caught:
        run(files_config("image_folder"), tmp_path / "strict", "train")
    assert caught.value.field == "data_dir"
    config = files_config("image_folder", **{f"{_TRAIN}max_bad_images": 2})
    run(config, tmp_path / "run", "train")
    told = capfd.readouterr().err
    assert all(told.count(f"{place}: cannot be decoded; bad image") == 1 for place in places)


def test_loss_and_accuracy_accept_mixed_labels() -> None:
    task = ImageClassificationTask(digits_config().task)  # type: ignore[arg-type]
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


def test_contradictory_image_settings_are_rejected(
    files_config: Callable[..., ExperimentConfig],
) -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"task__model__input_size": None, f"{_TRAIN}augment": "inception"},
         "train_data.augment", "requires model.input_size"),
        ({"task__model__input_size": [8, 8, 1], f"{_TRAIN}color_jitter": 0.1},
         "train_data.color_jitter", "requires images with 3 channels"),
        ({f"{_EVAL}color_jitter": 0.1}, "validation_data.color_jitter", "augments training images"),
        ({f"{_TRAIN}label_offset": 1}, "train_data.label_offset", "'tfrecord' or 'array_record'"),
        ({f"{_TRAIN}tfds_name": "toy"}, "train_data.tfds_name", "only by source 'tfds',"),
        ({f"{_TRAIN}crop_area_range": [0.9, 0.1]}, "train_data.crop_area_range", "minimum"),
        ({f"{_TRAIN}aug_type": {"type": "randaug", "randaug": {"magnitude_std": 0.5}}},
         "train_data.aug_type.randaug.magnitude_std", "operations fail"),
        ({f"{_TRAIN}labels_file": "a.csv"}, "train_data.labels_file", "only by source 'image_csv'"),
        ({f"{_TRAIN}split": "trian"}, "train_data.split", "did you mean 'train'?"),
        ({f"{_TRAIN}source": "array_record", "task__model__num_classes": None},
         "model.num_classes", "`source: array_record` does not contain"),
        ({f"{_TRAIN}source": "image_csv"}, "train_data.labels_file", "is not set; for example, la"),
        ({f"{_TRAIN}source": "image_csv", f"{_TRAIN}labels_file": "a.csv", f"{_TRAIN}split": "a"},
         "train_data.split", "got 'a', but task.split is not set"),
    ]  # fmt: skip
    for changes, path, part in cases:
        found = refused_problems(lambda changes=changes: files_config("image_folder", **changes))
        assert list(found) == [f"task.{path}"]
        assert part in found[f"task.{path}"]
    found = refused_problems(lambda: files_config("tfds", **{f"{_TRAIN}data_dir": "x"}))
    assert found == {"task.train_data.data_dir": "is not read by `source: tfds`; set tfds_data_dir"}


def test_preflight_reports_image_sizes_unsupported_by_the_network() -> None:
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
def test_classes_that_differ_are_named_by_side(labels: tuple[str, ...], text: str) -> None:
    assert class_difference(labels, ("a", "b"), "train_data") == text


def test_synthetic_images_match_the_network_and_use_little_memory() -> None:
    config = digits_config(
        task__model__input_size=[224, 224, 3], task__model__num_classes=7,
        task__train_data__source="synthetic", task__train_data__augment="inception",
        task__train_data__synthetic__num_examples=5000, task__validation_data__source="synthetic",
    )  # fmt: skip
    task = ImageClassificationTask(config.task)  # type: ignore[arg-type]
    source = load_source(config.task.train_data, [224, 224, 3], 7)
    images = source.arrays["image"]
    assert isinstance(images, RepeatedArray)
    assert images.rows.nbytes <= 2**26
    assert source.size == 5000
    labels = source.arrays["label"]
    assert (labels.min(), labels.max()) == (0, 6)
    image, label = next(iter(task.build_inputs(config.task.train_data)))
    assert image.shape == (64, 224, 224, 3)
    assert image.dtype == tf.uint8
    assert int(tf.reduce_max(label)) < 7


@pytest.mark.slow
def test_in_memory_images_are_resized_to_the_input_size(tmp_path: Path) -> None:
    config = digits_config(
        task__model__input_size=[16, 12, 3], task__train_data__augment="inception",
        task__train_data__crop_area_range=[0.5, 1.0],
    )  # fmt: skip
    task = ImageClassificationTask(config.task)  # type: ignore[arg-type]
    image, _ = next(iter(task.build_inputs(config.task.train_data)))
    assert image.shape == (64, 16, 12, 3)
    rows = list(task.build_inputs(config.task.validation_data))
    assert sum(float(tf.reduce_sum(weight)) for *_, weight in rows) == 359
    raw = load_source(config.task.validation_data).arrays["image"][:1]
    whole = tf.image.resize(tf.image.grayscale_to_rgb(tf.constant(raw)), [16, 12])
    np.testing.assert_array_equal(rows[0][0][:1], tf.cast(tf.round(whole), tf.uint8))


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.5, None])
def test_evaluation_uses_the_configured_center_crop(
    files_config: Callable[..., ExperimentConfig], tmp_path: Path, fraction: float | None
) -> None:
    config = files_config("image_folder", **{f"{_EVAL}center_crop_fraction": fraction})
    task = ImageClassificationTask(config.task)  # type: ignore[arg-type]
    image, *_ = next(iter(task.build_inputs(config.task.validation_data)))
    first = Path(load_source(config.task.validation_data).paths[0])  # type: ignore[union-attr]
    expected = decode_for_evaluation(
        tf.constant(first.read_bytes()), _SIZE, center_crop_fraction=fraction
    )
    np.testing.assert_array_equal(image[0], expected)


def test_natural_images_use_the_statistics_of_imagenet(
    files_config: Callable[..., ExperimentConfig],
) -> None:
    for kind in ("image_folder", "tfrecord", "tfds"):
        source = load_source(files_config(kind).task.train_data)
        assert pixel_statistics(source, _SIZE)[0] == NATURAL_MEAN
        assert pixel_statistics(source)[0] == (127.5,)
    digits = load_source(digits_config().task.train_data)
    assert pixel_statistics(digits, [32, 32, 3])[0] == digits.mean
