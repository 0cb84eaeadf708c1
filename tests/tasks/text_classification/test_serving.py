"""Serving of text classification: texts in, labels out; unknown words, empty texts, bad rows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.tasks.text_classification.task import TextClassificationTask, TextPredictor
from tests.support.problems import raises
from tests.support.tables import write_csv, write_jsonl
from tests.support.texts import text_config, write_texts

TEXTS = ["one TWO, three", "zehn", "unknown words", "", "  FÜNF\u00a0 sechs ", "two" * 99, "ﬁ ½ ٣"]


@pytest.fixture(scope="module", params=["words", "subwords"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model of random weights."""
    folder = write_texts(tmp_path_factory.mktemp("texts"))
    config = text_config(
        folder, task__text__tokenizer=request.param, task__text__vocab_size=40,
        task__text__max_length=9,
    )  # fmt: skip
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


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"txt": "one"}', "has no column 'text'"),
        ('{"text": ["one"]}', "column 'text': got ['one'], expected a text"),
        ("no object", "expected a JSON object"),
        ('{"text": "\\ud800"}', "is not valid UTF-8"),
    ],
)
def test_bad_rows_are_reported_in_their_place(served: Any, row: str, message: str) -> None:
    good = '{"text": "one"}'
    predictor = _predictor(served)
    items = list(predictor.items([], io.StringIO(f'{good}\n{row}\n{{"text": null}}\n')))
    found = predictor.predict(items)
    assert ["error" in one.data for one in found] == [False, True, False]
    assert message in found[1].data["error"]
    assert found[1].text.startswith("standard input, row 2: error: ")
    assert found[2].data["text"] == ""


def test_file_that_does_not_exist_is_reported(served: Any) -> None:
    with raises("missing-file"):
        list(_predictor(served).items(["absent.csv"], []))
