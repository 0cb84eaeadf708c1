"""What the texts of a table mean: numbers, numbers written otherwise, codes, dates and times.

Training and prediction parse a number with the same function. A column of texts is judged by all of
its cells, so that one odd cell among numbers does not make the column a category.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from collections.abc import Iterable, Mapping, Sequence

# What the texts of a column are.
NUMBERS, OTHER_NOTATION, DATES = "numbers", "numbers in another notation", "dates or times"
# A column is meant as numbers if more of its cells, or of its different texts, are numbers.
_MOST = 0.9
# Columns with at most as many different texts are good categories, whatever the texts look like.
_FEW_TEXTS = 20
# Texts that usually mean a missing value, in lower case.
MISSING_MARKS = frozenset(
    [
        "?",
        "??",
        "-",
        "--",
        "---",
        ".",
        "..",
        "*",
        "#",
        "/",
        "none",
        "n/a",
        "#n/a",
        "n.a.",
        "na",
        "nan",
        "<na>",
        "#na",
        "null",
        "#null!",
        "nil",
        "missing",
        "unknown",
        "undefined",
        "#value!",
        "#div/0!",
        "#ref!",
        "#name?",
        "#num!",
    ]
)
_FORMATTED = re.compile(
    r"[-+]?[$€£¥]?\s?"
    r"(\d+[.,]\d+|\d{1,3}([.,'\s]\d{3})+([.,]\d+)?|\d+)"
    r"\s?[%$€£¥]?"
)
_CODE = re.compile(r"\d+")
_CLOCK = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?(\s?[ap]m)?"
_ZONE = r"(\s?(z|utc|gmt|[-+]\d{2}:?\d{2}))?"
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = (
    rf"(\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|(19|20)\d{{2}}-(0[1-9]|1[0-2])"
    rf"|\d{{1,2}}[-/.]\d{{1,2}}[-/.](\d{{4}}|\d{{2}})"
    rf"|([a-z]{{3}}, )?\d{{1,2}}[- ]{_MONTH}[- ](\d{{4}}|\d{{2}})|{_MONTH} \d{{1,2}}, \d{{4}})"
)
_DATE_OR_TIME = re.compile(
    rf"({_DATE}([t\s]\s?{_CLOCK})?|(-?\d+ days?,? )?{_CLOCK}){_ZONE}", re.IGNORECASE
)


# A date, or a date with a time and a zone, by ISO 8601.
_ISO = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2})(?::(\d{2})(?::(\d{2})(?:[.,]\d{1,9})?)?)?"
    r"\s?(?:(Z)|([+-])(\d{2}):?(\d{2})?)?)?"
)
_FIRST_DAY = datetime.date(1970, 1, 1).toordinal()


def parse_date(text: str) -> int:
    """Returns the seconds since 1970 of a date, as training and prediction read it.

    A time with a zone is that of UTC. Fractions of seconds are dropped. Raises ValueError if it is
    not a date, or a date with a time, as in ISO 8601.
    """
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError(text)
    date, hour, minute, second, _, sign, zone_hour, zone_minute = match.groups()
    days = datetime.date.fromisoformat(date).toordinal() - _FIRST_DAY
    time = datetime.time(int(hour or 0), int(minute or 0), int(second or 0))
    offset = int(zone_hour or 0) * 60 + int(zone_minute or 0)
    minutes = time.hour * 60 + time.minute - (-offset if sign == "-" else offset)
    return days * 86_400 + minutes * 60 + time.second


def are_dates(texts: Iterable[str]) -> bool:
    """Returns whether texts are dates that `parse_date` reads; false if there are none."""
    texts = [*texts]
    try:
        for text in texts:
            parse_date(text)
    except ValueError:
        return False
    return bool(texts)


def parse_number(text: str) -> float:
    """Returns the number in a text, as training and prediction read it; NaN for "nan".

    Raises ValueError if it is not a number.
    """
    if "_" in text:  # Python allows it in the source of programs.
        raise ValueError(text)
    return float(text)


@dataclasses.dataclass(frozen=True)
class Misreading:
    """Texts that are not meant as categories.

    Attributes:
        what: What most of the texts are: `NUMBERS`, `OTHER_NOTATION` or `DATES`.
        odd: The texts that prevent the column from being read as numbers, the most frequent first;
            for dates, an example.
    """

    what: str
    odd: tuple[str, ...]


def find_misreading(counts: Mapping[str, int]) -> Misreading | None:
    """Returns what the texts of a column are meant as, or None if they are categories.

    `counts` maps each text to the number of its cells. Numbers with a leading zero, such as zip
    codes, are categories. Texts that usually mean a missing value do not count.
    """
    texts = {text: count for text, count in counts.items() if text}
    judged = {text: count for text, count in texts.items() if text.lower() not in MISSING_MARKS}
    if not judged:
        return None
    dates = [text for text in judged if _DATE_OR_TIME.fullmatch(text)]
    if _are_most(dates, judged):
        return Misreading(DATES, tuple(dates[:1]))
    numbers = [text for text in judged if _is_number(text)]
    if numbers and all(map(_CODE.fullmatch, numbers)) and any(map(_has_leading_zero, numbers)):
        return None
    if _are_most(numbers, judged):
        odd = texts.keys() - set(numbers)
        if not odd and len(numbers) <= _FEW_TEXTS:
            return None
        ordered = sorted(odd, key=lambda text: (-texts[text], text))
        return Misreading(NUMBERS, tuple(ordered))
    formatted = [text for text in judged if _is_number(text) or _FORMATTED.fullmatch(text)]
    if _are_most(formatted, judged):
        return Misreading(OTHER_NOTATION, tuple(t for t in formatted if not _is_number(t)))
    return None


def _are_most(texts: Iterable[str], judged: Mapping[str, int]) -> bool:
    """Returns whether texts are most of the cells, or most of the different texts."""
    texts = [*texts]
    cells = sum(judged[text] for text in texts)
    return len(texts) > _MOST * len(judged) or cells > _MOST * sum(judged.values())


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(parse_number(text))
    except ValueError:
        return False


def _has_leading_zero(text: str) -> bool:
    return len(text) > 1 and text.startswith("0")


def equal_numbers(texts: Iterable[str]) -> tuple[str, str] | None:
    """Returns two texts that are the same number, such as `1` and `1.0`; None if there are none."""
    seen: dict[float, str] = {}
    for text in filter(_is_number, texts):
        if _CODE.fullmatch(text) and _has_leading_zero(text):
            continue  # 07 and 7 may be different codes.
        first = seen.setdefault(parse_number(text), text)
        if first != text:
            return first, text
    return None


def equal_but_case(texts: Iterable[str]) -> list[str]:
    """Returns texts that differ only in case, such as `Red` and `red`; [] if there are none.

    Single letters are left out, because upper and lower case may be different classes.
    """
    by_letters: dict[str, list[str]] = {}
    for text in texts:
        if len(text) > 1:
            by_letters.setdefault(text.casefold(), []).append(text)
    return next((same for same in by_letters.values() if same[1:]), [])


def describe_equal_but_case(texts: Sequence[str]) -> str:
    """Returns what is odd about the texts of `equal_but_case`, and what to do."""
    pair = " and ".join(repr(text) for text in texts[:2])
    return f"{pair}, which differ only in case; if they mean the same, write them in one way"
