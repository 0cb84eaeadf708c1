"""What the texts of a table mean: numbers, codes, and dates with a time or without.

Formats write the same value in different ways. Here, it becomes the same text and the same number,
in training and in prediction. A column of texts is judged by all of its cells, so that one odd cell
among numbers does not make the column a category.
"""

from __future__ import annotations

import datetime
import json
import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import Any

# A column is meant as numbers if more of its cells, or of its different texts, are numbers.
_MOST = 0.9
# Columns with at most as many different texts are good categories, whatever the texts look like.
_FEW_TEXTS = 20
# Texts that usually mean a missing value, in lower case.
MISSING_MARKS = frozenset((
    "?", "??", "-", "--", "---", ".", "..", "*", "#", "/", "none", "n/a", "#n/a", "n.a.", "na",
    "nan", "<na>", "#na", "null", "#null!", "nil", "missing", "unknown", "undefined", "#value!",
    "#div/0!", "#ref!", "#name?", "#num!",
))  # fmt: skip
_CODE = re.compile(r"\d+")
# A date, or a date with a time and a zone, by ISO 8601.
_ISO = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2})(?::(\d{2})(?::(\d{2})(?:[.,]\d{1,9})?)?)?"
    r"\s?(?:(Z)|([+-])(\d{2}):?(\d{2})?)?)?"
)
_FIRST_DAY = datetime.date(1970, 1, 1).toordinal()
# Booleans as JSON and Parquet, Python, and spreadsheets write them.
_BOOLEANS = {
    form: text for text in ("true", "false") for form in (text, text.title(), text.upper())
}
# A whole number that was stored as a float, such as a column of integers with missing values.
_WHOLE = re.compile(r"(-?(?:0|[1-9]\d*))\.0")
_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2})(:\d{2})?(?:(\.\d*?)0*)?\s?(?:(Z)|([+-]\d{2}):?(\d{2}))?"
)


def text_of(value: Any) -> str | None:
    """Returns a value as text, None for null and NaN. Raises ValueError for lists and objects."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else repr(value).removesuffix(".0")
    if isinstance(value, (list, dict)):
        raise ValueError("is not a single value")
    return json.dumps(value)


def normal_text(text: str) -> str:
    """Returns the text of a value, whatever the format that it was read from.

    Categories are compared by it, and keys hashed: `True` is `true`, `7.0` is `7`, midnight is left
    out, and a letter with an accent is one character. `007` and `1.50` remain as they are.
    """
    if not text.isascii():
        return unicodedata.normalize("NFC", text)
    if match := _WHOLE.fullmatch(text):
        text = match[1]
    elif time := _TIME.fullmatch(text):
        date, minute, second, fraction, utc, hours, minutes = time.groups()
        clock = f"{minute}{second or ':00'}{(fraction or '').rstrip('.')}"
        zone = "Z" if utc or f"{hours}{minutes}" == "+0000" else f"{hours or ''}{minutes or ''}"
        text = f"{date} {clock}{zone}".removesuffix(" 00:00:00")
    return "0" if text == "-0" else _BOOLEANS.get(text, text)


def is_missing(text: str, missing: Collection[str]) -> bool:
    """Returns whether a text without spaces at both ends, or its normal form, is one of others."""
    return text in missing or normal_text(text) in missing


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

    A boolean is 1 or 0. Raises ValueError if it is not a number.
    """
    if "_" in text:  # Python allows it in the source of programs.
        raise ValueError(text)
    return float(_BOOLEANS[text] == "true") if text in _BOOLEANS else float(text)


def odd_among_numbers(counts: Mapping[str, int]) -> tuple[str, ...] | None:
    """Returns the texts of a column that are no numbers, the most frequent first.

    Returns None if the texts are meant as categories. `counts` maps each text to the number of its
    cells. Numbers with a leading zero, such as zip codes, are categories. Texts that usually mean a
    missing value do not count.
    """
    texts = {text: count for text, count in counts.items() if text}
    judged = {text: count for text, count in texts.items() if text.lower() not in MISSING_MARKS}
    numbers = [text for text in judged if _is_number(text)]
    if not judged or not _are_most(numbers, judged):
        return None
    if all(map(_CODE.fullmatch, numbers)) and any(map(_has_leading_zero, numbers)):
        return None
    odd = texts.keys() - set(numbers)
    if not odd and len(numbers) <= _FEW_TEXTS:
        return None
    return tuple(sorted(odd, key=lambda text: (-texts[text], text)))


def _are_most(texts: Iterable[str], judged: Mapping[str, int]) -> bool:
    """Returns whether texts are most of the cells, or most of the different texts."""
    texts = [*texts]
    cells = sum(judged[text] for text in texts)
    return len(texts) > _MOST * len(judged) or cells > _MOST * sum(judged.values())


def _is_number(text: str) -> bool:
    try:
        return text not in _BOOLEANS and not math.isnan(parse_number(text))
    except ValueError:
        return False


def _has_leading_zero(text: str) -> bool:
    return len(text) > 1 and text.startswith("0")
