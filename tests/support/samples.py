"""A small dataset of each data source, and a config that trains on it; imports no TensorFlow.

A source without files, or with files in the format of another source, needs nothing here. A new
format needs a writer: a function that writes files to a directory and returns the settings of a
section, in `WRITERS` under the object that the source is registered as. All tasks that read the
source use it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pytest
from PIL import Image

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.tables.columns import NUMBER
from orbit_runner.errors import DataError, RunnerError
from orbit_runner.registration import Entry, Registry
from orbit_runner.registry import TABLE_SOURCES, TASKS
from orbit_runner.tasks.tabular.sources import table_query
from tests.support import tfds
from tests.support.array_records import write_array_file
from tests.support.configs import config_of
from tests.support.hugging_face import class_label, image_table, save_to_disk
from tests.support.records import example_of, write_record_file
from tests.support.tables import write_arrow_rows, write_csv, write_jsonl, write_parquet
from tests.support.translations import sentences, write_pairs

SIZE = 40
_HERE = "tests.support.samples"
_CLASSES = ("cat", "dog", "owl")
Settings = dict[str, Any]


class Member(NamedTuple):
    """A data source, and a task that reads it."""

    task: Entry
    source: Entry

    @property
    def name(self) -> str:
        """The name of a test case."""
        return f"{self.task.name}-{self.source.name}"


def source_registry(task: Entry) -> Registry | None:
    """Returns the registry of the data sources of a task."""
    sections = task.load_config().__dataclass_fields__
    section = sections["train_data"].default_factory()
    registry: Registry | None = section.__dataclass_fields__["source"].metadata["registry"]
    return registry


def members() -> Iterator[Member]:
    """Yields each data source with the first task that reads it, and all of the task `keras`."""
    registries: list[Registry] = []
    for task in TASKS.registered():
        registry = source_registry(task)
        if registry is None or registry in registries:
            continue
        registries.append(registry)
        for source in registry.entries():
            yield Member(task, source)


def png(number: int, size: int = 8) -> bytes:
    """Returns a PNG file of a color that depends on the number."""
    color = np.random.default_rng(number).integers(256, size=3)
    file = io.BytesIO()
    Image.new("RGB", (size, size), tuple(color.tolist())).save(file, "PNG")
    return file.getvalue()


def _image_records(
    image: str = "image__encoded", label: str = "image__class__label"
) -> list[bytes]:
    return [example_of(**{image: [png(number)], label: [number % 3]}) for number in range(SIZE)]


def _rows() -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    return [
        {
            "a": float(np.float32(rng.normal())),
            "b": number,
            "note": _note(number),
            **_person_and_part(number),
            "kind": _CLASSES[number % 3],
        }
        for number in range(SIZE)
    ]


def _person_and_part(number: int) -> dict[str, str]:
    """Returns the values of columns that a split can use."""
    return {"person": f"p{number % 10}", "part": "train" if number % 4 else "validation"}


def _note(number: int) -> str:
    """Returns a text of 2 to 6 words."""
    return " ".join(["ha", *["ho"] * (number % 5), str(number)])


def table_columns() -> dict[str, np.ndarray]:
    """Returns the table by columns."""
    rows = _rows()
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def points_and_classes() -> tuple[np.ndarray, np.ndarray]:
    """Returns points and their classes."""
    points = np.random.default_rng(0).normal(size=(SIZE, 4)).astype(np.float32)
    return points, np.arange(SIZE) % 3


def _write_idx(folder: Path) -> Settings:
    for prefix in ("train", "t10k"):
        images = np.random.default_rng(1).integers(256, size=(SIZE, 8, 8)).astype(np.uint8)
        labels = (np.arange(SIZE) % 3).astype(np.uint8)
        for array, kind, magic in ((images, "images-idx3", 2051), (labels, "labels-idx1", 2049)):
            head = np.array([magic, *array.shape], ">u4").tobytes()
            (folder / f"{prefix}-{kind}-ubyte").write_bytes(head + array.tobytes())
    return {"data_dir": folder}


def _write_cifar10(folder: Path) -> Settings:
    records = np.random.default_rng(1).integers(256, size=(SIZE, 3073)).astype(np.uint8)
    records[:, 0] = np.arange(SIZE) % 10
    for number, part in enumerate(np.split(records, 5), start=1):
        (folder / f"data_batch_{number}.bin").write_bytes(part.tobytes())
    (folder / "test_batch.bin").write_bytes(records.tobytes())
    return {"data_dir": folder}


def _write_tfrecords(folder: Path) -> Settings:
    for number, records in enumerate(_halves(_image_records())):
        write_record_file(folder / f"train-{number}", records)
    return {"data_dir": folder, "input_path": "train-*"}


def _write_array_records(folder: Path) -> Settings:
    for number, records in enumerate(_halves(_image_records())):
        write_array_file(folder / f"train-{number}", records)
    return {"data_dir": folder, "input_path": "train-*"}


def _halves(records: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    return records[: SIZE // 2 + 3], records[SIZE // 2 + 3 :]


def _write_image_files(folder: Path) -> list[str]:
    paths = []
    for number in range(SIZE):
        path = folder / "images" / _CLASSES[number % 3] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))
        paths.append(f"{path.parent.name}/{path.name}")
    return paths


def _write_image_folder(folder: Path) -> Settings:
    _write_image_files(folder)
    return {"data_dir": folder / "images"}


def _write_image_csv(folder: Path) -> Settings:
    lines = ["path,label,person,part"]
    for number, path in enumerate(_write_image_files(folder)):
        lines.append(",".join([path, path[:3], *_person_and_part(number).values()]))
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return {"data_dir": folder / "images", "labels_file": folder / "labels.csv"}


def _write_hugging_face_images(folder: Path) -> Settings:
    numbers = range(SIZE)
    columns = pyarrow.Table.from_pylist([_person_and_part(k) for k in numbers]).to_pydict()
    table = image_table([png(k) for k in numbers], label=[k % 3 for k in numbers], **columns)
    features = {"image": {"_type": "Image"}, "label": class_label(*_CLASSES)}
    save_to_disk(folder / "saved", table, features)
    return {"data_dir": folder / "saved"}


def _write_tfds(
    folder: Path, features: Mapping[str, tfds.Description], classes: str, records: list[bytes]
) -> Settings:
    splits, labels = {"train": [records]}, {classes: _CLASSES}
    tfds.write_prepared(folder, "sample", splits, features, labels, write_record_file)
    return {"tfds_name": "sample", "tfds_data_dir": folder, "tfds_split": "train"}


def _write_tfds_images(folder: Path) -> Settings:
    features = {"image": tfds.IMAGE, "label": tfds.class_label(len(_CLASSES))}
    return _write_tfds(folder, features, "label", _image_records("image", "label"))


def _write_tfds_table(folder: Path) -> Settings:
    features = {
        "a": tfds.scalar("float32"),
        **dict.fromkeys(("note", "person", "part"), tfds.TEXT),
        "kind": tfds.class_label(len(_CLASSES)),
    }
    records = []
    for number in range(SIZE):
        texts = {"note": _note(number), **_person_and_part(number)}
        values = {name: [text.encode()] for name, text in texts.items()}
        records.append(example_of(a=[number / 8], kind=[number % 3], **values))
    return _write_tfds(folder, features, "kind", records)


def _table_writer(write: Callable[[Path, Any], Path], name: str) -> Callable[[Path], Settings]:
    return lambda folder: {"input_path": write(folder / name, _rows())}


def _write_npz(folder: Path) -> Settings:
    np.savez(folder / "rows.npz", **table_columns())  # type: ignore[arg-type]
    return {"input_path": folder / "rows.npz"}


def _write_npz_arrays(folder: Path) -> Settings:
    points, classes = points_and_classes()
    np.savez(folder / "arrays.npz", x=points, y=classes)
    return {"input_path": folder / "arrays.npz"}


def _write_text_files(folder: Path) -> Settings:
    for name in _CLASSES:
        lines = [f"{_note(number)} {name}\n" for number in range(13)]
        (folder / f"{name}.txt").write_text("".join(lines))
    files = ", ".join(f"{name}: {name}.txt" for name in _CLASSES)
    return {"data_dir": folder, "files": f"{{{files}}}"}


def _pass_arrays(folder: Path) -> Settings:
    from orbit_runner.tasks.keras.user_arrays import arrays_of, register_data

    return {"digest": register_data(arrays_of(points_and_classes(), "sample"))}


def _write_parallel_text(folder: Path) -> Settings:
    write_pairs(folder, "train", sentences(SIZE, 0), packed=False)
    write_pairs(folder, "validation", sentences(SIZE, 1), packed=True)
    return {"data_dir": folder, "src_lang": "en", "tgt_lang": "de"}


def _write_movielens(folder: Path) -> Settings:
    lines = [
        f"{user}\t{item}\t{item % 5 + 1}\t{9783000 + item}\n"
        for user in range(1, SIZE + 1)
        for item in range(user, user + 4)
    ]
    (folder / "u.data").write_text("".join(lines))
    return {"data_dir": folder, "input_path": "u.data", "min_interactions": 2}


# By what the source is registered as, so that all tasks that read the same format share a writer.
WRITERS: dict[str, Callable[[Path], Settings]] = {
    "orbit_runner.datasets.mnist:load": _write_idx,
    "orbit_runner.datasets.cifar10:load": _write_cifar10,
    "orbit_runner.datasets.movielens:load": _write_movielens,
    "orbit_runner.data.tfrecord.source:load": _write_tfrecords,
    "orbit_runner.data.array_record:load": _write_array_records,
    "orbit_runner.data.images.files:load": _write_image_folder,
    "orbit_runner.data.images.csv_labels:load": _write_image_csv,
    "orbit_runner.data.hugging_face:load": _write_hugging_face_images,
    "orbit_runner.data.hugging_face:TABLE": _table_writer(write_arrow_rows, "rows.arrow"),
    "orbit_runner.data.tfds:load": _write_tfds_images,
    "orbit_runner.data.tfds:TABLE": _write_tfds_table,
    "orbit_runner.data.text.parallel_text:ParallelText": _write_parallel_text,
    "orbit_runner.data.tables.csv_file:CSV": _table_writer(write_csv, "rows.csv"),
    "orbit_runner.data.tables.jsonl:JSONL": _table_writer(write_jsonl, "rows.jsonl"),
    "orbit_runner.data.tables.arrow:PARQUET": _table_writer(write_parquet, "rows.parquet"),
    "orbit_runner.data.tables.array_tables:NPZ": _write_npz,
    "orbit_runner.data.tables.array_tables:FUNCTION": lambda folder: {
        "function": f"{_HERE}:table_columns"
    },
    "orbit_runner.data.tables.text_files:TEXT_FILES": _write_text_files,
    "orbit_runner.tasks.keras.sources:call_function": lambda folder: {
        "function": f"{_HERE}:points_and_classes"
    },
    "orbit_runner.tasks.keras.sources:read_files": _write_npz_arrays,
    "orbit_runner.tasks.keras.sources:find_passed_arrays": _pass_arrays,
}


class TaskSample(NamedTuple):
    """What the contracts need to know of a task.

    Attributes:
        settings: What the task needs besides its data.
        source: A data source whose files `runner predict` reads.
        items: Returns the items to predict for, by default the files of the validation data.
        padding: Settings of an evaluation that only add padding.
    """

    settings: Settings
    source: str
    items: Callable[[Path], list[str]] | None = None
    padding: Mapping[str, object] = MappingProxyType({})


TASK_SAMPLES: dict[str, TaskSample] = {
    "image_classification": TaskSample(
        {"model.name": "mlp", "model.hidden_units": [4]},
        "image_folder",
        lambda folder: [str(folder / "images")],
    ),
    "translation": TaskSample(
        {
            "vocab_size": 40,
            "model.name": "transformer",
            "model.preset": "tiny",
            "model.embedding_width": 16,
            "model.encoder.num_layers": 1,
            "model.decoder.num_layers": 1,
            "model.beam_size": 2,
            "model.extra_decode_length": 4,
            "train_data.batch_tokens": 256,
            "both.max_seq_length": 32,
        },
        "parallel_text",
        lambda folder: [str(folder / "validation.en.gz")],
        {"validation_data.static_batch": True},
    ),
    "recommendation": TaskSample(
        {
            "model.name": "neumf",
            "model.mf_dim": 4,
            "model.layers": [8, 4],
            "both.synthetic.num_items": 64,
            "validation_data.num_eval_negatives": 5,
            "top_k": 3,
        },
        "movielens",
        lambda folder: [str(user) for user in range(1, SIZE + 1)],
    ),
    "keras": TaskSample(
        {
            "model": f"{_HERE}:flat_network",
            "loss": "{class_name: SparseCategoricalCrossentropy, config: {from_logits: true}}",
            "metrics": "[accuracy]",
        },
        "npz",
    ),
    "tabular": TaskSample({"model.name": "mlp", "model.hidden_units": [4]}, "csv"),
}
_EXPERIMENT = {
    "trainer.train_steps": 8,
    "trainer.steps_per_loop": 3,  # A copy of the run can be made before its end.
    "trainer.optimizer_config.optimizer.type": "sgd",
    "trainer.optimizer_config.learning_rate.type": "constant",
    "runtime.distribution_strategy": "one_device",
    "runtime.seed": 17,
}
_SMALL_BATCH, _BATCH = 8, 64


def sample_config(member: Member, folder: Path, **changes: object) -> ExperimentConfig:
    """Writes the files of a source to an empty directory, and returns a config that reads them.

    `__` in a name of `changes` stands for a dot below `task`; `both` for both sections of the data.
    """
    return config_of_section(member, write_sample(member, folder), **changes)


def write_sample(member: Member, folder: Path) -> Settings:
    """Writes the files of a source to an empty directory. Returns the settings of a section.

    A source without a writer gets the files of the first format that it reads.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = WRITERS.get(str(member.source.target))
    if own is not None:
        return own(folder)
    if not is_stored(member):
        return {}
    for number, write in enumerate(WRITERS.values()):
        directory = folder / str(number)
        directory.mkdir()
        with contextlib.suppress(pytest.skip.Exception):  # A package is not installed.
            section = write(directory)
            if is_read(member, section):
                return section
        shutil.rmtree(directory)
    raise LookupError(f"add a writer for {member.source.target} to WRITERS")


@functools.cache
def is_stored(member: Member) -> bool:
    """Returns whether a source reads files, or calls a function."""
    is_known = str(member.source.target) in WRITERS
    return is_known or not (member.source.traits.is_generated or is_read(member, {}))


def is_read(member: Member, section: Settings) -> bool:
    """Returns whether a source reads examples with the settings of a section."""
    try:
        return not [*config_of_section(member, section).data.problems()]
    except (RunnerError, DataError):
        return False


def config_of_section(member: Member, section: Settings, **changes: object) -> ExperimentConfig:
    """Returns a config that reads written files; see `sample_config`."""
    task, source = member
    if task.name not in TASK_SAMPLES:
        raise LookupError(f"add what the contracts need of {task.name!r} to TASK_SAMPLES")
    both = {
        "source": source.name,
        "global_batch_size": _SMALL_BATCH if section else _BATCH,
        **({"synthetic.num_examples": 200} if source.traits.is_generated else {}),
        **section,
    }
    settings = {
        **{f"both.{name}": value for name, value in both.items()},
        **TASK_SAMPLES[task.name].settings,
        **_label_settings(member, both),
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    if settings.get("train_data.batch_tokens"):
        settings["train_data.global_batch_size"] = 0
    return _resolve(task.name, settings)


def _resolve(task: str, settings: Settings) -> ExperimentConfig:
    by_path = {
        name.replace("both.", f"{section}."): value
        for name, value in settings.items()
        for section in ("train_data", "validation_data")
    }
    return config_of({"task.name": task, **_EXPERIMENT, **_below_task(by_path)})


def _below_task(settings: Settings) -> Settings:
    return {f"task.{path}": value for path, value in settings.items()}


def _label_settings(member: Member, section: Settings) -> Settings:
    """Returns the settings of a task that name the labels, or how many classes there are."""
    traits = member.source.traits
    if member.task.name == "image_classification":
        return {} if traits.knows_classes else {"model.num_classes": len(_CLASSES)}
    if member.source.target not in (entry.target for entry in TABLE_SOURCES.registered()):
        return {}
    kinds = _column_kinds(section)
    column = "kind" if "kind" in kinds else [*kinds][-1]
    is_number = kinds[column] == NUMBER
    if member.task.name == "keras":
        numbers = [name for name, kind in kinds.items() if kind == NUMBER and name != column]
        model = {} if numbers else {"model": f"{_HERE}:model_of_texts"}
        # Its gradients are bounded, so that a run on raw columns does not diverge.
        loss = {"loss": "mae", "model": f"{_HERE}:line"} if is_number else {}
        inputs = numbers or [name for name in kinds if name != column]
        return {"outputs": column, "inputs": inputs, **model, **loss}
    target = {"column": column, "type": "regression" if is_number else "classification"}
    return {"target": target}


def _column_kinds(section: Settings) -> Mapping[str, str]:
    """Returns the kinds of the columns of a table."""
    both = {f"both.{name}": value for name, value in section.items()}
    config = _resolve("tabular", {**TASK_SAMPLES["tabular"].settings, "target": "kind", **both})
    return table_query(config.task).datasets("train_data")[0].kinds


def flat_network() -> Any:
    """Returns a classifier of numbers of any shape."""
    from tf_keras import Sequential, layers

    dropout = layers.Dropout(0.5)
    return Sequential([layers.Flatten(), layers.BatchNormalization(), dropout, layers.Dense(10)])


def line() -> Any:
    """Returns a linear model."""
    from tf_keras import Sequential, layers

    return Sequential([layers.Dense(1)])


def model_of_texts() -> Any:
    """Returns a classifier of texts."""
    from tf_keras import Input, Model, layers

    text = Input([], dtype="string")
    counts = layers.TextVectorization(vocabulary=["ha", "ho"], output_mode="count")(text)
    return Model(text, layers.Dense(10)(counts))
