"""Text classification: files and columns, tokens and batches, networks, serving, and runs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.text.lines import read_lines
from orbit_runner.registry import TEXT_CLASSIFIERS
from orbit_runner.tasks.tabular.preprocessing import PREPROCESSING_FILE
from orbit_runner.tasks.text_classification.task import TextClassificationTask, TextPredictor
from tests.support.batches import without_autotuning
from tests.support.problems import pairs, raises
from tests.support.tables import write_csv, write_jsonl
from tests.support.texts import text_config, write_texts
from tests.support.toy import run_and_resume
from tests.support.translations import WORDS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of texts."""
    return write_texts(tmp_path_factory.mktemp("texts"))


def _problems(folder: Path, **changes: Any) -> dict[str, str]:
    return dict(pairs(text_config(folder, **changes).data.problems()))


def test_files_are_found_plain_or_packed(folder: Path) -> None:
    assert _problems(folder) == {}
    others = write_texts(folder / "others")
    (others / "val.de").unlink()
    assert _problems(others) == {
        "validation_data.files": f"text_files: no file matches {others / 'val.de'}"
    }


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"task__text__column": "tex"}, "text.column", "did you mean 'text'?"),
        ({"task__label_column": "lable"}, "label_column", "did you mean 'label'?"),
        ({"task__train_data__files__german": "train.en*"}, "train_data.files",
         "train.en.gz is listed twice"),
        ({"task__validation_data__files": {"a": "val.de", "b": "val.*"}},
         "validation_data.files", "val.de is listed twice"),
        ({"task__train_data__input_path": "train.en"}, "train_data.input_path",
         "list the files of each class in `files`"),
        ({"task__split__column": "part"}, "split.column", "unknown column 'part'"),
    ],
)  # fmt: skip
def test_problems_of_files_name_their_setting(
    folder: Path, changes: dict[str, Any], field: str, message: str
) -> None:
    found = _problems(folder, **changes)
    assert message in found[field]
    assert list(found) == [field]


def _task(config: ExperimentConfig, run: Path | None = None) -> TextClassificationTask:
    return TextClassificationTask(config.task, logging_dir=run and str(run))  # type: ignore[arg-type]


def _rows(folder: Path) -> list[tuple[str, str]]:
    """The validation texts with their class."""
    return [
        (line, name)
        for name, suffix in (("english", "en"), ("german", "de"))
        for line in read_lines(folder / f"val.{suffix}")
    ]


def test_evaluation_batches_are_the_first_words_of_each_line(folder: Path) -> None:
    config = text_config(folder)
    task, rows = _task(config), _rows(folder)
    found = []
    for features, targets, weights in without_autotuning(
        task.build_inputs(config.task.validation_data)
    ):
        inside = weights.numpy() > 0
        texts = task.vocabulary.decode(features["tokens"].numpy()[inside])
        names = [task.class_names[label] for label in targets["label"].numpy()[inside]]
        found += [*zip(texts, names, strict=True)]
    assert found == [(" ".join(line.split()[:4]), name) for line, name in rows]
    assert task.num_examples(config.task.validation_data) == len(rows) == 18


def test_words_are_those_of_the_training_texts(folder: Path, tmp_path: Path) -> None:
    whole = _task(text_config(folder)).vocabulary
    assert sorted(whole.words) == sorted([*WORDS, *WORDS.values()])
    assert whole.size == 22
    few = _task(text_config(folder, task__text__vocab_size=8)).vocabulary
    assert list(few.words) == list(whole.words[:6])
    part = text_config(
        folder, task__split__fractions={"few": 0.1, "all": 0.9}, task__train_data__split="few",
        task__validation_data__split="all",
    )  # fmt: skip
    task = _task(part)
    lines = task.part(part.task.train_data).column("text").text_counts()
    assert set(task.vocabulary.words) == {word for line in lines for word in line.split()}
    assert 2 <= len(lines) < 20


def test_logits_are_float32_with_16_bits() -> None:
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        network = TEXT_CLASSIFIERS.get("bag_of_words").load()
        model = network(vocab_size=10, length=3, num_classes=4, hidden_units=[6])
        assert model(np.array([[5, 2, 9], [0, 0, 0]], np.int32)).dtype.name == "float32"
        assert {variable.dtype.name for variable in model.trainable_variables} == {"float32"}
    finally:
        tf_keras.mixed_precision.set_global_policy(before)


TEXTS = ["one TWO, three", "zehn", "unknown words", "", "  FÜNF\u00a0 sechs ", "two" * 99, "ﬁ ½ ٣"]


@pytest.fixture(scope="module")
def served(folder: Path) -> Any:
    """A model of random weights."""
    config = text_config(folder, task__text__vocab_size=40, task__text__max_length=9)
    task = TextClassificationTask(config.task)  # type: ignore[arg-type]
    model, generator = task.build_model(), np.random.default_rng(2)
    for variable in model.trainable_variables:
        variable.assign(generator.normal(size=variable.shape))
    return task, model, task.serving(model)


def _predictor(served: Any, top_k: int | None = None) -> TextPredictor:
    found = served[0].predictor(served[2].signatures, top_k=top_k)
    assert isinstance(found, TextPredictor)
    return found


def _tokens(task: TextClassificationTask, texts: list[str]) -> np.ndarray:
    """The tokens of texts as training makes them."""
    column = task.part(task.task_config.validation_data).column("text")
    missing = -1
    codes = [texts.index(text) if text else missing for text in texts]
    other = type(column)("text", column.kind, np.array(codes, np.int32), tuple(texts))
    return task.vocabulary.tokens(other)


@pytest.mark.slow
def test_signature_splits_texts_as_training_does(served: Any) -> None:
    task, model, serving = served
    assert serving.default == "text"
    found = serving.signatures["text"](text=tf.constant(TEXTS))
    tokens = _tokens(task, TEXTS)
    expected = model({"tokens": tokens}, training=False)["label"]
    np.testing.assert_array_equal(found["logits"], expected)
    np.testing.assert_allclose(found["probabilities"].numpy().sum(axis=1), 1, rtol=1e-6)
    assert len({tuple(row) for row in tokens.tolist()}) > 4
    names = serving.signatures["class_names"]()["names"].numpy().tolist()
    assert names == [b"english", b"german"]


def test_texts_of_all_kinds_of_items_get_the_same_labels(served: Any, tmp_path: Path) -> None:
    predictor, texts = _predictor(served), ["one two", "zehn, acht", "drei"]
    rows = [{"id": n, "text": text} for n, text in enumerate(texts)]
    (tmp_path / "a.txt").write_text("".join(f"{text}\r\n" for text in texts), encoding="utf-8")
    write_csv(tmp_path / "a.csv", rows)
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    found = [list(predictor.items(texts, []))]
    found += [
        list(predictor.items([str(tmp_path / f"a.{end}")], [])) for end in ("txt", "csv", "jsonl")
    ]
    found += [list(predictor.items(["-"], io.StringIO(path.read_text())))]
    found += [list(predictor.items([], io.StringIO("\n".join(texts))))]
    answers = [[dict(one.data) for one in predictor.predict(items)] for items in found]
    assert [one.pop("row", None) for one in answers[2]] == [
        f"{tmp_path / 'a.csv'}, row {n}" for n in (1, 2, 3)
    ]
    for of_kind in answers[1:]:
        for one, first in zip(of_kind, answers[0], strict=True):
            one.pop("row", None)
            assert one == first
    assert [one["text"] for one in answers[0]] == texts
    for one in answers[0]:
        labels = one["predictions"]
        assert labels[0]["probability"] >= labels[1]["probability"]
        assert {labels[0]["label"], labels[1]["label"]} == {"english", "german"}


def test_top_k_limits_the_labels(served: Any) -> None:
    predictor = _predictor(served, top_k=1)
    (found,) = predictor.predict([*predictor.items(["one two"], [])])
    assert len(found.data["predictions"]) == 1
    label = found.data["predictions"][0]["label"]
    assert found.text.startswith(f"{label} ")
    assert found.text.endswith("  one two")
    with raises("missing-file"):
        list(predictor.items(["absent.csv"], []))


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
def test_stopped_and_resumed_run_has_the_weights_of_an_uninterrupted_one(
    folder: Path, tmp_path: Path, strategy: str
) -> None:
    config = text_config(folder, task__model__hidden_units=[8])
    runs = run_and_resume(config, tmp_path, strategy)
    assert runs.notes.reasons == []
    assert runs.resumed_logs["validation_loss"] == runs.logs["validation_loss"]
    records = [
        json.loads((tmp_path / name / "checkpoints" / "ckpt-24.json").read_text())
        for name in ("whole", "parts")
    ]
    assert records[0]["state"] == records[1]["state"]
    assert (tmp_path / "whole" / "assets" / PREPROCESSING_FILE).read_bytes() == (
        tmp_path / "parts" / "assets" / PREPROCESSING_FILE
    ).read_bytes()
