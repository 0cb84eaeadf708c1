"""Mutates valid files: bytes, numbers, lines and words. Equal random numbers give equal results."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Sequence

_MAX_BYTES = 2**18
_MOST_CHANGES = 5
_NUMBER = re.compile(rb"\d+")
_VALUE = re.compile(rb"(?<=[:=,\[{ ])[^\s:=,\[\]{}]+")
_INTEGERS = (
    0, 1, 2, 3, 7, 8, 9, 10, 15, 16, 31, 32, 63, 64, 65, 100, 127, 128, 255, 256, 1000, 4096,
    2**15 - 1, 2**15, 2**16 - 1, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1,
    2**63, 2**64 - 1,
)  # fmt: skip
_TEXTS = (
    b"", b"-", b"~", b"null", b"true", b"no", b"''", b'"', b"[]", b"{}", b"[", b"{", b"]", b"}",
    b"- ", b"? ", b": ", b"#", b"&a ", b"*a", b"<<: *a", b"!!int ", b"!x ", b"|\n", b">\n",
    b"---\n",
    b"%YAML 1.1\n", b"\t", b"\r", b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8",
    b"-1", b"0.5", b"1e9999", b"-1e9999", b".inf", b".nan", b"NaN", b"Infinity", b"1_0", b"010",
    b"0x" + b"f" * 5000, b"9" * 5000, b"0.0000001", b"1e-400", b"\\", b"\\u0000", b"\\ud800",
    b"../../x", b"/dev/null", b"a" * 300, b"${x}", b"[" * 200,
    b"{a: " * 200, b'{"a":' * 2000, b"(" * 200, b"@f()", b"%A", b"%A/b", b"a/b.c = 1\n", b",", b";",
    b"\n", b"\n\n", b"  ", b"1j", b"b'x'", b"None", b"True", b"()", b"__import__('os')",
)  # fmt: skip

Change = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def mutate(seeds: Sequence[bytes], words: Sequence[bytes], draws: random.Random) -> bytes:
    """Returns one of the valid contents after one to five changes.

    `words` are texts that the format knows, such as the names of settings.
    """
    content = bytearray(draws.choice(seeds))
    for _ in range(1 + int(draws.random() ** 2 * _MOST_CHANGES)):
        draws.choice(_CHANGES)(draws, content, (*words, *seeds))
        del content[_MAX_BYTES:]
    return bytes(content)


def _place(draws: random.Random, content: bytearray) -> int:
    return draws.randrange(len(content) + 1)


def _part(draws: random.Random, content: bytearray, most: int = 64) -> slice:
    start = _place(draws, content)
    return slice(start, start + int(draws.random() ** 3 * most) + 1)


def _flip_bit(draws: random.Random, content: bytearray, known: Sequence[bytes]) -> None:
    if content:
        content[draws.randrange(len(content))] ^= 1 << draws.randrange(8)


def _set_byte(draws: random.Random, content: bytearray, known: Sequence[bytes]) -> None:
    if content:
        content[draws.randrange(len(content))] = draws.choice((0, 1, 127, 128, 255, 10, 32, 48))


def _write_integer(draws: random.Random, content: bytearray, known: Sequence[bytes]) -> None:
    size = draws.choice((1, 2, 4, 8))
    number = draws.choice(_INTEGERS) * draws.choice((1, 1, -1)) % 2 ** (8 * size)
    place = draws.choice((draws.randrange(33), _place(draws, content)))
    kind = draws.choice("<>") + {1: "B", 2: "H", 4: "I", 8: "Q"}[size]
    content[place : place + size] = struct.pack(kind, number)


def _delete(draws: random.Random, content: bytearray, known: Sequence[bytes]) -> None:
    del content[_part(draws, content, 512)]


def _truncate(draws: random.Random, content: bytearray, known: Sequence[bytes]) -> None:
    del content[_place(draws, content) :]


def _copy(draws: random.Random, content: bytearray, known: Sequence[bytes]) -> None:
    place, part = _place(draws, content), bytes(content[_part(draws, content)])
    content[place:place] = part * draws.choice((1, 1, 1, 2, 100))


def _move(draws: random.Random, content: bytearray, known: Sequence[bytes]) -> None:
    part = _part(draws, content)
    moved = bytes(content[part])
    del content[part]
    place = _place(draws, content)
    content[place:place] = moved


def _insert_text(draws: random.Random, content: bytearray, known: Sequence[bytes]) -> None:
    place = _place(draws, content)
    content[place:place] = draws.choice(_TEXTS)


def _insert_random(draws: random.Random, content: bytearray, known: Sequence[bytes]) -> None:
    place = _place(draws, content)
    content[place:place] = draws.randbytes(1 + draws.randrange(16))


def _splice(draws: random.Random, content: bytearray, known: Sequence[bytes]) -> None:
    other = bytearray(draws.choice(known))
    place = _place(draws, content)
    content[place:place] = other[_part(draws, other, 256)]


def _replace(pattern: re.Pattern[bytes]) -> Change:
    def change(draws: random.Random, content: bytearray, known: Sequence[bytes]) -> None:
        found = list(pattern.finditer(content))
        if found:
            match = draws.choice(found)
            number = str(draws.choice(_INTEGERS) * draws.choice((1, -1))).encode()
            texts = (number, draws.choice(_TEXTS), draws.choice(known)[:200])
            content[match.start() : match.end()] = draws.choice(texts)

    return change


def _change_lines(draws: random.Random, content: bytearray, known: Sequence[bytes]) -> None:
    lines = bytes(content).split(b"\n")
    first, second = draws.randrange(len(lines)), draws.randrange(len(lines))
    kind = draws.randrange(5)
    if kind == 0:
        lines[first], lines[second] = lines[second], lines[first]
    elif kind == 1:
        lines.insert(second, lines[first])
    elif kind == 2:
        del lines[first]
    elif kind == 3:
        lines[first] = b"  " * draws.randrange(4) + lines[first].lstrip()
    else:
        others = draws.choice(known).split(b"\n")
        lines.insert(first, draws.choice(others))
    content[:] = b"\n".join(lines)


_CHANGES: tuple[Change, ...] = (
    _flip_bit, _set_byte, _write_integer, _delete, _truncate, _copy, _move, _insert_text,
    _insert_random, _splice, _replace(_NUMBER), _replace(_VALUE), _change_lines,
)  # fmt: skip
