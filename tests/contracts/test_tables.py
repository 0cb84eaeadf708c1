"""One table in every format, for every task that reads tables: the same rows, whatever is asked.

A cell is a task, a format, a split and what else chooses or reads rows: `exclude`, `mixture`, a
resumed run, `runner batch`, `runner predict`.
"""

import datetime
import functools
import gzip
import json
import unicodedata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pytest
import tensorflow as tf
from pyarrow import parquet

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.serialize import to_yaml
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.tasks.adapter import adapt, build_task
from orbit_runner.tasks.base import drop_padding
from orbit_runner.tasks.keras.table_source import table_query as keras_query
from orbit_runner.tasks.tabular.sources import table_query as tabular_query
from orbit_runner.train.inputs.distribute import own_batches
from tests.support import tfds
from tests.support.configs import SHORT_RUN, config_of
from tests.support.hugging_face import class_label, save_to_disk, write_arrow
from tests.support.problems import check, output_of
from tests.support.records import example_of, write_record_file
from tests.support.toy import run_and_resume

SIZE = 60
CLASSES = ("cat", "dog", "owl")
# One of them is in another Unicode form than most programs write, and one is a number.
COLORS = ("red", unicodedata.normalize("NFD", "grün"), "7.0", "")
_HERE = "tests.contracts.test_tables"
_FRACTIONS = {"train": 0.6, "validation": 0.4}
Settings = dict[str, Any]
Row = dict[str, Any]


def rows():
    """Returns the rows of the table. `born` has a time, which some formats write in their way."""
    first = datetime.datetime(1999, 12, 30, 22, 30)
    return [
        {
            "id": 2**24 + number,
            "size": number / 8 - 3,
            "sold": number % 3 == 1,
            "born": first + number * datetime.timedelta(hours=6, minutes=15 * (number % 2)),
            "color": COLORS[number % 4],
            "note": " ".join(["ha", *["ho"] * (number % 5), str(number)]),
            "person": f"p{number % 13}",
            "part": "train" if number % 4 else "validation",
            "kind": CLASSES[number % 3],
        }
        for number in range(SIZE)
    ]


def arrays():
    """Returns the columns of the table as arrays."""
    columns = {name: np.array([row[name] for row in rows()]) for name in rows()[0]}
    return columns | {"born": columns["born"].astype("datetime64[s]")}


def _csv(folder):
    lines = [",".join(rows()[0]), *(",".join(map(str, row.values())) for row in rows())]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"source": "csv", "input_path": folder / "rows.csv"}


def _packed_csv(folder):
    """Writes two files, with another delimiter and without a header."""
    for number, part in enumerate((rows()[:25], rows()[25:])):
        lines = ["|".join(map(str, row.values())) + "\r\n" for row in part]
        (folder / f"{number}.csv.gz").write_bytes(gzip.compress("".join(lines).encode()))
    names = f"[{', '.join(rows()[0])}]"
    paths = folder / "*.csv.gz"
    return {"source": "csv", "input_path": paths, "delimiter": "'|'", "column_names": names}


def _jsonl(folder):
    lines = [json.dumps(row, default=datetime.datetime.isoformat) for row in rows()]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"source": "jsonl", "input_path": folder / "rows.jsonl"}


def _arrow_table():
    return pyarrow.Table.from_pylist([{**row, "color": row["color"] or None} for row in rows()])


def _parquet(folder):
    parquet.write_table(_arrow_table(), folder / "rows.parquet", row_group_size=7)
    return {"source": "parquet", "input_path": folder / "rows.parquet"}


def _arrow(folder):
    write_arrow(folder / "rows.arrow", _arrow_table())
    return {"source": "hugging_face", "input_path": folder / "rows.arrow"}


def _hugging_face(folder):
    numbers = pyarrow.array([CLASSES.index(row["kind"]) for row in rows()])
    table = _arrow_table()
    table = table.set_column(table.column_names.index("kind"), "kind", numbers)
    save_to_disk(folder / "saved", table, {"kind": class_label(*CLASSES)}, sizes=(25, SIZE - 25))
    return {"source": "hugging_face", "data_dir": folder / "saved"}


def _npz(folder):
    np.savez(folder / "rows.npz", **arrays())
    return {"source": "npz", "input_path": folder / "rows.npz"}


def _function(folder):
    return {"source": "arrays", "function": f"{_HERE}:arrays"}


def _tfds(folder):
    texts = ("born", "color", "note", "person", "part")
    features = {
        "id": tfds.scalar("int64"),
        "size": tfds.scalar("float32"),
        "sold": tfds.scalar("bool"),
        **dict.fromkeys(texts, tfds.TEXT),
        "kind": tfds.class_label(len(CLASSES)),
    }
    records = [
        example_of(
            id=[row["id"]],
            size=[row["size"]],
            sold=[int(row["sold"])],
            kind=[CLASSES.index(row["kind"])],
            **{name: [str(row[name]).encode()] for name in texts},
        )
        for row in rows()
    ]
    splits = {"train": [records]}
    labels = {"kind": CLASSES}
    tfds.write_prepared(folder, "sample", splits, features, labels, write_record_file)
    return {
        "source": "tfds", "tfds_name": "sample", "tfds_data_dir": folder, "tfds_split": "train"
    }  # fmt: skip


# Each returns the settings of a section.
FORMATS = {
    "csv": _csv,
    "packed csv": _packed_csv,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "arrow": _arrow,
    "hugging_face": _hugging_face,
    "npz": _npz,
    "arrays": _function,
    "tfds": _tfds,
}
# Tasks that see the same columns, each as something else.
_NETWORK = {
    "name": "tabular",
    "model.name": "mlp",
    "model.hidden_units": "[4]",
    "target": "kind",
}
_KERAS = {"name": "keras", "outputs": "kind"}
_KERAS_LOSS = "{class_name: SparseCategoricalCrossentropy, config: {from_logits: true}}"
TASKS = {
    "keras": {
        **_KERAS,
        "model": f"{_HERE}:network",
        "loss": _KERAS_LOSS,
        "inputs": "{numbers: [size, id], sold: sold, born: born, color: color, note: note}",
    },
    "tabular": {
        **_NETWORK,
        "features": "{numeric: [id, size], categorical: [sold, color, note], date: [born]}",
    },
    "tabular, numbers as categories": {
        **_NETWORK,
        "features": "{numeric: [sold], categorical: [id, size, color, born, note]}",
    },
    "tabular, texts": {
        **_NETWORK,
        "features": "{numeric: [id, size], categorical: [sold], "
        "text: [{column: born}, {column: color}, {column: note}]}",
    },
}
SPLITS = {
    "none": {},
    "fraction": {"split.fractions": _FRACTIONS},
    "hash": {"split.fractions": _FRACTIONS, "split.hash_of": "[id]"},
    "group": {"split.fractions": _FRACTIONS, "split.hash_of": "[person]", "split.seed": 3},
    "column": {"split.column": "part"},
}
CHOICES = {
    "all rows": {},
    "exclude": {"train_data.exclude": "[1, 4, 5]"},
    "mixture": {"train_data.mixture": "[{weight: 3}, {weight: 1}]"},
    "exclude, mixture": {
        "train_data.exclude": "[1, 4, 5]",
        "train_data.mixture": "[{weight: 3}, {weight: 1}]",
    },
}


def network():
    """Returns a classifier of numbers and texts."""
    from tf_keras import Input, Model, layers

    numbers = Input([2], name="numbers")
    texts = [Input([], name=name, dtype="string") for name in ("sold", "born", "color", "note")]
    scaled = layers.Rescaling([0.1, 2.0**-24])(numbers)
    hashed = [layers.Hashing(7, output_mode="one_hot")(text[:, None]) for text in texts]
    inputs = {"numbers": numbers, **{text.name: text for text in texts}}
    return Model(inputs, layers.Dense(len(CLASSES))(layers.concatenate([scaled, *hashed])))


class Cell(NamedTuple):
    """A task and a format that it reads."""

    task: str
    format: str

    def config(self, section, *changes):
        """Returns the config of an experiment; names are below `task`."""
        settings = {
            **TASKS[self.task],
            "train_data.global_batch_size": 8,
            "validation_data.global_batch_size": 16,
        }
        for name in ("train_data", "validation_data"):
            settings |= {f"{name}.{key}": value for key, value in section.items()}
        for change in changes:
            settings |= change
        below = {f"task.{name}": value for name, value in settings.items()}
        return config_of({**below, **SHORT_RUN})


def cells():
    """Yields each format with each task that reads it; all but one task in turn are `wide`."""
    for number, name in enumerate(FORMATS):
        readers = [
            Cell(task, name)
            for task, settings in TASKS.items()
            # These sources of `keras` are arrays `x` and `y`.
            if settings["name"] != "keras" or name not in ("npz", "arrays")
        ]
        for cell in readers:
            marks = () if cell == readers[number % len(readers)] else pytest.mark.wide
            yield pytest.param(cell, id="-".join(cell), marks=marks)


_CELLS = [*cells()]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Returns the settings of a section that reads a format, which is written once."""
    sections = {}

    def write(name):
        if name not in sections:
            sections[name] = FORMATS[name](tmp_path_factory.mktemp(name.replace(" ", "_")))
        return sections[name]

    return write


@pytest.fixture(scope="module", autouse=True)
def _caches(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, source_cache_scope():
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def part_of(config, section):
    """Returns the rows of a section."""
    task = config.task
    return (keras_query if task.name == "keras" else tabular_query)(task).part(section)


def rows_of(config):
    """Returns the rows of each section, counted through all files."""
    assert [*config.data.problems()] == []
    sections = ("train_data", "validation_data")
    return [part_of(config, section).places.all_rows().tolist() for section in sections]


def order_of(config, steps=20):
    """Returns the examples of the first training steps, as `runner batch` computes them."""
    assert [*config.data.problems()] == []
    section = resolve_data_config(config.task.train_data, config.runtime)
    order = config.data.training_examples(section, None).order
    return [order.rows(step).examples.tolist() for step in range(steps)]


@pytest.fixture(scope="module")
def expected(written):
    """Returns the rows of both sections and their order, which are those of all tasks."""

    @functools.cache
    def read(split, choice):
        cell = Cell("tabular", "csv")
        config = cell.config(written("csv"), SPLITS[split], CHOICES[choice])
        return rows_of(config), order_of(config)

    return read


def test_the_parts_of_a_table_do_not_change(expected):
    # A run that is resumed would have other training rows.
    assert {split: expected(split, "all rows")[0][1][:8] for split in SPLITS} == {
        "none": [0, 1, 2, 3, 4, 5, 6, 7],
        "fraction": [1, 3, 7, 8, 12, 14, 15, 16],
        "hash": [0, 4, 5, 7, 8, 10, 11, 14],
        "group": [0, 1, 3, 6, 9, 10, 12, 13],
        "column": [0, 4, 8, 12, 16, 20, 24, 28],
    }


@pytest.mark.parametrize("cell", _CELLS)
def test_a_split_gives_the_same_rows_to_each_task_and_format(cell, written, expected):
    for name, split in SPLITS.items():
        config = cell.config(written(cell.format), split)
        assert rows_of(config) == expected(name, "all rows")[0], name


@pytest.mark.sample(2)
@pytest.mark.parametrize("cell", _CELLS)
def test_the_same_rows_are_left_out_and_mixed_for_each_task_and_format(cell, written, expected):
    for name, split in SPLITS.items():
        for choice, settings in CHOICES.items():
            config = cell.config(written(cell.format), split, settings)
            assert order_of(config) == expected(name, choice)[1], (name, choice)


def test_a_text_file_is_split_like_a_table_of_the_same_texts(tmp_path):
    texts = {label: [row["note"] for row in rows() if row["kind"] == label] for label in CLASSES}
    for label, lines in texts.items():
        (tmp_path / f"{label}.txt").write_text("\n".join(lines) + "\n")
    files = ", ".join(f"{label}: {label}.txt" for label in CLASSES)
    sections = {
        "text_files": {"source": "text_files", "data_dir": tmp_path, "files": f"{{{files}}}"},
        "csv": _csv(tmp_path),
    }
    parts = []
    for source, section in sections.items():
        text, label = ("text", "label") if source == "text_files" else ("note", "kind")
        for changes in (
            {**_KERAS, "inputs": f"[{text}]", "outputs": label, "model": f"{_HERE}:network"},
            {**_NETWORK, "features": f"{{text: [{{column: {text}}}]}}", "target": label},
            {**_NETWORK, "features": f"{{categorical: [{text}]}}", "target": label},
        ):
            settings = {"split.fractions": _FRACTIONS, "features": "{}", "inputs": "null"}
            task = "keras" if changes["name"] == "keras" else "tabular"
            del settings["features" if task == "keras" else "inputs"]
            config = Cell(task, source).config(section, settings, changes)
            column = part_of(config, "validation_data").column(text)
            parts.append(sorted(column.text(row) for row in range(len(column.values))))
    assert 0 < len(parts[0]) < SIZE
    assert parts == parts[:1] * len(parts)


def test_arrays_of_a_keras_model_have_no_columns(written):
    for name in ("npz", "arrays"):
        with pytest.raises(ConfigError) as caught:
            Cell("keras", name).config(written(name))
        check(caught.value.problems, ("no-effect", "task.inputs"), ("no-effect", "task.outputs"))


@pytest.mark.sample(3)
@pytest.mark.parametrize("cell", _CELLS)
def test_column_of_a_split_that_a_table_lacks_is_an_error_of_its_setting(cell, written):
    by_column = cell.config(written(cell.format), {"split.column": "fold"})
    check(by_column.data.problems(), ("unknown-column", "split.column"))
    by_hash = cell.config(written(cell.format), SPLITS["group"], {"split.hash_of": "[persn]"})
    check(by_hash.data.problems(), ("unknown-column", "split.hash_of"))


@pytest.mark.slow
@pytest.mark.parametrize("cell", _CELLS)
def test_a_run_is_resumed_and_shows_its_batches(cell, written, tmp_path):
    section = written(cell.format)
    config = cell.config(section, SPLITS["group"], CHOICES["exclude, mixture"])
    expected = order_of(config)

    results = run_and_resume(config, tmp_path)

    assert results.logs["validation_examples"] == len(rows_of(config)[1])
    (tmp_path / "whole" / "config.yaml").write_text(to_yaml(config))
    arguments = ["batch", str(tmp_path / "whole"), "--step=9:20", "--json"]
    steps = json.loads(output_of(arguments))
    examples = [[row["example"] for row in step["rows"]] for step in steps]
    assert examples == expected[8:20]


# The files that `runner predict` reads, and the format of the training data if that must be equal.
PREDICTED = {
    "rows.csv": "csv",
    "*.csv.gz": "packed csv",
    "rows.jsonl": "jsonl",
    "rows.parquet": "parquet",
    "rows.arrow": "arrow",
    "rows.npz": "npz",
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("task", TASKS)
def test_predictions_for_a_file_are_those_of_the_rows_in_training(task, written):
    for trained in ("csv", "packed csv"):
        # A column of `features.text` keeps its texts, and formats write a time differently.
        features = {
            name: str(value).replace("{column: born}, ", "")
            for name, value in TASKS[task].items()
            if name == "features"
        }
        config = Cell(task, trained).config(written(trained), features)
        built = build_task(config, None)
        model = built.build_model()
        expected = _outputs_in_evaluation(config, built, model)
        predictor = built.predictor(built.serving(model).signatures)
        for pattern, name in PREDICTED.items():
            # CSV files have the delimiter and the header of those for training.
            if name != trained and "csv" in name:
                continue
            folder = Path(str(written(name)["input_path"])).parent
            paths = [str(path) for path in sorted(folder.glob(pattern))]
            predictions = predictor.predict([*predictor.items(paths, [])])
            assert [p.data for p in predictions if "error" in p.data] == []
            got = [_outputs_of(prediction.data) for prediction in predictions]
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=name)
            assert [p.cells["note"] for p in predictions] == [row["note"] for row in rows()]


def _outputs_in_evaluation(config, task, model):
    """Returns the outputs of the model for the rows of the validation data."""
    parts = []
    for batch in own_batches(adapt(task), config.runtime, config.task.validation_data):
        rows_of_batch, _ = drop_padding(task, batch)
        parts.append(model(rows_of_batch[0], training=False))
    if config.task.name == "tabular":
        parts = [tf.nn.softmax(part["kind"]) for part in parts]
    return np.concatenate(parts)


def _outputs_of(data):
    return [*data["kind"]["probabilities"].values()] if "kind" in data else data["outputs"]
