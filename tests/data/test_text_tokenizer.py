import io

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from orbit_runner.data.text.source import EOS, UNKNOWN
from orbit_runner.data.text.tokenizer.graph_tokenizer import GraphTokenizer
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary, build_vocabulary
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


def test_ids_of_a_normalized_model_match_sentencepiece():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences(600, words=400)),
        model_writer=model,
        vocab_size=150,
        pad_id=0,
        eos_id=EOS,
        unk_id=UNKNOWN,
        bos_id=-1,
        minloglevel=2,
    )
    vocabulary = Vocabulary(model.getvalue())
    _assert_same(vocabulary, GraphTokenizer(vocabulary).encode, [*sentences(40), "ﬁ ½ ﬀ Ａb"])


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
