"""Served signatures, and predictions for lines of text."""

import gzip
import io

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.data.text.lines import read_stream
from orbit_runner.tasks.serving import Line
from orbit_runner.tasks.translation.serving import LinePredictor
from orbit_runner.tasks.translation.task import TranslationTask
from tests.support.configs import in_both_sections
from tests.support.problems import raises
from tests.support.translations import translation_config, write_set

LINES = ["three four", "", "one", "  ", "nine eight seven six five four", "two two"]


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        task_of_set = TranslationTask(translation_config(write_set(folder / "set")).task)
        assert task_of_set.vocabulary is not None
    return task_of_set


@pytest.fixture(scope="module")
def served(task):
    tf_keras.utils.set_random_seed(1)
    model = task.build_model()
    # Untrained weights give the same output for all sentences.
    model.set_weights([4 * value for value in model.get_weights()])
    return task.serving(model)


@pytest.mark.slow
def test_text_signature_agrees_with_the_tokens_signature(task, served):
    assert served.default == "text"
    words, lines = task.vocabulary, [line for line in LINES if line.strip()]
    rows = [words.encode([line]).row(0).tolist() for line in lines]
    width = max(map(len, rows))
    ids = tf.constant([row + [0] * (width - len(row)) for row in rows])
    outputs = served.signatures["tokens"](inputs=ids)
    text = served.signatures["text"](text=tf.constant(lines))
    expected = words.decode(outputs["outputs"].numpy())
    assert [raw.decode() for raw in text["translations"].numpy()] == expected
    np.testing.assert_allclose(text["scores"], outputs["scores"], rtol=1e-5)
    assert len(set(expected)) > 1


@pytest.mark.slow
def test_model_without_a_vocabulary_serves_only_tokens():
    config = translation_config("nowhere", **in_both_sections(source="synthetic"))
    task = TranslationTask(config.task)
    served = task.serving(task.build_model())
    assert [*served.signatures] == [served.default] == ["tokens"]
    with raises("missing-file"):
        task.predictor(served.signatures)
    with raises("no-effect", "--top_k"):
        task.predictor(served.signatures, top_k=3)


class Upper:
    """A fake signature: a translation is the line in capitals, a score its length."""

    def __init__(self):
        self.batches = []

    def __call__(self, text):
        lines = [raw.decode() for raw in text.numpy()]
        self.batches.append(lines)
        return {
            "translations": tf.constant([line.upper() for line in lines]),
            "scores": tf.constant([float(len(line)) for line in lines]),
        }


def test_lines_keep_their_order_and_empty_ones_stay_empty():
    signature = Upper()
    lines = [*LINES, *(f"{'word ' * (n * 7 % 11)}{n}" for n in range(70))]
    answers = LinePredictor({"text": signature}).predict([*map(Line, lines)])
    assert [answer.text for answer in answers] == [line.strip() and line.upper() for line in lines]
    assert [answer.data["source"] for answer in answers] == lines
    assert answers[0].data == {"source": LINES[0], "translation": "THREE FOUR", "score": 10.0}
    assert answers[1].data["score"] is None
    # Lines of similar length are batched together, so that short ones do not wait for long ones.
    sizes = [len(line) for batch in signature.batches for line in batch]
    assert sizes == sorted(sizes)
    assert max(map(len, signature.batches)) <= 32
    assert all(line.strip() for batch in signature.batches for line in batch)


def test_predictor_items_come_from_files_stdin_or_arguments(tmp_path):
    predictor = LinePredictor({"text": Upper()})
    path = tmp_path / "a.txt"
    path.write_bytes("erste\r\n\nzwei drei\u2028vier".encode())
    standard = ["from\n", "\n", "stdin"]
    assert [line.text for line in predictor.items([], standard)] == ["from", "", "stdin"]
    long = "ä " * 2500  # Longer than the name of a file may be.
    items = predictor.items([str(path), "-", "A dog.", long], standard)
    assert [line.text for line in items] == [
        *("erste", "", "zwei drei\u2028vier"),
        *("from", "", "stdin"),
        *("A dog.", long),
    ]
    for name in ("missing.txt", "folder/file", "./x"):
        with raises("missing-file"):
            list(predictor.items([name], []))


def test_line_that_is_not_utf8_is_reported_in_its_place(tmp_path):
    predictor = LinePredictor({"text": Upper()})
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("\ufeffeins\u0085zwei\r\n".encode() + b"dr\xffei\nvier\n"))
    standard = read_stream(io.BufferedReader(io.BytesIO(b"f\xfcnf\nsechs\n")), "standard input")
    answers = predictor.predict([*predictor.items([str(path), "-", "sie\udcffben"], standard)])

    assert [answer.data.get("error") for answer in answers] == [
        None,
        f"{path}:2: is not valid UTF-8 (invalid start byte)",
        None,
        "standard input:1: is not valid UTF-8",
        None,
        "is not valid UTF-8",
    ]
    assert [answers[n].text for n in (0, 2, 4)] == ["EINS\u0085ZWEI", "VIER", "SECHS"]


def test_sentence_that_fails_its_batch_is_reported_alone():
    def translate(*, text):
        if b"two" in text.numpy():
            raise tf.errors.InvalidArgumentError(None, None, "no such word")
        return Upper()(text=text)

    answers = LinePredictor({"text": translate}).predict([Line("one"), Line("two"), Line("six")])
    assert [answer.text for answer in answers] == ["ONE", "error: no such word", "SIX"]
    assert answers[1].data == {"source": "two", "error": "no such word"}
