"""The task `keras` on images, tf.data datasets and objects that are read by index."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.config.errors import ConfigError
from orbit_runner.tasks.keras.data import KerasData
from orbit_runner.tasks.keras.sources import section_source
from orbit_runner.tasks.keras.task import KerasTask
from tests.support import keras_models
from tests.support.images import png, write_folder
from tests.support.keras_models import NO_ARRAYS, NO_VALIDATION, keras_config
from tests.support.problems import pairs, raises
from tests.support.toy import run, run_and_resume

_HERE = "tests.tasks.keras.test_datasets"
# The base config has arrays in both sections.


class Points:
    """Examples by index: two inputs and a class."""

    def __init__(self, size=60, odd=-1, odd_length=5):
        self.size = size
        self.odd = odd
        self.odd_length = odd_length

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        length = self.odd_length if index == self.odd else 4
        point = np.random.default_rng(index).normal(size=length)
        name = "even" if index % 2 == 0 else "odd"
        return {"point": point, "name": name, "y": np.int64(point[:3].argmax())}


def with_texts():
    """Returns a classifier of a point and the name of its parity."""
    point = tf_keras.Input([4], name="point")
    name = tf_keras.Input([], name="name", dtype="string")
    code = tf_keras.layers.StringLookup(vocabulary=["even", "odd"], output_mode="one_hot")(name)
    joined = tf_keras.layers.Concatenate()([point, code])
    hidden = tf_keras.layers.Dropout(0.5)(tf_keras.layers.Dense(8)(joined))
    return tf_keras.Model({"point": point, "name": name}, tf_keras.layers.Dense(3)(hidden))


def points(size=60, odd=-1, odd_length=5):
    """Returns examples by index."""
    return Points(size, odd, odd_length)


def test_validation_split_is_the_part_of_its_fraction():
    split = "{fractions: {validation: 0.2, test: 0.3, train: 0.5}}"
    config = keras_config(**NO_VALIDATION, task__split=split).task
    short = config.replace(split=None, validation_split=0.2)
    other = config.replace(split=config.split.replace(seed=1))
    rows, same, others = (
        section_source(task, "validation_data").places.rows.tolist()
        for task in (config, short, other)
    )
    assert rows == same != others
    assert 10 < len(rows) < 30


_CSV = {
    "task__validation_data__source": "csv",
    "task__validation_data__input_path": "a.csv",
    "task__validation_data__function": "''",
    "task__validation_data__arguments": "{}",
}


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"task__image_size": "[8, 8]"}, "task.image_size"),
        ({"task__train_data__augment": "crop_flip"}, "task.train_data.augment"),
        ({"task__train_data__labels_file": "a.csv"}, "task.train_data.labels_file"),
        ({"task__train_data__split": "test"}, "task.train_data.split"),
        ({"task__split": "{column: part}"}, "task.split.column"),
        (_CSV, "task.validation_data.source"),
    ],
)
def test_setting_of_another_kind_of_data_is_an_error(changes, setting):
    with pytest.raises(ConfigError) as caught:
        keras_config(**changes)

    assert [problem.path for problem in caught.value.problems] == [setting]


def test_objects_are_read_by_index():
    config = keras_config(task__train_data__function=f"{_HERE}:points").task
    source = section_source(config, "train_data")

    assert source.specs == {
        "x.point": ((4,), "float32"),
        "x.name": ((), "string"),
        "y": ((), "int64"),
    }
    assert source.size == 60
    np.testing.assert_array_equal(source.arrays["x"]["point"][7], Points()[7]["point"].astype("f"))


@pytest.mark.parametrize("length", [3, 5])
def test_object_whose_examples_differ_ends_the_run_with_its_index(length, tmp_path):
    config = keras_config(
        **NO_ARRAYS | {"task__train_data__function": f"{_HERE}:points"},
        task__train_data__arguments=f"{{odd: 11, odd_length: {length}}}",
        task__model=f"{_HERE}:with_texts",
        task__validation_split=0.2,
    )
    with raises("bad-record"):
        run(config, tmp_path)


def shuffled(size=50):
    """Returns a tf.data dataset of batches, the last of which is smaller, in random order."""
    x, y = keras_models.classes(size)
    examples = tf.data.Dataset.from_tensor_slices((x.astype(np.float32), y.astype(np.int32)))
    return examples.shuffle(20).batch(8)


@pytest.mark.slow
def test_run_of_a_tf_data_dataset_makes_the_batches_before_a_stop_again(tmp_path):
    config = keras_config(
        task__train_data__function=f"{_HERE}:shuffled",
        task__validation_data__function=f"{_HERE}:shuffled",
        task__validation_data__arguments="{size: 37}",
        task__metrics="[accuracy]",
    )
    logs = run_and_resume(config, tmp_path, "mirrored2").logs
    assert logs["validation_examples"] == 37
    arrays = json.loads((tmp_path / "whole" / "assets" / "arrays.json").read_text())
    assert arrays["size"] == 50


def test_batches_of_a_tf_data_dataset_have_each_example_once():
    x, _ = keras_models.classes(50)
    config = keras_config(
        task__train_data__function=f"{_HERE}:shuffled",
        task__validation_data__function=f"{_HERE}:shuffled",
        task__validation_data__arguments="{size: 50}",
        task__validation_data__global_batch_size=16,
    ).task
    seen = []
    context = tf.distribute.InputContext(1, 0, 2)
    for replica_batch in KerasTask(config).build_inputs(config.validation_data, context):
        points, _, counts = replica_batch
        assert points.shape == [8, 4]
        seen += points.numpy()[counts.numpy() > 0].tolist()

    assert sorted(seen) == sorted(x.astype(np.float32).tolist())


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"task__train_data__exclude": "[1]"}, "train_data.exclude"),
        ({"task__class_weights": "balanced"}, "class_weights"),
        ({"task__validation_split": 0.2, **NO_ARRAYS,
          "task__train_data__function": f"{_HERE}:shuffled"}, "train_data.function"),
    ],
)  # fmt: skip
def test_what_needs_an_index_is_refused_for_a_tf_data_dataset(changes, setting):
    changes = {"task__train_data__function": f"{_HERE}:shuffled", **changes}
    problems = dict(pairs(KerasData(keras_config(**changes).task).problems()))

    assert setting in problems


def test_batch_shows_file_and_class_of_an_image(tmp_path):
    write_folder(tmp_path / "images" / "train", {"cat": 9, "dog": 8})
    config = keras_config(
        **NO_ARRAYS,
        task__train_data__source="image_folder",
        task__train_data__data_dir=str(tmp_path / "images"),
        task__train_data__augment="inception",
        task__image_size="[12, 12]",
    ).task
    examples = KerasData(config).training_examples(config.train_data, None)
    row, *_ = examples.describe(examples.order.rows(0), np.arange(2))

    assert row["class"] in ("cat", "dog")
    assert {"file", "label"} < {*row}


def test_images_of_several_sizes_need_the_setting_of_this_task(tmp_path):
    for number in range(20):
        path = tmp_path / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png(number, 8, 8 + number))
    config = keras_config(
        **NO_ARRAYS,
        task__train_data__source="image_folder",
        task__train_data__data_dir=str(tmp_path),
        task__validation_split=0.5,
    ).task

    assert [problem.path for problem in KerasData(config).problems()] == ["image_size"]
