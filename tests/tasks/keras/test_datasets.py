"""The task `keras` on tables, images and objects that are read by index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.errors import ConfigError
from orbit_runner.registry import ARRAY_SOURCES
from orbit_runner.tasks.keras.data import KerasData
from orbit_runner.tasks.keras.sources import section_source, specs_of
from orbit_runner.tasks.keras.stream import StreamSource
from orbit_runner.tasks.keras.table_source import class_names
from tests.support import keras_models
from tests.support.array_records import write_array_file
from tests.support.images import write_folder
from tests.support.keras_models import keras_config
from tests.support.problems import pairs, raises
from tests.support.toy import run, run_and_resume

_HERE = "tests.tasks.keras.test_datasets"
# The base config has arrays in both sections.
_NO_ARRAYS = {
    "task__train_data__function": "''",
    "task__validation_data__source": "''",
    "task__validation_data__function": "''",
    "task__validation_data__arguments": "{}",
}


class Points:
    """Examples by index: two inputs and a class."""

    def __init__(self, size: int = 60, odd: int = -1) -> None:
        self.size = size
        self.odd = odd

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        point = np.random.default_rng(index).normal(size=5 if index == self.odd else 4)
        name = "even" if index % 2 == 0 else "odd"
        return {"point": point, "name": name, "y": np.int64(point[:3].argmax())}


class Batches(tf_keras.utils.Sequence):
    """Batches of six points, and a last one of two."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        count = 2 if index == 3 else 6
        x = np.arange(6 * index, 6 * index + count, dtype=np.float32)
        return np.stack([x] * 4, axis=1), np.arange(count) % 3


def with_texts() -> tf_keras.Model:
    """Returns a classifier of a point and the name of its parity."""
    point = tf_keras.Input([4], name="point")
    name = tf_keras.Input([], name="name", dtype="string")
    code = tf_keras.layers.StringLookup(vocabulary=["even", "odd"], output_mode="one_hot")(name)
    joined = tf_keras.layers.Concatenate()([point, code])
    hidden = tf_keras.layers.Dropout(0.5)(tf_keras.layers.Dense(8)(joined))
    return tf_keras.Model({"point": point, "name": name}, tf_keras.layers.Dense(3)(hidden))


def points(size: int = 60, odd: int = -1) -> Points:
    """Returns examples by index."""
    return Points(size, odd)


def batches() -> Batches:
    """Returns batches by index."""
    return Batches()


def _people(count: int = 90) -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    return pandas.DataFrame(
        {
            "age": rng.integers(18, 80, count),
            "city": rng.choice(["Rome", "Oslo", "Bonn"], count),
            "income": rng.normal(3, 1, count).round(3),
            "kind": rng.choice(["buyer", "guest", "visitor"], count),
        }
    )


def _table_config(path: Path, **changes: Any) -> Any:
    source = {".csv": "csv", ".parquet": "parquet", ".jsonl": "jsonl"}[path.suffix]
    return keras_config(
        **_NO_ARRAYS,
        task__train_data__source=source,
        task__train_data__input_path=str(path),
        task__outputs=changes.pop("task__outputs", "kind"),
        task__validation_split=changes.pop("task__validation_split", 0.2),
        **changes,
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    _people().to_csv(path, index=False)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_columns_of_a_table_are_inputs_by_their_names(tmp_path: Path, suffix: str) -> None:
    people, path = _people(), tmp_path / f"people{suffix}"
    if suffix == ".csv":
        people.to_csv(path, index=False)
    elif suffix == ".parquet":
        people.to_parquet(path)
    else:
        people.to_json(path, orient="records", lines=True)
    config = _table_config(path, task__validation_split=0.0).task
    source = section_source(config, "train_data")

    assert specs_of(source) == {
        "x.age": ((), "float32"),
        "x.city": ((), "string"),
        "x.income": ((), "float32"),
        "y": ((), "int32"),
    }
    np.testing.assert_array_equal(source.arrays["x"]["age"], people.age)
    assert source.arrays["x"]["city"].tolist() == people.city.tolist()
    assert class_names(config) == {"y": ("buyer", "guest", "visitor")}
    names = np.array(["buyer", "guest", "visitor"])[source.arrays["y"]]
    assert names.tolist() == people.kind.tolist()


def test_numbers_are_one_array_and_a_list_keeps_its_order(table: Path) -> None:
    people = _people()
    config = _table_config(table, task__inputs="[income, age]", task__validation_split=0.0).task
    source = section_source(config, "train_data")

    expected = people[["income", "age"]].to_numpy(np.float32)
    np.testing.assert_array_equal(source.arrays["x"], expected)


def test_inputs_and_outputs_by_name_choose_columns_and_kinds(table: Path) -> None:
    config = _table_config(
        table,
        task__inputs="{numbers: [age, income], age: {column: age}, place: city}",
        task__outputs="{kind: kind, income: {column: income, kind: number}}",
        task__weight_column="age",
        task__validation_split=0.0,
    ).task
    source = section_source(config, "train_data")

    assert specs_of(source) == {
        "x.numbers": ((2,), "float32"),
        "x.age": ((), "float32"),
        "x.place": ((), "string"),
        "y.kind": ((), "int32"),
        "y.income": ((), "float32"),
        "w": ((), "float32"),
    }


def _part_sources(config: Any) -> list[Any]:
    """Returns the examples of the parts for training, validation and a test."""
    test = config.replace(validation_data=config.validation_data.replace(split="test"))
    return [
        section_source(config, "train_data"),
        section_source(config, "validation_data"),
        section_source(test, "validation_data"),
    ]


def _places(config: Any, section: str) -> list[str]:
    source = section_source(config, section)
    return [source.array_location(number) for number in range(source.size)]


@pytest.mark.parametrize(
    "split",
    [
        {"task__validation_split": 0.2, "task__test_split": 0.2},
        {
            "task__validation_split": 0.0,
            "task__split": "{fractions: {train: .6, validation: .2, test: .2}, hash_of: [age]}",
        },
    ],
)
def test_parts_of_a_table_have_each_row_once_and_equal_rows_together(
    tmp_path: Path, split: dict[str, Any]
) -> None:
    path = tmp_path / "people.csv"
    pandas.concat([_people(), _people()]).to_csv(path, index=False)
    config = _table_config(path, **split).task
    test = config.replace(validation_data=config.validation_data.replace(split="test"))
    parts = [
        _places(config, "train_data"),
        _places(config, "validation_data"),
        _places(test, "validation_data"),
    ]

    assert all(parts)
    rows = [int(place.rpartition(" ")[2]) for part in parts for place in part]
    assert sorted(rows) == [*range(1, 181)]
    for part in parts:
        numbers = {int(place.rpartition(" ")[2]) for place in part}
        assert all((number + 90 in numbers) for number in numbers if number <= 90)


def test_parts_of_arrays_have_each_example_once() -> None:
    changes = {f"task__validation_data__{name}": "''" for name in ("source", "function")}
    config = keras_config(
        **changes,
        task__validation_data__arguments="{}",
        task__validation_split=0.2,
        task__test_split=0.3,
    ).task
    parts = _part_sources(config)

    rows = np.concatenate([part.rows for part in parts])
    assert sorted(rows.tolist()) == [*range(100)]
    assert 10 < parts[1].size < 30 < parts[0].size


def test_split_column_names_the_parts(tmp_path: Path) -> None:
    people = _people()
    people["part"] = ["train"] * 50 + ["validation"] * 30 + ["test"] * 10
    path = tmp_path / "people.csv"
    people.to_csv(path, index=False)
    config = _table_config(path, task__validation_split=0.0, task__split="{column: part}").task

    assert section_source(config, "train_data").size == 50
    assert section_source(config, "validation_data").size == 30
    assert "x.part" not in specs_of(section_source(config, "train_data"))


@pytest.mark.parametrize(
    ("changes", "setting", "message"),
    [
        ({"task__outputs": "knd"}, "outputs", "unknown column 'knd'; did you mean 'kind'?"),
        ({"task__inputs": "[age, plce]"}, "inputs", "unknown column 'plce'"),
        ({"task__inputs": "{a: {column: city, kind: number}}"}, "inputs",
         "column 'city': got 'Rome', expected a number"),
        ({"task__weight_column": "city"}, "weight_column",
         "column 'city': got 'Rome', expected a number"),
    ],
)  # fmt: skip
def test_wrong_column_is_reported_with_its_setting(
    table: Path, changes: dict[str, Any], setting: str, message: str
) -> None:
    config = _table_config(table, **changes).task

    assert message in dict(pairs(KerasData(config).problems()))[setting]


def test_missing_number_and_class_without_training_row_are_errors(tmp_path: Path) -> None:
    people = _people()
    people.loc[7, "income"] = np.nan
    people.to_csv(tmp_path / "people.csv", index=False)
    config = _table_config(tmp_path / "people.csv", task__validation_split=0.0).task
    with raises("bad-record"):
        section_source(config, "train_data")

    _people().to_csv(tmp_path / "train.csv", index=False)
    other = _people(5)
    other.loc[3, "kind"] = "gest"
    other.to_csv(tmp_path / "other.csv", index=False)
    config = _table_config(
        tmp_path / "train.csv",
        task__validation_split=0.0,
        task__validation_data__input_path=str(tmp_path / "other.csv"),
    ).task
    config = config.replace(validation_data=config.validation_data.replace(source="csv"))
    with raises("bad-record"):
        section_source(config, "validation_data")


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"task__image_size": "[8, 8]"}, "task.image_size"),
        ({"task__train_data__augment": "crop_flip"}, "task.train_data.augment"),
        ({"task__train_data__labels_file": "a.csv"}, "task.train_data.labels_file"),
        ({"task__train_data__split": "test"}, "task.train_data.split"),
        ({"task__outputs": "kind"}, "task.outputs"),
        ({"task__split": "{column: part}"}, "task.split"),
    ],
)
def test_setting_of_another_kind_of_data_is_an_error(changes: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        keras_config(**changes)

    assert [problem.path for problem in caught.value.problems] == [setting]


def test_objects_are_read_by_index() -> None:
    config = keras_config(task__train_data__function=f"{_HERE}:points").task
    source = section_source(config, "train_data")

    assert specs_of(source) == {
        "x.point": ((4,), "float32"),
        "x.name": ((), "string"),
        "y": ((), "int64"),
    }
    assert source.size == 60
    np.testing.assert_array_equal(source.arrays["x"]["point"][7], Points()[7]["point"].astype("f"))


def test_rows_of_batches_are_examples() -> None:
    config = keras_config(task__train_data__function=f"{_HERE}:batches").task
    source = section_source(config, "train_data")

    assert source.size == 20
    assert [source.arrays["x"][number][0] for number in (0, 5, 6, 19)] == [0, 5, 6, 19]


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
def test_run_on_objects_is_resumed_exactly(tmp_path: Path, strategy: str) -> None:
    config = keras_config(
        **_NO_ARRAYS | {"task__train_data__function": f"{_HERE}:points"},
        task__model=f"{_HERE}:with_texts",
        task__validation_split=0.2,
    )
    logs = run_and_resume(config, tmp_path, strategy).logs
    assert logs["validation_examples"] > 5


def test_object_whose_examples_differ_ends_the_run_with_its_index(tmp_path: Path) -> None:
    config = keras_config(
        **_NO_ARRAYS | {"task__train_data__function": f"{_HERE}:points"},
        task__train_data__arguments="{odd: 11}",
        task__model=f"{_HERE}:with_texts",
        task__validation_split=0.2,
    )
    with raises("bad-record"):
        run(config, tmp_path)


def shuffled(size: int = 50) -> tf.data.Dataset:
    """Returns a tf.data dataset of batches, the last of which is smaller, in random order."""
    x, y = keras_models.classes(size)
    examples = tf.data.Dataset.from_tensor_slices((x.astype(np.float32), y.astype(np.int32)))
    return examples.shuffle(20).batch(8)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
def test_run_of_a_tf_data_dataset_makes_the_batches_before_a_stop_again(
    tmp_path: Path, strategy: str
) -> None:
    config = keras_config(
        task__train_data__function=f"{_HERE}:shuffled",
        task__validation_data__function=f"{_HERE}:shuffled",
        task__validation_data__arguments="{size: 37}",
        task__metrics="[accuracy]",
    )
    logs = run_and_resume(config, tmp_path, strategy).logs
    assert logs["validation_examples"] == 37
    arrays = json.loads((tmp_path / "whole" / "assets" / "arrays.json").read_text())
    assert arrays["size"] == 50


def test_batches_of_a_tf_data_dataset_have_each_example_once() -> None:
    x, _ = keras_models.classes(50)
    source = StreamSource("shuffled", shuffled)
    section = keras_config(task__validation_data__global_batch_size=16).task.validation_data
    seen = []
    for replica_batch in source.evaluate(section, tf.distribute.InputContext(1, 0, 2)):
        points, _, counts = replica_batch
        assert points.shape == [8, 4]
        seen += points.numpy()[counts.numpy() > 0].tolist()

    assert sorted(seen) == sorted(x.astype(np.float32).tolist())


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"task__train_data__exclude": "[1]"}, "train_data.exclude"),
        ({"task__validation_split": 0.2, **_NO_ARRAYS,
          "task__train_data__function": f"{_HERE}:shuffled"}, "train_data.function"),
    ],
)  # fmt: skip
def test_what_needs_an_index_is_refused_for_a_tf_data_dataset(
    changes: dict[str, Any], setting: str
) -> None:
    changes = {"task__train_data__function": f"{_HERE}:shuffled", **changes}
    problems = dict(pairs(KerasData(keras_config(**changes).task).problems()))

    assert setting in problems


def test_hugging_face_dataset_is_a_table_or_images(tmp_path: Path) -> None:
    sources = [entry.name for entry in ARRAY_SOURCES.entries()]

    assert {"hugging_face", "hugging_face_images", "tfds", "tfds_images"} <= {*sources}
    assert keras_config(**_NO_ARRAYS, task__train_data__source="hugging_face",
                        task__outputs="kind").task.kind == "table"  # fmt: skip
    assert keras_config(**_NO_ARRAYS, task__train_data__source="hugging_face_images",
                        task__train_data__image_column="picture").task.kind == "images"  # fmt: skip


def _write_examples(path: Path, count: int = 30) -> None:
    """Writes records with two features and a label: TFRecord or ArrayRecord, as the name says."""
    records = []
    for number in range(count):
        values = {
            "pixels": tf.train.Feature(
                float_list=tf.train.FloatList(value=[number + k / 8 for k in range(4)])
            ),
            "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[f"n{number}".encode()])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 3 - 1])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=values))
        records.append(example.SerializeToString())
    if "array_record" in path.name:
        write_array_file(path, records)
    else:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                writer.write(record)


@pytest.mark.parametrize("name", ["train.tfrecord", "train.array_record"])
def test_features_of_records_are_inputs_and_outputs(tmp_path: Path, name: str) -> None:
    _write_examples(tmp_path / name)
    config = keras_config(
        **_NO_ARRAYS,
        task__train_data__source="tf_examples",
        task__train_data__input_path=str(tmp_path / name),
        task__train_data__feature_shapes="{pixels: [2, 2]}",
        task__outputs="label",
        task__validation_split=0.2,
    ).task
    train, validation = (
        section_source(config, section) for section in ("train_data", "validation_data")
    )

    assert specs_of(train) == {
        "x.name": ((), "string"),
        "x.pixels": ((2, 2), "float32"),
        "y": ((), "int64"),
    }
    assert train.size + validation.size == 30
    number = int(train.rows[4])
    pixels = train.arrays["x"]["pixels"][4]
    np.testing.assert_array_equal(pixels.ravel(), [number + k / 8 for k in range(4)])
    assert train.arrays["x"]["name"][4] == f"n{number}".encode()
    assert train.arrays["y"][4] == number % 3 - 1
    assert train.place(4).names == {"place": f"{tmp_path / name}, index {number}"}
    assert train.number_of(f"{name}:{number}") == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task__outputs": "lable"}, "no feature 'lable'; did you mean 'label'?"),
        ({"task__train_data__feature_shapes": "{pixels: [3]}"},
         "record 0: feature pixels: got 4 values, expected the shape [3]"),
    ],
)  # fmt: skip
def test_wrong_feature_is_an_error(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    _write_examples(tmp_path / "train.tfrecord", 3)
    settings = {"task__outputs": "label", **changes}
    config = keras_config(
        **_NO_ARRAYS,
        task__train_data__source="tf_examples",
        task__train_data__input_path=str(tmp_path / "train.tfrecord"),
        **settings,
    ).task

    assert message in dict(pairs(KerasData(config).problems()))["train_data.input_path"]


@pytest.mark.slow
def test_run_of_records_has_the_weights_of_a_run_of_their_arrays(tmp_path: Path) -> None:
    _write_examples(tmp_path / "train.tfrecord")
    changes = {
        "task__inputs": "[pixels]",
        "task__outputs": "label",
        "task__model": "{build: '', layers: [{Dense: {units: 1}}]}",
        "task__loss": "mse",
    }
    records = keras_config(
        **_NO_ARRAYS,
        task__train_data__source="tf_examples",
        task__train_data__input_path=str(tmp_path / "train.tfrecord"),
        **changes,
    )
    arrays = keras_config(
        **_NO_ARRAYS | {"task__train_data__function": f"{_HERE}:record_arrays"},
        task__model=changes["task__model"],
        task__loss="mse",
    )
    fingerprints = [
        weights_fingerprint(run(config, tmp_path / name, mode="train")[0])
        for name, config in (("records", records), ("arrays", arrays))
    ]

    assert fingerprints[0] == fingerprints[1]


def record_arrays() -> tuple[np.ndarray, np.ndarray]:
    """Returns the features of the records."""
    numbers = np.arange(30)
    pixels = numbers[:, None] + np.arange(4) / 8
    return pixels.astype(np.float32), numbers % 3 - 1


def test_missing_label_is_a_problem_of_the_outputs(tmp_path: Path) -> None:
    people = _people()
    people.loc[7, "income"] = np.nan
    people.to_csv(tmp_path / "people.csv", index=False)
    config = _table_config(tmp_path / "people.csv", task__outputs="income").task

    problems = dict(pairs(KerasData(config).problems()))
    assert "column 'income' has no value in 1 of" in problems["outputs"]


def test_batch_shows_file_and_class_of_an_image(tmp_path: Path) -> None:
    write_folder(tmp_path / "images" / "train", {"cat": 9, "dog": 8})
    config = keras_config(
        **_NO_ARRAYS,
        task__train_data__source="image_folder",
        task__train_data__data_dir=str(tmp_path / "images"),
        task__train_data__augment="inception",
        task__image_size="[12, 12]",
    ).task
    examples = KerasData(config).training_examples(config.train_data, None)
    row, *_ = examples.describe(examples.order.rows(0), np.arange(2))

    assert row["class"] in ("cat", "dog")
    assert {"file", "label"} < {*row}
