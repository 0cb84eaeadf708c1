"""`runner init DIR --from=DATA`: the experiment that it writes works as it is."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.tasks.tabular.sources import table_query
from tests.support.images import png
from tests.support.problems import fails, output_of

WORDS = ("good", "bad", "slow", "fast", "service", "price", "never", "again")
COUNT = 60


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The current directory, which is empty."""
    monkeypatch.chdir(tmp_path)
    with source_cache_scope():
        yield tmp_path


def _write_csv(
    path: str, names: Sequence[str], rows: Iterable[Sequence[object]], delimiter: str = ","
) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(names)
        writer.writerows(rows)


def _text(number: int, count: int = 4) -> str:
    return " ".join(WORDS[(number * 7 + place * place) % len(WORDS)] for place in range(count))


def _mixed_rows() -> list[list[object]]:
    return [
        [
            f"c{number:04}",
            number % 31 / 2,
            "" if number == 5 else number * 1.5,
            "" if number == 7 else ("Bern", "Zug", "a: b # ${c}")[number % 3],
            f"{_text(number)} {number}",
            1,
            ("no", "yes")[number % 2],
            number,
        ]
        for number in range(COUNT)
    ]


_MIXED = ("customer", "age", "income", "city", "comment", "const", "Class", "row id")


def _experiment(data: str, *flags: str) -> tuple[str, ExperimentConfig]:
    """Returns the text of the experiment that is written for data, and its config."""
    assert main(["init", "new", f"--from={data}", *flags]) == 0
    path = "new/experiment.yaml"
    return Path(path).read_text(), resolve(Request(experiment=path)).config


def test_the_columns_of_a_table_are_used_by_what_they_contain():
    _write_csv("a.csv", _MIXED, _mixed_rows(), ";")

    text, config = _experiment("a.csv")

    task = config.task
    assert task.target.column == "Class"
    assert [*task.features.numeric] == ["age", "income"]
    assert [*task.features.categorical] == ["city"]
    assert [column.column for column in task.features.text] == ["comment"]
    assert (task.train_data.delimiter, task.section("validation_data").delimiter) == (";", ";")
    assert task.split.fractions == {"train": 0.7, "validation": 0.15, "test": 0.15}
    assert not task.split.hash_of
    assert "Predicted, because its name says so;" in text
    assert "- income  # 0 to 88.5, 59 different; 1 missing\n" in text
    assert "- city  # 3 different: Bern (20), a: b # ${c} (20), Zug (19); 1 missing\n" in text
    assert "#   customer: 60 different texts in 60 rows, as names and IDs are\n" in text
    assert "#   const: has the same value in all rows\n" in text
    assert "#   row id: all numbers are different, as in an ID\n" in text


@pytest.mark.parametrize(
    ("last", "kind", "comment"),
    [
        (lambda number: number * 1.5, "regression", "0 to 88.5, 60 different"),
        (lambda number: number % 30 * 2, "regression", "0 to 58, 30 different"),
        (lambda number: number % 3, "classification", "0 to 2, 3 different"),
        (lambda number: f'"{"ab"[number % 2]}"', "classification", "2 different: a (30), b (30)"),
        (lambda number: f'"{number}.25"', "regression", "0.25 to 59.25, 60 different"),
    ],
)
def test_the_values_of_the_last_column_are_numbers_or_classes(last, kind, comment):
    lines = (f'{{"x": {number % 7}, "z": {last(number)}}}\n' for number in range(COUNT))
    Path("a.jsonl").write_text("".join(lines))

    text, config = _experiment("a.jsonl")

    assert (config.task.target.column, config.task.target.type) == ("z", kind)
    assert "because it is the last column" in text
    assert f"# {comment}\n" in text


@pytest.mark.parametrize(
    ("name", "value", "is_group"),
    [
        ("customer", lambda number: number, True),
        ("shop_id", lambda number: number * 1000, True),
        ("UserId", lambda number: f"u {number}", True),
        ("where", lambda number: f"K{number:04}", True),
        ("device", lambda number: f"D{number % 20}", True),
        ("device", lambda number: "abcdefghij"[number % 10], False),
        ("floors", lambda number: number, False),
        ("zip", lambda number: f"0{number:04}", False),
        ("user", lambda number: number + 0.5, False),
        ("id", lambda number: number % 3, False),
    ],
)
def test_ids_that_repeat_split_the_rows_and_are_no_features(name, value, is_group):
    rows = [[value(number % 25), number * 1.5, "ab"[number % 2]] for number in range(6 * COUNT)]
    _write_csv("a.csv", (name, "size", "label"), rows)

    text, config = _experiment("a.csv")

    assert [*config.task.split.hash_of] == [name] * is_group
    assert (name in config.task.features.names) != is_group
    assert (f"#   {name}: an ID that repeats: " in text) == is_group
    for part in config.task.split.fractions:
        data = config.task.validation_data.replace(split=part)
        assert table_query(config.task.replace(validation_data=data)).part("validation_data").size


@pytest.mark.parametrize("names", [["text"], ["text", "size"]])
def test_a_text_alone_gets_a_linear_model(names):
    columns = {"text": lambda n: f"{_text(n)} {n}", "size": lambda n: n % 31 / 2}
    rows = ([*(columns[name](n) for name in names), "ab"[n % 2]] for n in range(COUNT))
    _write_csv("a.csv", [*names, "label"], rows)

    _, config = _experiment("a.csv")

    model = config.task.model
    assert (model.name, [*model.hidden_units] == []) == (
        ("mlp", True) if names == ["text"] else ("wide_deep", False)
    )


def test_label_names_the_column_to_predict():
    _write_csv("a.csv", _MIXED, _mixed_rows(), ";")

    _, config = _experiment("a.csv", "--label=age")

    assert (config.task.target.column, config.task.target.type) == ("age", "regression")
    assert "Class" in config.task.features.categorical


def test_odd_names_of_columns_are_quoted():
    names = ("yes", "1.5", "a: b", "x, or y", "#c", "target")
    _write_csv("a.tsv", names, ([number % 5] * 5 + [number % 2] for number in range(COUNT)), "\t")

    _, config = _experiment("a.tsv")

    assert [*config.task.features.numeric] == [*names[:-1]]
    assert (config.task.train_data.source, config.task.train_data.delimiter) == ("csv", "\t")


def test_what_a_run_would_report_is_a_warning(capsys):
    _write_csv("a.csv", ("x", "y"), ([n * 1.5, "" if n == 4 else "ab"[n % 2]] for n in range(30)))

    assert main(["init", "new", "--from=a.csv", "--label=y"]) == 0

    captured = capsys.readouterr()
    assert captured.err.startswith("warning: a run would report 1 problem in the configuration\n")
    assert "column 'y' has no value in a.csv, row 5" in captured.err
    assert "runner --experiment=new/experiment.yaml" in captured.out


def _write_reviews() -> str:
    rows = [{"id": n, "review": f"{_text(n)} {n}", "stars": n % 2} for n in range(COUNT)]
    Path("a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return "a.jsonl"


def _write_parquet() -> str:
    import pyarrow
    from pyarrow import parquet

    numbers = [number % 7 for number in range(COUNT)]
    parquet.write_table(pyarrow.table({"x": numbers, "z": [n * 0.5 for n in numbers]}), "a.parquet")
    return "a.parquet"


def _write_named_arrays() -> str:
    np.savez("a.npz", size=np.arange(COUNT) % 31 * 0.5, label=np.arange(COUNT) % 2)
    return "a.npz"


def _write_texts() -> str:
    for name in ("good", "bad"):
        Path("texts").mkdir(exist_ok=True)
        lines = (f"{_text(number)} {name} {number}\n" for number in range(COUNT))
        Path(f"texts/{name}.txt").write_text("".join(lines))
    return "texts"


def _write_text_directories() -> str:
    for name in ("good", "bad"):
        for part in range(2):
            Path(f"texts/{name}").mkdir(parents=True, exist_ok=True)
            lines = (f"{_text(number)} {name} {number} {part}\n" for number in range(COUNT // 2))
            Path(f"texts/{name}/{part}.txt").write_text("".join(lines))
    return "texts"


def _write_images(directory: str, count: int, sizes: Sequence[tuple[int, int]]) -> None:
    for name in ("cat", "dog"):
        path = Path(directory, name)
        path.mkdir(parents=True)
        for number in range(count):
            image = png(number % 3, *sizes[number % len(sizes)])
            (path / f"{number}.png").write_bytes(image)


def _write_photos() -> str:
    _write_images("photos", 20, [(12, 9)])
    return "photos"


def _write_split_photos() -> str:
    for part, count in (("train", 20), ("val", 5)):
        _write_images(f"photos/{part}", count, [(12, 9), (200, 100)])
    return "photos"


_DATA = {
    "reviews": (_write_reviews, "tabular", "jsonl"),
    "parquet": (_write_parquet, "tabular", "parquet"),
    "named arrays": (_write_named_arrays, "tabular", "npz"),
    "texts": (_write_texts, "tabular", "text_files"),
    "text directories": (_write_text_directories, "tabular", "text_files"),
    "photos": (_write_photos, "image_classification", "image_folder"),
    "split photos": (_write_split_photos, "image_classification", "image_folder"),
}


@pytest.mark.parametrize("name", _DATA)
def test_the_data_decide_on_the_task(name, capsys):
    write, task, source = _DATA[name]

    _, config = _experiment(write())

    assert capsys.readouterr().err == ""
    assert (config.task.name, config.task.train_data.source) == (task, source)
    assert config.trainer.train_epochs or config.trainer.train_steps


@pytest.mark.promise("commands", "`runner init --from=DATA` writes an experiment that trains")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["parquet", "text directories", "split photos"])
def test_the_experiment_trains_as_it_is(name, here):
    write, _, _ = _DATA[name]
    _experiment(write())

    code = main(["--experiment=new/experiment.yaml", "--model_dir=run", "--quiet",
                 "--trainer.train_epochs=1", "--trainer.min_steps_per_epoch=2"])  # fmt: skip

    assert code == 0
    assert Path("run/run.json").is_file()


def test_images_of_one_directory_are_split_by_a_hash():
    _, config = _experiment(_write_photos())

    assert config.task.split.fractions == {"train": 0.7, "validation": 0.15, "test": 0.15}
    assert config.task.model.input_size is None
    assert config.task.train_data.global_batch_size == 16
    assert config.trainer.min_steps_per_epoch == 15


def test_images_of_different_sizes_are_resized():
    _, config = _experiment(_write_split_photos())

    assert [*config.task.model.input_size] == [64, 64, 3]


def test_comments_on_images_are_settings_that_can_be_used():
    text, _ = _experiment(_write_photos())
    small = re.compile(r"^ *(name: cnn|filters|kernel_size|dense_units).*\n", re.MULTILINE)
    commented = re.compile(r"^( *)# ([a-z_]+: [^ ].*)$", re.MULTILINE)
    Path("chosen.yaml").write_text(commented.sub(r"\1\2", small.sub("", text)))

    config = resolve(Request(experiment="chosen.yaml")).config

    assert config.task.model.weights == "imagenet"
    assert (config.task.train_data.augment, config.task.train_data.color_jitter) == (
        "inception",
        0.2,
    )


def test_damaged_pixels_of_an_image_are_a_warning(capsys):
    _write_images("photos", 20, [(64, 64)])
    damaged = Path("photos/dog/7.png")
    damaged.write_bytes(damaged.read_bytes()[:-30])

    assert main(["init", "new", "--from=photos"]) == 0

    assert f"{damaged}: the image cannot be decoded" in capsys.readouterr().err


def test_json_has_the_same():
    _write_csv("a.csv", ("x", "species"), ([n * 1.5, "ab"[n % 2]] for n in range(30)))

    result = json.loads(output_of(["init", "my new", "--from=a.csv", "--json", "--name=flowers"]))
    assert [*result["files"]] == ["experiment.yaml"]
    assert result["problems"] == ""
    assert result["next"][1] == "runner --experiment='my new/experiment.yaml'"
    assert resolve(Request(experiment="my new/experiment.yaml")).config.name == "flowers"


def _directory(*names: str) -> Callable[[], None]:
    def write() -> None:
        Path("data").mkdir()
        for name in names:
            Path("data", name).write_text("a,b\n1,2\n")

    return write


def _file(text: str) -> Callable[[], None]:
    return lambda: Path("data").with_suffix(".csv").write_text(text) and None


@pytest.mark.parametrize(
    ("data", "write", "code", "path"),
    [
        ("data", lambda: None, "missing-file", "--from"),
        ("", lambda: None, "not-set", "--from"),
        ("data", _directory(), "empty-data", "--from"),
        ("data", _directory("a.bin"), "not-supported", "--from"),
        ("data", _directory("a.csv"), "not-supported", "--from"),
        ("data/a.bin", _directory("a.bin"), "not-supported", "--from"),
        ("data.csv", lambda: Path("data.csv").touch(), "empty-data", "--from"),
        ("data.csv", _file("a,b\n"), "empty-data", "--from"),
        ("data.csv", _file("a,b\n1,2\n"), "bad-data", "--from"),
        ("data.csv", _file("a\n1\n2\n"), "not-supported", "--from"),
        ("data.csv", _file("a,b\n1\n"), "damaged-file", "--from"),
    ],
)
def test_data_that_cannot_be_used_are_an_error(data, write, code, path):
    write()

    fails(["init", "new", f"--from={data}"], code, path)

    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        (["--from=a.csv", "--label=speces"], "unknown-column", "--label"),
        (["--from=a.csv", "--label=name"], "bad-data", "--label"),
        (["--from=photos", "--label=x"], "no-effect", "--label"),
        (["--label=x"], "no-effect", "--label"),
        (["--from=gs://a/b.csv"], "bad-path", "--from"),
    ],
)
def test_wrong_flags_are_an_error(arguments, code, path):
    rows = ([number * 1.5, f"n{number}", "ab"[number % 2]] for number in range(30))
    _write_csv("a.csv", ("x", "name", "species"), rows)
    Path("photos").mkdir()

    fails(["init", "new", *arguments], code, path)
