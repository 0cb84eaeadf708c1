"""Expands the compressed lists in Slurm's environment variables: nodes, task counts, ports."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orbit_runner.distribute.cluster.description import ClusterError

SOURCE = "Slurm"
# `n[01-03,7]-ib,gpu1`: commas inside brackets do not separate names.
_NAME = r"(?:[^,\[\]\s]|\[[0-9,-]+\])+"
_NAMES = re.compile(rf"{_NAME}(?:,{_NAME})*")
_BRACKETS = re.compile(r"\[([0-9,-]+)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def expand_nodes(text: str) -> list[str]:
    """Returns the nodes of a compressed list: n01, n02, n03, n7, gpu1 for `n[01-03,7],gpu1`.

    Raises `ClusterError` if the list is malformed.
    """
    if not _NAMES.fullmatch(text):
        raise ClusterError(
            f"{SOURCE}: got node list {text[:60]!r}, expected a list such as n[01-03,7],gpu1"
        )
    return [node for name in re.findall(_NAME, text) for node in _expand(name)]


def _expand(name: str) -> Iterator[str]:
    found = _BRACKETS.search(name)
    if found is None:
        yield name
        return
    for number in expand_numbers(found[1], f"nodes {name[:60]!r}"):
        yield from _expand(f"{name[: found.start()]}{number}{name[found.end() :]}")


def expand_numbers(text: str, what: str) -> Iterator[str]:
    """Yields the numbers of a list of ranges: 01, 02, 03, 7 for `01-03,7`.

    All numbers of a range have the width of its first one. `what` describes the list in messages.
    Raises `ClusterError` if the list is malformed.
    """
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        low, high = (match[1], match[2] or match[1]) if match else ("1", "0")
        if int(low) > int(high):
            raise ClusterError(f"{SOURCE}: got {what}, where {part[:60]!r} is not a valid range")
        for number in range(int(low), int(high) + 1):
            yield f"{number:0{len(low)}d}"


def expand_counts(text: str) -> list[int]:
    """Returns the number of tasks of each node: [2, 2, 2, 1] for `2(x3),1`.

    Raises `ClusterError` if the text is malformed.
    """
    counts = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", part.strip())
        if match is None:
            raise ClusterError(
                f"{SOURCE}: got task counts {text[:60]!r}, expected a list such as 2(x3),1"
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return counts
