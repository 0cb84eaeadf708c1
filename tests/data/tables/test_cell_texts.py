"""What the texts of a column are meant as, judged by all of them."""

from __future__ import annotations

import re

import pytest

from orbit_runner.data.tables.cell_texts import (
    DATES,
    NUMBERS,
    OTHER_NOTATION,
    equal_but_case,
    equal_numbers,
    find_misreading,
    parse_number,
)

PLAIN = [f"{number}.5" for number in range(700)]


def _counts(texts: list[str]) -> dict[str, int]:
    return {text: texts.count(text) for text in dict.fromkeys(texts)}


@pytest.mark.parametrize("odd", ["?", "-", "None", "5 kg", "#N/A", "84,44", "true", "x" * 99])
def test_one_odd_cell_among_numbers_is_named(odd: str) -> None:
    found = find_misreading(_counts([*PLAIN, odd]))
    assert found is not None
    assert (found.what, found.odd) == (NUMBERS, (odd,))


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        ([*PLAIN[:99], *["?"] * 60], NUMBERS),  # Marks of missing values do not count.
        ([*PLAIN[:60], *["not measured"] * 40], NUMBERS),  # One text against 60.
        ([*["1", "2", "3"] * 20, "?"], NUMBERS),
        ([f"{number},{number % 10}" for number in range(100)], OTHER_NOTATION),
        ([f"{number}.000,5" for number in range(100)], OTHER_NOTATION),
        ([f"1,{number:03},000" for number in range(100)], OTHER_NOTATION),
        ([f"${number}" for number in range(100)], OTHER_NOTATION),
        ([f"2024-01-{day:02}" for day in range(1, 31)], DATES),
        ([f"2024-01-{day:02}T10:00:00.25Z" for day in range(1, 31)], DATES),
        ([f"2024-01-{day:02} 10:00:00+01:00" for day in range(1, 31)], DATES),
        ([f"{day}.1.2024" for day in range(1, 31)], DATES),
        ([f"1/{day}/24" for day in range(1, 31)], DATES),
        ([f"{day} Jan 2024" for day in range(1, 31)], DATES),
        ([f"2024-{month:02}" for month in range(1, 13)], DATES),
        ([f"{minute // 60:02}:{minute % 60:02}" for minute in range(700)], DATES),
    ],
)
def test_numbers_and_dates_are_not_categories(texts: list[str], what: str) -> None:
    found = find_misreading(_counts(texts))
    assert found is not None
    assert found.what == what


@pytest.mark.parametrize(
    "texts",
    [
        ["red", "green", "7"],
        [f"{number:05}" for number in range(0, 90000, 997)],  # Zip codes.
        [*[f"{number:05}" for number in range(0, 90000, 997)], "x"],
        ["1", "2", "3", "4A"] * 5,
        ["36 months", "60 months"] * 50,
        [f"{row}{seat}" for row in range(1, 31) for seat in "ABCDEF"],
        [f"A/5 {number}" if number % 3 else str(number) for number in range(700)],
        ["0", "1"] * 50,
        ["true", "false"],
        ["25-34", "35-44", "45-54"],
        ["?", "-"],
        [],
    ],
)
def test_categories_stay_categories(texts: list[str]) -> None:
    assert find_misreading(_counts(texts)) is None


def test_numbers_are_those_of_arrow() -> None:
    assert [parse_number(text) for text in ("+1", "-3e2", ".5")] == [1, -300, 0.5]
    for text in ("1_000", "0x10", "1,5"):
        with pytest.raises(ValueError, match=re.escape(text)):
            parse_number(text)


def test_equal_numbers_are_found() -> None:
    assert equal_numbers(["0", "1", "1.0"]) == ("1", "1.0")
    assert equal_numbers(["7", "07", "a"]) is None


def test_texts_that_differ_only_in_case_are_found() -> None:
    assert equal_but_case(["Cat", "dog", "cat", "CAT"]) == ["Cat", "cat", "CAT"]
    assert equal_but_case(["cat", "cats", "", "A", "a"]) == []
