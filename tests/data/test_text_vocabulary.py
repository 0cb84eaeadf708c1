import io
import re

import numpy as np
import pytest
import sentencepiece

from orbit_runner.data import disk_cache
from orbit_runner.data.text.source import EOS, PAD, UNKNOWN
from orbit_runner.data.text.tokenizer import vocabulary as vocabularies
from orbit_runner.data.text.tokenizer.vocabulary import (
    Vocabulary,
    build_vocabulary,
    clean,
    vocabulary_of_text,
)
from tests.support.problems import raises
from tests.support.sentences import sentences, write_text

_LINES = sentences(400)
_SIZE = 150


@pytest.fixture(scope="module")
def vocabulary():
    return build_vocabulary(_LINES, size=_SIZE)


pytestmark = pytest.mark.usefixtures("text_cache")


def _trained(lines=_LINES, **settings):
    model, settings = io.BytesIO(), {"vocab_size": _SIZE, **settings}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=2, **settings
    )
    return model.getvalue()


def test_encoded_ids_spell_the_text_and_end_with_eos(vocabulary):
    assert vocabulary.size == len(vocabulary.pieces) == len(vocabulary.scores) == _SIZE
    assert [vocabulary.pieces[k] for k in (PAD, EOS, UNKNOWN)] == ["<pad>", "</s>", "<unk>"]
    rows = vocabulary.encode(_LINES)
    assert rows.values.dtype == np.int32
    assert rows.size == len(_LINES)
    for number in range(rows.size):
        row = rows.row(number)
        assert row[-1] == EOS
        assert (row[:-1] > UNKNOWN).all()
        # A space is U+2581, and in front of the first word too.
        text = "".join(vocabulary.pieces[k] for k in row[:-1])
        assert text == "▁" + _LINES[number].replace(" ", "▁")


def test_ids_after_eos_are_ignored(vocabulary):
    row = vocabulary.encode([_LINES[0]]).row(0).tolist()
    other = vocabulary.encode([_LINES[1]]).row(0).tolist()
    rows = np.array([[*row, 0, 0, 0], [*row, *other[:3]]])
    assert vocabulary.decode(rows) == [_LINES[0]] * 2
    assert vocabulary.decode([row[:-1]]) == [_LINES[0]]


def test_unknown_characters_and_ids_decode_to_a_placeholder(vocabulary):
    rows = vocabulary.encode(["嘿嘿 " + _LINES[0]])
    assert (rows.values == UNKNOWN).sum() == 1
    assert vocabulary.decode([rows.row(0)]) == ["⁇ " + _LINES[0]]
    assert vocabulary.decode([[UNKNOWN, _SIZE + 7, -1, EOS]]) == ["⁇ ⁇ ⁇"]


def test_all_kinds_of_whitespace_become_one_space(vocabulary):
    text = "\ufeff a\u00a0\u00a0b\t c\x00d\u2028e\u3000f▁g\x85 "
    assert clean(text) == "a b c d e f g"
    rows = vocabulary.encode([text, "a b c d e f g", "", "\u00a0 \t"])
    np.testing.assert_array_equal(rows.row(0), rows.row(1))
    assert rows.row(2).tolist() == rows.row(3).tolist() == [EOS]


def test_same_text_gives_the_same_vocabulary(vocabulary):
    assert build_vocabulary(_LINES, size=_SIZE).model == vocabulary.model
    assert build_vocabulary(sentences(400, seed=1), size=_SIZE).pieces != vocabulary.pieces


@pytest.mark.parametrize(
    ("lines", "size", "field", "code", "reason"),
    [
        (
            _LINES,
            100_000,
            "vocab_size",
            "out-of-range",
            r"subwords: Vocabulary size too high",
        ),
        (
            _LINES,
            20,
            "vocab_size",
            "out-of-range",
            r"subwords: .* required_chars",
        ),
        (["", " \t"], 100, "input_path", "empty-data", "got no words"),
    ],
)
def test_impossible_vocabulary_size_or_empty_text_is_rejected(lines, size, field, code, reason):
    with raises(code) as caught:
        build_vocabulary(lines, size=size)
    assert caught.value.field == field
    assert re.search(reason, str(caught.value))
    assert "\n" not in str(caught.value)


def test_vocabulary_loads_from_a_file(tmp_path, vocabulary):
    path = tmp_path / "some.model"
    path.write_bytes(vocabulary.model)
    assert Vocabulary.load(path).pieces == vocabulary.pieces


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "unreadable-file"),
        (b"", "damaged-file"),
        (b"a b c\nd e f\n", "damaged-file"),
        (_trained(), "damaged-file"),
    ],
)
def test_invalid_vocabulary_file_is_rejected(tmp_path, content, code):
    path = tmp_path / "some.model"
    if content is not None:
        path.write_bytes(content)
    with raises(code) as caught:
        Vocabulary.load(path)
    assert str(path) in str(caught.value)
    assert caught.value.field == "vocabulary"


_IDS = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


@pytest.mark.parametrize("settings", [{"model_type": "bpe"}, {"user_defined_symbols": ["ab"]}])
def test_models_that_ops_cannot_reproduce_are_rejected(settings):
    model = _trained(sentences(600, words=400), **_IDS, **settings)
    with raises("damaged-file"):
        Vocabulary(model, "spm.model").check_reproducible()


def test_vocabulary_of_a_text_is_built_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(disk_cache, "KEPT_SECONDS", -1.0)
    files = [write_text(tmp_path / name, _LINES) for name in ("a.en", "a.de.gz")]
    first = vocabulary_of_text(files, size=_SIZE)
    assert "building a vocabulary of 150 subwords from 800 lines" in capsys.readouterr().err
    vocabularies._vocabulary_of_text.cache_clear()
    assert vocabulary_of_text(files, size=_SIZE).model == first.model
    assert capsys.readouterr().err == ""
