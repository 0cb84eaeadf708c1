from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data.text.source import EOS, UNKNOWN
from orbit_runner.data.text.tokenizer.graph_tokenizer import GraphTokenizer
from orbit_runner.data.text.tokenizer.vocabulary import build_vocabulary
from tests.support.sentences import sentences

# Few letters and few words, so that many ways to segment a word are equally probable.
_LETTERS = ("abcd0", "abcdefgäöß12", "abcdefghijklmnopqrstuvwxyzéß,.嘿😀0123")
_ODD = "abcd0ef ▁\t\u00a0\u3000\x00嘿Ж😀äß12\ufeff\u2028\ufffd'"


def _text(letters, seed):
    return sentences(400, seed=seed, letters=letters)


def _odd_text(count, seed):
    generator = np.random.default_rng(seed)
    rows = [generator.choice(list(_ODD), generator.integers(0, 70)) for _ in range(count)]
    return ["".join(row) for row in rows]


@pytest.fixture(scope="module", params=range(len(_LETTERS)))
def case(request):
    lines = _text(_LETTERS[request.param], request.param)
    vocabulary = build_vocabulary(
        lines, size=(40, 90, 130)[request.param], character_coverage=0.999
    )
    tokenizer = GraphTokenizer(vocabulary)
    encode = tf.function(tokenizer.encode, input_signature=[tf.TensorSpec([None], tf.string)])
    decode = tf.function(tokenizer.decode, input_signature=[tf.TensorSpec([None, None], tf.int32)])
    return lines, vocabulary, encode, decode


def _assert_same(vocabulary, encode, lines):
    expected, got = vocabulary.encode(lines), encode(tf.constant(lines)).numpy()
    assert got.shape == (len(lines), expected.lengths.max())
    assert got.dtype == np.int32
    for number, line in enumerate(lines):
        row = expected.row(number)
        padded = np.pad(row, (0, got.shape[1] - len(row)))
        np.testing.assert_array_equal(got[number], padded, err_msg=repr(line))


@pytest.mark.slow
def test_ids_match_sentencepiece(case):
    lines, vocabulary, encode, _ = case
    odd = _odd_text(600, 5)
    for some in (lines, [" ".join(lines[:40])], odd):
        _assert_same(vocabulary, encode, some)
    assert (vocabulary.encode(odd).values == UNKNOWN).sum() > 100


@pytest.mark.parametrize(
    "lines", [[""], ["", " \t"], ["a"], ["嘿"], ["嘿嘿", "a嘿嘿b", "嘿 嘿", ""]]
)
def test_ids_of_very_short_text_match_sentencepiece(case, lines):
    _, vocabulary, encode, _ = case
    _assert_same(vocabulary, encode, lines)


def test_empty_batch_is_encoded_and_decoded(case):
    _, _, encode, decode = case
    assert encode(tf.constant([], tf.string)).shape[0] == 0
    assert decode(tf.zeros([0, 5], tf.int32)).shape == [0]


def test_invalid_utf8_is_encoded_as_replacement_characters(case):
    _, vocabulary, encode, _ = case
    got = encode(tf.constant([b"ab\xff\xfecd", b"\xc3"])).numpy()
    expected = vocabulary.encode(["ab\ufffdcd", "\ufffd"])
    np.testing.assert_array_equal(got[0], expected.row(0))
    np.testing.assert_array_equal(got[1][:3], np.pad(expected.row(1), (0, 1))[:3])


def test_decoded_text_matches_sentencepiece(case):
    lines, vocabulary, encode, decode = case
    for some in (lines, _odd_text(300, 6)):
        ids = encode(tf.constant(some))
        assert [text.decode() for text in decode(ids).numpy()] == vocabulary.decode(ids.numpy())
    assert [text.decode() for text in decode(encode(tf.constant(lines))).numpy()] == lines


def test_decoded_text_of_arbitrary_ids_matches_sentencepiece(case):
    _, vocabulary, _, decode = case
    ids = np.random.default_rng(8).integers(-2, vocabulary.size + 3, (400, 20)).astype(np.int32)
    assert (ids == EOS).any()
    assert [text.decode() for text in decode(ids).numpy()] == vocabulary.decode(ids)


@pytest.mark.sample(2)
def test_long_sentences_are_cut_to_max_length(case):
    lines, vocabulary, _, _ = case
    tokenizer = GraphTokenizer(vocabulary)
    got = tokenizer.encode(tf.constant(lines[:50]), max_length=6).numpy()
    expected = vocabulary.encode(lines[:50]).cut(6)
    assert expected.lengths.max() == 6
    assert got.shape == (50, 6)
    for number in range(50):
        row = expected.row(number)
        np.testing.assert_array_equal(got[number], np.pad(row, (0, 6 - len(row))))


_SERVE = """
import sys
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
lines = tf.constant(["abba dada", "", "c 嘿 d"])
ids = model.signatures["encode"](lines)["ids"]
texts = model.signatures["decode"](ids)["text"]
print(ids.numpy().tolist())
print([text.decode() for text in texts.numpy()])
others = ("sentencepiece", "tensorflow_text", "orbit_runner")
print([name for name in others if name in sys.modules])
"""


@pytest.mark.slow
def test_exported_tokenizer_needs_only_tensorflow(tmp_path):
    vocabulary = build_vocabulary(_text(_LETTERS[0], 0), size=40)
    module = tf.Module()
    module.tokenizer = GraphTokenizer(vocabulary)
    encode = tf.function(
        lambda lines: {"ids": module.tokenizer.encode(lines)},
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    decode = tf.function(
        lambda ids: {"text": module.tokenizer.decode(ids)},
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
    )
    tf.saved_model.save(module, tmp_path / "model", {"encode": encode, "decode": decode})
    command = [sys.executable, "-c", _SERVE, str(tmp_path / "model")]
    run = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path, encoding="utf-8")
    ids, texts, others = run.stdout.splitlines()
    rows = vocabulary.encode(["abba dada", "", "c 嘿 d"])
    width = rows.lengths.max()
    expected = [np.pad(rows.row(k), (0, width - rows.lengths[k])).tolist() for k in range(3)]
    assert ids == str(expected)
    assert texts == str(["abba dada", "", "c ⁇ d"])
    assert others == "[]"
