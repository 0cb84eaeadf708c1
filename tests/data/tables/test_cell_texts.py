"""What the texts of a column are meant as, judged by all of them."""

import re

import pytest

from orbit_runner.data.tables.cell_texts import (
    normal_text,
    odd_among_numbers,
    parse_number,
)

PLAIN = [f"{number}.5" for number in range(700)]


def _counts(texts):
    return {text: texts.count(text) for text in dict.fromkeys(texts)}


@pytest.mark.parametrize("odd", ["?", "5 kg", "84,44"])
def test_one_odd_cell_among_numbers_is_named(odd):
    assert odd_among_numbers(_counts([*PLAIN, odd])) == (odd,)


@pytest.mark.parametrize(
    ("texts", "odd"),
    [
        ([*PLAIN[:99], *["?"] * 60], "?"),  # Marks of missing values do not count.
        ([*PLAIN[:60], *["not measured"] * 40], "not measured"),  # One text against 60.
        ([*["1", "2", "3"] * 20, "?"], "?"),
    ],
)
def test_numbers_are_not_categories(texts, odd):
    assert odd_among_numbers(_counts(texts)) == (odd,)


@pytest.mark.parametrize(
    "texts",
    [
        ["red", "green", "7"],
        [f"{number:05}" for number in range(0, 90000, 997)],  # Zip codes.
        ["1", "2", "3", "4A"] * 5,
        [f"A/5 {number}" if number % 3 else str(number) for number in range(700)],
        ["0", "1"] * 50,
        ["?", "-"],
        [],
    ],
)
def test_categories_stay_categories(texts):
    assert odd_among_numbers(_counts(texts)) is None


def test_numbers_are_those_of_arrow():
    assert [parse_number(text) for text in ("+1", "-3e2", ".5", "True")] == [1, -300, 0.5, 1]
    for text in ("1_000", "0x10", "1,5"):
        with pytest.raises(ValueError, match=re.escape(text)):
            parse_number(text)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("TRUE", "true"), ("False", "false"), ("no", "no"), ("T", "T"),
        ("7.0", "7"), ("-12.0", "-12"), ("-0.0", "0"), ("007", "007"), ("00.0", "00.0"),
        ("1.50", "1.50"), ("1.00", "1.00"), ("1E5", "1E5"), ("1.0.0", "1.0.0"),
        ("2024-01-31T00:00:00", "2024-01-31"), ("2024-01-31 00:00:00.000000", "2024-01-31"),
        ("2024-01-31T10:30", "2024-01-31 10:30:00"),
        ("2024-01-31 10:30:05.120000", "2024-01-31 10:30:05.12"),
        ("2024-01-31T00:00:00+00:00", "2024-01-31 00:00:00Z"),
        ("2024-01-31 10:30:00+01:00", "2024-01-31 10:30:00+0100"),
        ("u\u0308ber", "über"),
    ],
)  # fmt: skip
def test_a_value_has_one_form_however_it_is_written(text, form):
    assert normal_text(text) == form
    assert normal_text(form) == form
