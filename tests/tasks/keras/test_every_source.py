"""A Keras model on every data source: stopped and resumed, without some examples, and on parts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.schema.task_data import task_data
from orbit_runner.registry import ARRAY_SOURCES
from orbit_runner.train.stop_requests import StoppedAtStep
from tests.support.array_records import write_array_file
from tests.support.hugging_face import class_label, image_table, save_to_disk
from tests.support.images import jpeg, write_folder, write_listed, write_records, write_tfds
from tests.support.keras_models import keras_config
from tests.support.tables import write_arrow_rows
from tests.support.tfrecords import write_file
from tests.support.toy import run

_HERE = "tests.tasks.keras.test_every_source"
_TABLES = ("csv", "jsonl", "parquet", "hugging_face", "breast_cancer", "diabetes")
_IMAGES = (
    *("image_folder", "image_csv", "tfrecord", "array_record", "hugging_face_images"),
    *("tfds_images", "digits", "mnist"),
)
_ARRAYS = ("arrays", "npz", "tf_examples")
# Of a program that passes arrays; the format of CIFAR-10 is like that of MNIST, and its files are
# large; tables of TFDS are prepared by its package.
_OTHERS = ("memory", "cifar10", "tfds")


def of_numbers(width: int = 4) -> tf_keras.Model:
    """Returns a classifier of numbers."""
    layers = tf_keras.layers
    return tf_keras.Sequential(
        [layers.Input([width]), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(3)]
    )


def of_texts() -> tf_keras.Model:
    """Returns a classifier of texts."""
    layers = tf_keras.layers
    vectorize = layers.TextVectorization(vocabulary=["ha", "ho"], output_mode="count")
    text = layers.Input([], dtype="string")
    return tf_keras.Model(text, layers.Dense(3)(layers.Dropout(0.5)(vectorize(text))))


def of_images(size: int = 12, channels: int = 3) -> tf_keras.Model:
    """Returns a classifier of images."""
    layers = tf_keras.layers
    return tf_keras.Sequential(
        [
            layers.Input([size, size, channels]),
            layers.Conv2D(4, 3),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.5),
            layers.Dense(10),
        ]
    )


def _rows() -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    numbers = pandas.DataFrame(rng.normal(size=(60, 4)), columns=["a", "b", "c", "d"])
    return numbers.assign(kind=rng.choice(["one", "three", "two"], 60))


def load() -> tuple[np.ndarray, np.ndarray]:
    """Returns points and classes."""
    rows = _rows()
    return rows[["a", "b", "c", "d"]].to_numpy(), rows.kind.astype("category").cat.codes.to_numpy()


def _write_idx(folder: Path, prefix: str, count: int) -> None:
    """Writes images of MNIST and their labels."""
    folder.mkdir(exist_ok=True)
    images = np.random.default_rng(1).integers(256, size=(count, 28, 28)).astype(np.uint8)
    labels = (np.arange(count) % 10).astype(np.uint8)
    for array, kind, magic in ((images, "images-idx3", 2051), (labels, "labels-idx1", 2049)):
        head = np.array([magic, *array.shape], ">u4").tobytes()
        path = folder / f"{prefix}-{kind}-ubyte.gz"
        path.write_bytes(gzip.compress(head + array.tobytes()))


def _write(source: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Writes small files of a source; returns settings of both sections, and of the task."""
    rows = _rows()
    if source in ("csv", "jsonl", "parquet", "hugging_face"):
        path = folder / f"rows.{source}"
        if source == "csv":
            rows.to_csv(path, index=False)
        elif source == "jsonl":
            rows.to_json(path, orient="records", lines=True)
        elif source == "parquet":
            rows.to_parquet(path)
        else:
            write_arrow_rows(path, rows.to_dict("records"))
        return {"input_path": str(path)}, {"outputs": "kind", "model": f"{_HERE}:of_numbers"}
    if source in ("breast_cancer", "diabetes"):
        is_number = source == "diabetes"
        layers = f"[{{Dropout: {{rate: 0.5}}}}, {{Dense: {{units: {1 if is_number else 2}}}}}]"
        outputs = "progression" if is_number else "diagnosis"
        model = {"outputs": outputs, "model": f"{{build: '', layers: {layers}}}"}
        return {}, {**model, **({"loss": "mse"} if is_number else {})}
    if source == "text_files":
        for name in ("x", "y", "z"):
            (folder / f"{name}.txt").write_text("".join(f"ha {n} ho {name}\n" for n in range(20)))
        files = "{x: x.txt, y: y.txt, z: z.txt}"
        return {"data_dir": str(folder), "files": files}, {
            "outputs": "label", "model": f"{_HERE}:of_texts",
        }  # fmt: skip
    model = {"model": f"{_HERE}:of_images", "image_size": "[12, 12]"}
    counts = {"cat": 19, "dog": 20, "owl": 21}
    if source == "image_folder":
        write_folder(folder / "images", counts)
        return {"data_dir": str(folder / "images")}, model
    if source == "image_csv":
        path = write_listed(folder, counts)
        return {"data_dir": str(folder / "images"), "labels_file": str(path)}, model
    if source in ("tfrecord", "array_record"):
        write = write_file if source == "tfrecord" else write_array_file
        write_records(folder, [30, 30], classes=3, write=write)
        return {"data_dir": str(folder), "input_path": "train-*"}, model
    if source == "hugging_face_images":
        table = image_table([jpeg(k) for k in range(60)], label=[k % 3 for k in range(60)])
        features = {"image": {"_type": "Image"}, "label": class_label(*counts)}
        save_to_disk(folder / "saved", table, features)
        return {"data_dir": str(folder / "saved")}, model
    if source == "tfds_images":
        write_tfds(folder, "toy", {"train": (60,), "test": (20,)}, [*counts])
        return {"tfds_name": "toy", "tfds_data_dir": str(folder)}, model
    if source == "digits":
        return {}, {"model": f"{{build: {_HERE}:of_images, arguments: {{size: 8, channels: 1}}}}"}
    if source == "mnist":
        _write_idx(folder / "mnist", "train", 60)
        _write_idx(folder / "mnist", "t10k", 20)
        return {"data_dir": str(folder / "mnist")}, {
            "model": f"{{build: {_HERE}:of_images, arguments: {{size: 28, channels: 1}}}}"
        }
    numbers = {"model": f"{_HERE}:of_numbers"}
    if source == "npz":
        points, classes = load()
        np.savez(folder / "rows.npz", x=points, y=classes)
        return {"input_path": str(folder / "rows.npz")}, numbers
    if source == "tf_examples":
        points, classes = load()
        records = []
        for point, number in zip(points, classes, strict=True):
            features = {
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=point)),
                "kind": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            records.append(example.SerializeToString())
        write_file(folder / "rows.tfrecord", records)
        return {"input_path": str(folder / "rows.tfrecord")}, {"outputs": "kind", **numbers}
    return {"function": f"{_HERE}:load"}, numbers


def _config(source: str, folder: Path, **changes: Any) -> Any:
    section, task = _write(source, folder)
    settings: dict[str, Any] = {
        "task__train_data__function": "''",
        "task__validation_data__source": "''",
        "task__validation_data__function": "''",
        "task__validation_data__arguments": "{}",
        "task__train_data__source": source,
        # TFRecord files are read in their order, so that they cannot be split.
        **({} if source in ("tfrecord", "tfds_images") else {"task__validation_split": 0.2}),
    }
    settings |= {f"task__train_data__{name}": value for name, value in section.items()}
    if "task__validation_split" not in settings:
        settings |= {f"task__validation_data__{name}": value for name, value in section.items()}
        settings["task__validation_data__source"] = source
    settings |= {f"task__{name}": value for name, value in task.items()}
    return keras_config(
        **settings, trainer__train_steps=8, trainer__validation_interval=4, **changes
    )


def test_every_source_is_tried() -> None:
    tried = {*_TABLES, *_IMAGES, *_ARRAYS, *_OTHERS, "text_files"}

    assert tried == {entry.name for entry in ARRAY_SOURCES.entries()}


@pytest.mark.sample(4)
@pytest.mark.parametrize("source", [*_TABLES, *_IMAGES, *_ARRAYS, "text_files"])
def test_run_is_resumed_without_excluded_examples(tmp_path: Path, source: str) -> None:
    config = _config(source, tmp_path, task__train_data__exclude="[2, 5]")
    whole, logs = run(config, tmp_path / "whole")
    with pytest.raises(StoppedAtStep):
        run(config, tmp_path / "parts", stop_at_step=5)
    parts, _ = run(config, tmp_path / "parts")
    assert weights_fingerprint(parts) == weights_fingerprint(whole)

    examples = task_data(config.task).training_examples(config.task.train_data, None)
    rows = [examples.order.rows(step) for step in range(8)]
    seen = np.concatenate([step_rows.examples for step_rows in rows])
    assert len(rows[0].examples) == 16
    assert not {2, 5} & {*seen.tolist()}
    described = examples.describe(rows[0], np.arange(3))
    assert all(isinstance(json.dumps(row), str) and row for row in described)
    assert logs["validation_examples"] > 0
