"""Words as tokens: the same in TensorFlow ops and in training."""

import pytest
import tensorflow as tf

from orbit_runner.data.text.tokenizer import words as module
from orbit_runner.data.text.tokenizer.words import (
    WordTokenizer,
    encode_words,
    frequent_words,
    split_words,
)

TEXTS = ["Über-Größe: 3,5 cm", "ΣΊΣΥΦΟΣ", "हिन्दी don't", "", " \t\n", "東京 tokyo", "a_b A"]


def test_words_are_runs_of_letters_marks_and_digits_in_lower_case():
    words = [[word.decode() for word in row] for row in split_words(tf.constant(TEXTS)).to_list()]
    assert words == [
        ["über", "größe", "3", "5", "cm"], ["σίσυφος"], ["हिन्दी", "don", "t"], [], [],
        ["東京", "tokyo"], ["a", "b", "a"],
    ]  # fmt: skip


def test_invalid_bytes_separate_words():
    assert split_words(tf.constant([b"a\xffb"])).to_list() == [[b"a", b"b"]]


def test_most_frequent_words_are_chosen_and_ties_are_in_alphabetical_order():
    counts = {"b c": 1, "a c": 2, "d": 1}
    assert frequent_words(counts, 100) == ("c", "a", "b", "d")
    assert frequent_words(counts, 5) == ("c", "a", "b")


@pytest.mark.parametrize("block", [1, 3, 100])
def test_blocks_do_not_change_words_and_ids(block, monkeypatch):
    counts = {text: number for number, text in enumerate(TEXTS, 1)}
    words = frequent_words(counts, 100)
    rows = encode_words(TEXTS, words[:6])
    monkeypatch.setattr(module, "_BLOCK_TEXTS", block)
    assert frequent_words(counts, 100) == words
    ids = encode_words(TEXTS, words[:6])
    assert (ids.values.tolist(), ids.offsets.tolist()) == (
        rows.values.tolist(), rows.offsets.tolist(),
    )  # fmt: skip


@pytest.mark.parametrize("known", [0, 6, 50])
def test_ops_give_the_ids_of_training(known):
    words = frequent_words(dict.fromkeys(TEXTS, 1), 100)[:known]
    ids = WordTokenizer(words).encode(tf.constant(TEXTS), 4).numpy()
    rows = encode_words(TEXTS, words)
    for number, row in enumerate(ids.tolist()):
        expected = rows.row(number).tolist()[:4]
        assert row == expected + [0] * (4 - len(expected))
