"""Validation examples that are also training examples, for each task and source."""

import shutil

import numpy as np
import pytest

from orbit_runner.config.resolve import load_config
from orbit_runner.data.images import stored
from orbit_runner.tasks.image_classification import sources
from orbit_runner.train.run_warnings import find_shared_examples
from tests.support.array_records import write_array_file
from tests.support.configs import config_of, in_both_sections
from tests.support.images import write_folder, write_tfds
from tests.support.keras_models import keras_config
from tests.support.tables import make_rows, table_config, write_csv
from tests.support.tfrecords import example, write_file

_CLASSES = {"cat": 6, "dog": 4}


def _images(**changes):
    base = {
        "task.name": "image_classification",
        "task.model.name": "mlp",
        "task.model.input_size": [8, 8, 3],
        "task.train_data.global_batch_size": 2,
        "task.validation_data.global_batch_size": 2,
        "trainer.train_steps": 1,
        "trainer.optimizer_config.optimizer.type": "sgd",
        "trainer.optimizer_config.learning_rate.type": "constant",
        "runtime.distribution_strategy": "one_device",
    }
    return config_of(base, **changes)


def _counts(config):
    assert not [*config.data.problems()]
    shared = find_shared_examples(config)
    return None if shared is None else (shared.count, shared.size)


def test_images_without_train_and_val_are_evaluated_on_themselves(tmp_path):
    write_folder(tmp_path, _CLASSES)
    both = in_both_sections(source="image_folder", data_dir=tmp_path)
    shared = find_shared_examples(_images(**both))

    assert str(shared).startswith("10 of 10 validation images are also training images, such as ")
    assert f"{tmp_path}/cat/" in str(shared)
    assert "put the images of each class into train/ and val/ in data_dir" in str(shared)


@pytest.mark.parametrize("way", ["copy", "link"])
def test_images_are_equal_under_other_names(way, tmp_path, monkeypatch):
    write_folder(tmp_path / "train", _CLASSES)
    paths = write_folder(tmp_path / "val", _CLASSES, first=100)
    config = _images(**in_both_sections(source="image_folder", data_dir=tmp_path))
    assert _counts(config) is None

    source = next((tmp_path / "train" / "dog").rglob("*.*"))
    target = paths[-1].with_name(f"other{source.suffix}")
    if way == "copy":
        shutil.copy(source, target)
    else:
        target.symlink_to(source)
    sources._load_cached.cache_clear()
    shared = find_shared_examples(config)

    assert (shared.count, shared.size) == (1, 11)
    assert shared.places == (str(target), str(source))

    monkeypatch.setattr(stored, "_MOST_COMPARED", 20)  # Both sections together have 21.
    assert find_shared_examples(config) is None


@pytest.mark.parametrize("most", [0, 10**6], ids=["by place", "by contents"])
@pytest.mark.parametrize("kind", ["tfrecord", "array_record"])
def test_records_in_patterns_that_overlap(kind, most, tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "_MOST_COMPARED", most)
    write = write_file if kind == "tfrecord" else write_array_file
    images = [np.random.default_rng(n).bytes(100) for n in range(9)]
    for number in range(3):
        records = [example(image, 0) for image in images[3 * number : 3 * number + 3]]
        write(tmp_path / f"part-{number}", records)
    both = in_both_sections(source=kind, data_dir=tmp_path) | {"task__model__num_classes": 2}
    paths = [
        {"task__train_data__input_path": "part-[01]", "task__validation_data__input_path": text}
        for text in ("part-[12]", "part-2")
    ]

    assert _counts(_images(**both, **paths[0])) == (3, 6)
    assert _counts(_images(**both, **paths[1])) is None


def test_splits_of_tfds_that_are_equal(tmp_path):
    write_tfds(tmp_path, "pets", {"train": [9, 11]}, ["a", "b"])
    config = _images(
        **in_both_sections(
            source="tfds", tfds_name="pets", tfds_data_dir=tmp_path, tfds_split="train"
        ),
    )

    assert _counts(config) == (20, 20)


def test_rows_of_a_table_without_a_split(tmp_path):
    shared = find_shared_examples(
        table_config(write_csv(tmp_path / "rows.csv", make_rows()), task__split=None)
    )

    assert (shared.count, shared.size) == (100, 100)
    assert "have the features of training rows, such as" in str(shared)
    assert str(shared).endswith("set task.split to evaluate on other rows")


def test_rows_of_a_large_table_are_compared_by_their_place(tmp_path, monkeypatch):
    monkeypatch.setattr("orbit_runner.tasks.table_checks._MOST_COMPARED_ROWS", 50)
    path = write_csv(tmp_path / "rows.csv", make_rows())

    assert _counts(table_config(path, task__split=None)) == (100, 100)
    assert _counts(table_config(path, task__split__hash_of=["id"])) is None


def test_categories_that_are_long_numbers_are_compared_as_texts(tmp_path):
    # As float32 numbers, some of them would be equal.
    rows = [{"code": 123_456_000 + number, "y": "ab"[number % 2]} for number in range(80)]
    train, validation = (
        write_csv(tmp_path / f"{name}.csv", part)
        for name, part in (("train", rows[:41]), ("validation", rows[40:]))
    )
    config = table_config(
        train,
        task__features={"categorical": ["code"]},
        task__split=None,
        task__validation_data__input_path=validation,
    )

    assert _counts(config) == (1, 40)


def test_texts_in_both_sections(tmp_path):
    for name in ("train", "val"):
        (tmp_path / f"{name}.en").write_text(f"a red cat {name}\na dog\n")
        (tmp_path / f"{name}.de").write_text(f"eine Katze {name}\n")
    files = {
        f"task.{section}.files": {"English": f"{name}.en", "German": f"{name}.de"}
        for section, name in (("train_data", "train"), ("validation_data", "val"))
    }
    places = {name.replace(".files", ".data_dir"): str(tmp_path) for name in files}

    assert _counts(load_config("text_language", overrides={**files, **places})) == (1, 3)


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, None),
        ({"task__validation_data__arguments": {"seed": 1}}, (100, 100)),
    ],
)
def test_arrays_of_a_keras_model(changes, counts):
    base = {
        "task__train_data__function": "tests.support.keras_models:classes",
        "task__validation_data__function": "tests.support.keras_models:classes",
        "task__validation_data__arguments": {"seed": 2},
    }

    assert _counts(keras_config(**{**base, **changes})) == counts


def test_examples_that_are_left_out_of_training_are_not_shared(tmp_path):
    path = write_csv(tmp_path / "rows.csv", make_rows())
    config = table_config(path, task__split=None, task__train_data__exclude=[*range(100)][:40])

    assert _counts(config) == (60, 100)
