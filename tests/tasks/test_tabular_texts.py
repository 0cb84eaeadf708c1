"""A table whose only feature is a text: files of each class, tokens, and predictions for texts."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.cli.commands.predict import print_predictions
from orbit_runner.config.errors import ConfigError
from orbit_runner.data.text.lines import read_lines
from orbit_runner.step.batches import sentences
from orbit_runner.step.examples import TrainingOrder
from orbit_runner.tasks.tabular.task import TabularTask
from tests.support.batches import without_autotuning
from tests.support.evaluations import random_model
from tests.support.problems import raises
from tests.support.tables import make_rows, table_config, write_csv, write_jsonl
from tests.support.texts import text_config, write_texts
from tests.support.translations import WORDS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory of texts."""
    return write_texts(tmp_path_factory.mktemp("texts"))


@pytest.mark.parametrize(
    ("changes", "code", "setting"),
    [
        ({"task__features__text": ["tex"]}, "unknown-column", "features.text[0].column"),
        ({"task__target": "lable"}, "unknown-column", "target.column"),
        ({"task__train_data__files__german": "train.en*"}, "set-twice", "train_data.files"),
        ({"task__split__column": "part"}, "unknown-column", "split.column"),
    ],
)
def test_problems_of_files_name_their_setting(folder, changes, code, setting):
    problems = text_config(folder, **changes).data.problems()
    assert {(problem.code, problem.path) for problem in problems} == {(code, setting)}


def test_text_files_are_listed_by_their_class(folder):
    with pytest.raises(ConfigError, match="not read by `source: text_files`; set files"):
        text_config(folder, task__train_data__input_path="train.en")


def _task(config):
    return TabularTask(config.task)


def _fit(task):
    return task.fitted.texts["text"]


def _rows(folder):
    """The validation texts with their class."""
    return [
        (line, name)
        for name, suffix in (("english", "en"), ("german", "de"))
        for line in read_lines(folder / f"val.{suffix}")
    ]


def test_evaluation_batches_are_the_first_words_of_each_line(folder):
    config = text_config(folder)
    task, rows = _task(config), _rows(folder)
    rows_of_batches = []
    for features, targets, weights in without_autotuning(
        task.build_inputs(config.task.validation_data)
    ):
        inside = weights.numpy() > 0
        texts = _fit(task).decode(features["tokens"].numpy()[inside])
        classes = task.fitted.classes
        names = [classes[label] for label in targets["label"].numpy()[inside]]
        rows_of_batches += [*zip(texts, names, strict=True)]
    assert rows_of_batches == [(" ".join(line.split()[:4]), name) for line, name in rows]
    assert task.num_examples(config.task.validation_data) == len(rows) == 18


def test_words_are_those_of_the_training_texts(folder):
    vocabulary = _fit(_task(text_config(folder)))
    assert sorted(vocabulary.words) == sorted([*WORDS, *WORDS.values()])
    assert vocabulary.size == 22
    text = {"column": "text", "vocab_size": 8}
    few = _fit(_task(text_config(folder, task__features__text=[text])))
    assert list(few.words) == list(vocabulary.words[:6])
    part = text_config(
        folder, task__split__fractions={"few": 0.1, "all": 0.9}, task__train_data__split="few",
        task__validation_data__split="all",
    )  # fmt: skip
    task = _task(part)
    lines = task.part(part.task.train_data).column("text").text_counts()
    assert set(_fit(task).words) == {word for line in lines for word in line.split()}
    assert 2 <= len(lines) < 20


def test_logits_are_float32_with_16_bits(folder):
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model = _task(text_config(folder, task__model__hidden_units=[6])).build_model()
        tokens = np.array([[5, 2, 9, 0], [0, 0, 0, 0]], np.int32)
        assert model({"tokens": tokens})["label"].dtype.name == "float32"
        assert {variable.dtype.name for variable in model.trainable_variables} == {"float32"}
    finally:
        tf_keras.mixed_precision.set_global_policy(before)


TEXTS = ["one TWO, three", "zehn", "unknown words", "", "  FÜNF\u00a0 sechs ", "two" * 99, "ﬁ ½ ٣"]


@pytest.fixture(scope="module")
def served(folder):
    """A model of random weights."""
    text = {"column": "text", "vocab_size": 40, "max_length": 9}
    task = _task(text_config(folder, task__features__text=[text]))
    model = random_model(task)
    return task, model, task.serving(model)


def _predictor(served, top_k=None):
    return served[0].predictor(served[2].signatures, top_k=top_k)


def _tokens(task, texts):
    """The tokens of texts as training makes them."""
    column = task.part(task.task_config.validation_data).column("text")
    missing = -1
    codes = [texts.index(text) if text else missing for text in texts]
    other = type(column)("text", column.kind, np.array(codes, np.int32), tuple(texts))
    return _fit(task).tokens(other)


@pytest.mark.slow
def test_signature_splits_texts_as_training_does(served):
    task, model, serving = served
    outputs = serving.signatures[serving.default](text=tf.constant(TEXTS))
    tokens = _tokens(task, TEXTS)
    expected = tf.nn.softmax(model({"tokens": tokens}, training=False)["label"])
    np.testing.assert_array_equal(outputs["label"], expected)
    assert len({tuple(row) for row in tokens.tolist()}) > 4
    names = serving.signatures["target"]()["classes"].numpy().tolist()
    assert names == [b"english", b"german"]


def test_texts_of_all_kinds_of_items_get_the_same_labels(served, tmp_path):
    predictor, texts = _predictor(served), ["one two", "zehn, acht", "drei"]
    rows = [{"id": n, "text": text} for n, text in enumerate(texts)]
    (tmp_path / "a.txt").write_text("".join(f"{text}\r\n" for text in texts), encoding="utf-8")
    (tmp_path / "lines").write_text("\n".join(texts), encoding="utf-8")
    table = write_csv(tmp_path / "a.csv", rows)
    write_csv(tmp_path / "rows", rows)
    json_lines = write_jsonl(tmp_path / "a.jsonl", rows)
    kinds = [list(predictor.items(texts, []))]
    kinds += [
        list(predictor.items([str(tmp_path / name)], []))
        for name in ("a.txt", "lines", "a.csv", "rows", "a.jsonl")
    ]
    for lines in ("\n".join(texts), table.read_text(), json_lines.read_text()):
        kinds.append(list(predictor.items(["-"], io.StringIO(lines))))
    answers = [[dict(answer.data) for answer in predictor.predict(items)] for items in kinds]
    assert [answer.pop("row", "") for answer in answers[0]] == ["", "", ""]
    assert [answer["row"] for answer in answers[3]] == [f"{table}, row {n}" for n in (1, 2, 3)]
    for of_kind in answers[1:]:
        assert [answer.pop("row").rpartition(", ")[2] for answer in of_kind] == [
            "row 1",
            "row 2",
            "row 3",
        ]
        assert of_kind == answers[0]
    assert [answer["text"] for answer in answers[0]] == texts
    assert [*answers[0][0]["label"]["probabilities"]] == ["english", "german"]


@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        ("the text of a line\n", ["the text of a line"]),
        ('{"text": "one"}\n', ["one"]),
        ("text\none\n", ["one"]),
        ("id,text\n1,one\n", ["one"]),
        (f"{'two ' * 70_000}\n", ["two " * 70_000]),
        ('"one\ntwo\n', ['"one', "two"]),
        ("\none\n", ["", "one"]),
    ],
)
def test_first_line_decides_whether_lines_are_texts(served, lines, texts):
    items = [*_predictor(served).items([], io.StringIO(lines))]
    assert [item.values["text"] for item in items] == texts


def test_lines_of_a_table_without_a_header_are_its_rows(tmp_path):
    (tmp_path / "a.csv").write_text("english,one two\ngerman,eins\n" * 20)
    settings = {
        "task__target": "label",
        "task__features": {"text": ["text"]},
        "task__train_data__column_names": ["label", "text"],
        "task__validation_data__column_names": ["label", "text"],
    }
    task = TabularTask(table_config(tmp_path / "a.csv", **settings).task)
    predictor = task.predictor(task.serving(task.build_model()).signatures)
    items = [*predictor.items([], io.StringIO("german,drei\n"))]
    assert [item.values for item in items] == [{"label": "german", "text": "drei"}]


def test_top_k_limits_the_classes(served):
    both, top_1 = (_predictor(served, top_k=k) for k in (2, 1))
    (item,) = both.items(["one two"], [])
    (answer,), (limited,) = both.predict([item]), top_1.predict([item])
    (first, larger), (second, smaller) = answer.data["label"]["probabilities"].items()
    assert larger >= smaller
    assert answer.data["label"]["class"] == first
    assert limited.data["label"]["probabilities"] == {first: larger}
    assert answer.text == f"label {first} ({larger:.4f}), {second} ({smaller:.4f})  one two"
    assert limited.text == f"label {first} ({larger:.4f})  one two"


def test_missing_file_and_invalid_text_are_refused(served):
    with raises("missing-file"):
        list(_predictor(served).items(["absent.csv"], []))
    (answer,) = _predictor(served).predict([*_predictor(served).items(["one \udcff"], [])])
    assert answer.data["error"] == "is not valid UTF-8"


def test_scored_lines_are_a_table(served, tmp_path):
    (tmp_path / "a.txt").write_text("one, two\n\n", encoding="utf-8")
    scored = tmp_path / "scored.csv"

    print_predictions(
        _predictor(served), [str(tmp_path / "a.txt")], as_json=False, batch_size=8, to=scored
    )

    rows = [*csv.DictReader(scored.read_text().splitlines())]
    assert [row["text"] for row in rows] == ["one, two", ""]
    assert {"predicted_label", "probability_label_english"} < rows[0].keys()


def test_description_of_a_batch_has_the_texts_if_asked(folder):
    order = TrainingOrder(text_config(folder), None)
    plain, full = order.step(1), order.step(1, text=True)
    for row, known in zip(plain.chosen, full.chosen, strict=True):
        assert "texts" not in row
        name, number = known["place"].split(", row ")
        line = [*read_lines(Path(name))][int(number) - 1]
        assert known == row | {"texts": {"text": line}}


def test_batches_are_shown_as_the_texts_that_the_model_sees(folder):
    task = _task(text_config(folder))
    batch = ({"tokens": tf.constant([[2, 1, 0, 0], [3, 2, 4, 0]])}, {"label": tf.constant([0, 1])})
    first, second, third = _fit(task).words[:3]
    expected = [f"{first} ⁇", f"{second} {first} {third}"]
    assert [text for _, text in sentences(task, batch)] == expected
    numbers = TabularTask(table_config(write_csv(folder / "a.csv", make_rows(9))).task)
    assert numbers.vocabulary is None
