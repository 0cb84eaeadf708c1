"""A trained run answers from its own assets, whatever has happened to its training data."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.serialize import to_yaml
from orbit_runner.data.tables import dataset as tables
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.image_classification import sources
from tests.support.images import write_folder
from tests.support.keras_models import BASE
from tests.support.problems import error_of, output_of
from tests.support.ratings import ratings_config, write_100k
from tests.support.tables import make_rows, table_config, write_csv, write_parquet
from tests.support.texts import text_config, write_texts
from tests.support.toy import config_of
from tests.support.translations import sentences, translation_config, write_pairs, write_set

_SHORT = {"trainer__train_steps": 4, "trainer__checkpoint_interval": 2}


@dataclasses.dataclass(frozen=True)
class Case:
    """An experiment whose data are in a directory.

    `write` writes the data, `change` then writes others from which another vocabulary, other
    classes or other statistics would be fitted. `items` are arguments of `runner predict`.
    """

    config: Callable[[Path], Any]
    write: Callable[[Path], object]
    change: Callable[[Path], object]
    items: Sequence[str]
    assets: str


def _table(data: Path) -> Any:
    return table_config(data / "rows.csv", **_SHORT)


def _write_table(data: Path, y: dict[str, str] | None = None, more: int = 0) -> None:
    data.mkdir(exist_ok=True)
    rows = make_rows(100 + more)
    for row in rows:
        row["y"] = (y or {}).get(row["y"], row["y"])
        row["size"] *= 10 if more else 1
    write_csv(data / "rows.csv", rows)


def _write_parquet(data: Path, more: int = 0) -> None:
    data.mkdir(exist_ok=True)
    write_parquet(data / "rows.parquet", make_rows(100 + more))


def _add_texts(data: Path) -> None:
    write_pairs(data, "train", [("zero zero null", "null null zero")] * 50, packed=True)


def _images(data: Path) -> Any:
    source = {"source": "image_folder", "data_dir": str(data), "global_batch_size": 8}
    return config_of(
        {
            "task.name": "image_classification",
            "task.model": {"name": "mlp", "hidden_units": [4], "input_size": [8, 8, 3]},
            "task.train_data": source,
            "task.validation_data": source,
            "trainer.train_steps": 4,
            "trainer.checkpoint_interval": 2,
            "trainer.optimizer_config.optimizer.type": "sgd",
            "trainer.optimizer_config.learning_rate.type": "constant",
            "trainer.optimizer_config.learning_rate.constant.learning_rate": 0.01,
            "runtime.distribution_strategy": "one_device",
        }
    )


def _write_images(data: Path) -> None:
    write_folder(data, {"birch": 6, "oak": 6})


def _ratings(data: Path) -> Any:
    sections = {
        f"task__{section}__{name}": value
        for section in ("train_data", "validation_data")
        for name, value in {"source": "movielens", "data_dir": str(data)}.items()
    }
    return ratings_config(**sections, **_SHORT)


def _change_ratings(data: Path) -> None:
    shutil.rmtree(data)
    write_100k(data, num_examples=1600)


def _npz(data: Path) -> Any:
    base = {name: value for name, value in BASE.items() if "_data." not in name}
    source = {"source": "npz", "input_path": str(data / "rows.npz"), "global_batch_size": 16}
    return config_of(base | {"task.train_data": source, "task.validation_data": source}, **_SHORT)


def _write_npz(data: Path, width: int = 4) -> None:
    data.mkdir(exist_ok=True)
    x = np.random.default_rng(1).normal(size=(100, width))
    np.savez(data / "rows.npz", x=x, y=x[:, :3].argmax(axis=1))


CASES = {
    "table": Case(
        _table,
        _write_table,
        lambda data: _write_table(data, {"big": "aaa", "small": "zzz"}, more=60),
        ["rows"],
        "preprocessing.json",
    ),
    "parquet": Case(
        lambda data: table_config(
            data / "rows.parquet",
            task__train_data__source="parquet",
            task__validation_data__source="parquet",
            **_SHORT,
        ),
        _write_parquet,
        lambda data: _write_parquet(data, more=60),
        ["rows"],
        "preprocessing.json",
    ),
    "texts": Case(
        lambda data: text_config(data, **_SHORT),
        write_texts,
        _add_texts,
        ["one two", "zwei drei"],
        "preprocessing.json",
    ),
    "images": Case(
        _images,
        _write_images,
        lambda data: write_folder(data, {"ash": 4, "birch": 2, "cedar": 4}),
        ["images"],
        "images.json",
    ),
    "ratings": Case(_ratings, write_100k, _change_ratings, ["10", "20"], "ratings.npz"),
    "translation": Case(
        lambda data: translation_config(data, task__bleu_examples=0, **_SHORT),
        write_set,
        lambda data: write_pairs(data, "train", sentences(300, 5, most=3), packed=True),
        ["translation"],
        "vocabulary.model",
    ),
    "arrays": Case(
        _npz, _write_npz, lambda data: _write_npz(data, width=5), ["[1, 2, 3, 4]"], "arrays.json"
    ),
}


def _items(case: Case, folder: Path) -> list[str]:
    if case.items[0] == "rows":
        return [str(write_csv(folder / "new.csv", make_rows(5)))]
    if case.items[0] == "images":
        return [str(path) for path in write_folder(folder / "new", {"x": 3}, first=50)]
    if case.items[0] == "translation":
        (folder / "lines.txt").write_text("one two three\nfour\n")
        return [str(folder / "lines.txt")]
    return list(case.items)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_predictions_do_not_change_when_training_data_change_or_are_gone(name, tmp_path, capsys):
    case, data, run = CASES[name], tmp_path / "data", tmp_path / "run"
    case.write(data)
    config = tmp_path / "config.yaml"
    config.write_text(to_yaml(case.config(data)))
    items = _items(case, tmp_path)

    def call(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = main([*map(str, arguments)])
        return code, capsys.readouterr().out

    assert call("run", f"--experiment={config}", f"--model_dir={run}")[0] == 0
    stored = {path.name: path.read_bytes() for path in (run / "assets").iterdir()}
    assert case.assets in stored
    digest = json.loads((run / "checkpoints" / "ckpt-4.json").read_text())["assets"]
    assert digest == Assets(run).digest != ""
    before = call("predict", run, *items)
    assert before[0] == 0

    case.change(data)
    sources._load_cached.cache_clear()  # A new process would read the directory of images again.
    assert call("predict", run, *items) == before
    code, _ = call("batch", run, "--step=2")
    assert code == 2
    error = error_of(["batch", str(run), "--example=0"])
    assert "the training data changed since the run last started" in str(error)

    shutil.rmtree(data)
    moved = tmp_path / "elsewhere" / "run"
    moved.parent.mkdir()
    run.rename(moved)
    assert call("predict", moved, *items) == before
    assert call("export", moved, f"--to={tmp_path / 'export'}")[0] == 0
    code, exported = call("predict", tmp_path / "export", *items)
    assert (code, exported) == before
    assert call("report", moved)[0] == 0
    assert call("verify", moved)[0] == 0
    assert {path.name: path.read_bytes() for path in (moved / "assets").iterdir()} == stored


@pytest.mark.slow
def test_new_run_replaces_the_assets_of_an_interrupted_start(tmp_path):
    data, run = tmp_path / "data", tmp_path / "run"
    _write_table(data)
    stale = Assets(run)
    stale.get("preprocessing.json", lambda: b"{}")
    stale.get("other.json", lambda: b"{}")
    stale.write()
    config = tmp_path / "config.yaml"
    config.write_text(to_yaml(_table(data)))
    assert main(["run", f"--experiment={config}", f"--model_dir={run}"]) == 0
    assert [path.name for path in (run / "assets").iterdir()] == ["preprocessing.json"]
    assert json.loads((run / "assets" / "preprocessing.json").read_text())["classes"] == {
        "y": ["big", "small"]
    }


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    """A directory with a config, its data and a run."""
    folder = tmp_path_factory.mktemp("table")
    _write_table(folder / "data")
    (folder / "config.yaml").write_text(to_yaml(_table(folder / "data")))
    arguments = [f"--experiment={folder / 'config.yaml'}", f"--model_dir={folder / 'run'}"]
    assert main(["run", *arguments]) == 0
    return folder


@pytest.fixture
def copied(table_run, tmp_path):
    """A copy of the run, whose data can be changed."""
    shutil.copytree(table_run, tmp_path / "copy")
    config = tmp_path / "copy" / "run" / "config.yaml"
    text = config.read_text().replace(str(table_run), str(tmp_path / "copy"))
    config.write_text(text)
    return tmp_path / "copy"


@pytest.mark.slow
def test_checkpoint_is_not_restored_with_other_assets(copied):
    path = copied / "run" / "assets" / "preprocessing.json"
    path.write_text(path.read_text().replace('"big"', '"huge"'))
    rows = write_csv(copied / "new.csv", make_rows(2))
    error = error_of(["predict", str(copied / "run"), str(rows)])
    assert "was trained with other assets" in str(error)


@pytest.mark.slow
def test_evaluation_of_a_class_that_the_run_does_not_know_is_an_error(copied):
    _write_table(copied / "data", {"big": "Big"})
    run = str(copied / "run")
    error = str(error_of(["run", f"--experiment={run}", f"--model_dir={run}", "--mode=eval"]))
    assert "has the class 'Big'" in error
    assert "which no training row has" in error
    assert "its classes: big, small" in error


@pytest.mark.slow
def test_inspection_of_a_run_shows_its_own_model_and_that_the_data_changed(copied, capsys):
    run = str(copied / "run")

    def inspect() -> tuple[Any, str]:
        capsys.readouterr()
        assert main(["inspect", run, "--json"]) == 0
        out, err = capsys.readouterr()
        return json.loads(out)["layers"], err

    layers, before = inspect()
    assert "changed since" not in before
    rows = make_rows(100)
    for number, row in enumerate(rows):
        row["color"] = f"color {number % 7}"
    write_csv(copied / "data" / "rows.csv", rows)
    tables._open.cache_clear()  # A process reads each file once.
    second_layers, after = inspect()
    assert second_layers == layers
    assert "the data shown here changed since" in after


def test_run_that_lost_its_assets_is_usable_while_its_data_are_unchanged(copied):
    run, rows = copied / "run", write_csv(copied / "new.csv", make_rows(3))
    before = output_of(["predict", str(run), str(rows)])
    shutil.rmtree(run / "assets")

    assert output_of(["predict", str(run), str(rows)]) == before
    assert not (run / "assets").exists()
    _write_table(copied / "data", more=5)
    tables._open.cache_clear()  # A process reads each file once.
    error = error_of(["predict", str(run), str(rows)])
    assert "was trained with other assets" in str(error)


@pytest.mark.slow
def test_initial_weights_of_a_run_with_another_vocabulary_are_noted(tmp_path, capsys):
    write_texts(tmp_path / "data")
    config = tmp_path / "config.yaml"
    config.write_text(to_yaml(text_config(tmp_path / "data", **_SHORT)))
    arguments = [f"--experiment={config}", "--train_steps=2"]
    assert main(["run", *arguments, f"--model_dir={tmp_path / 'a'}"]) == 0
    start = [*arguments, f"--task.init_checkpoint={tmp_path / 'a'}"]
    assert main(["run", *start, f"--model_dir={tmp_path / 'b'}"]) == 0
    assert "learned other things" not in capsys.readouterr().err
    # The same words, with other ids because other ones are more frequent.
    write_pairs(tmp_path / "data", "train", sentences(40, 9), packed=True)
    tables._open.cache_clear()  # A process reads each file once.
    assert main(["run", *start, f"--model_dir={tmp_path / 'c'}"]) == 0
    error = capsys.readouterr().err
    assert f"{tmp_path / 'a'} learned other things from its data" in error
    assert "preprocessing.json" in error


def _lookup_model(words: tuple[str, ...] = ("soup", "goal")) -> Any:
    import tf_keras

    split = tf_keras.layers.TextVectorization(output_sequence_length=2, vocabulary=list(words))
    x = tf_keras.Input((), dtype="string")
    embedded = tf_keras.layers.Embedding(8, 2)(split(x))
    return tf_keras.Model(x, tf_keras.layers.GlobalAveragePooling1D()(embedded))


def test_lookup_layer_with_another_vocabulary_than_the_run_is_an_error(tmp_path):
    from orbit_runner.errors import SettingError
    from orbit_runner.tasks.keras.model_builder import check_vocabularies

    assets = Assets(tmp_path)
    check_vocabularies(_lookup_model(), assets)
    assets.write()
    check_vocabularies(_lookup_model(), Assets(tmp_path))
    with pytest.raises(SettingError, match="another vocabulary"):
        check_vocabularies(_lookup_model(("soup", "bread")), Assets(tmp_path))
    with pytest.raises(SettingError, match="another vocabulary"):
        check_vocabularies(_lookup_model(("soup", "goal", "team")), Assets(tmp_path))
    check_vocabularies(_plain_model(), Assets(tmp_path / "new"))
    assert Assets(tmp_path / "new").digest == ""


def _plain_model() -> Any:
    import tf_keras

    return tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(2,))])
