"""Compares the code of two runs: git revisions, and the uncommitted changes of each file."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orbit_runner.differences.findings import Finding
from orbit_runner.reporting.code_version import diffs_by_file
from orbit_runner.utils.files import read_file
from orbit_runner.utils.user_code import changed_modules

_MOST_LINES = 12  # of the differences of a file
_MOST_FILES = 20


def code_findings(
    left: Mapping[str, Any], right: Mapping[str, Any], directories: tuple[Path, Path]
) -> Iterator[Finding]:
    """Yields the differences between the sections `code` of two starts.

    `directories` are the run directories, which have the patches. Yields nothing if a start has no
    such section.
    """
    revisions = left.get("revision"), right.get("revision")
    if None not in revisions and revisions[0] != revisions[1]:
        short = [str(one)[:12] for one in revisions]
        yield Finding(kind="code", name="git revision", left=short[0], right=short[1])
    changed = left.get("changed"), right.get("changed")
    if not isinstance(changed[0], dict) or not isinstance(changed[1], dict):
        return
    names = sorted({*changed[0], *changed[1]})
    differing = [name for name in names if changed[0].get(name) != changed[1].get(name)]
    if not differing:
        return
    patches = [_patch(code, path) for code, path in zip((left, right), directories, strict=True)]
    for name in differing[:_MOST_FILES]:
        texts = [patch.get(name, "") for patch in patches]
        yield Finding(
            kind="code",
            name=name,
            left=_state(changed[0], name),
            right=_state(changed[1], name),
            details=[*_lines(*texts)],
        )
    if differing[_MOST_FILES:]:
        yield Finding(kind="code", name=f"{len(differing) - _MOST_FILES} more files")


def module_findings(left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[Finding]:
    """Yields the modules of the user that differ between the records of two checkpoints."""
    for name in changed_modules(left, right)[:_MOST_FILES]:
        yield Finding(
            kind="code", name=f"module {name}", left=left[name][:8], right=right[name][:8]
        )


def _state(changed: Mapping[str, str], name: str) -> str:
    if name not in changed:
        return "as committed"
    return f"changed ({changed[name][:8]})" if changed[name] else "changed"


def _patch(code: Mapping[str, Any], directory: Path) -> dict[str, str]:
    """Returns the diffs in the patch of a start by file; empty if it has none."""
    name = code.get("patch")
    if not isinstance(name, str):
        return {}
    try:
        content = read_file(directory / Path(name).name)
        found = diffs_by_file(content)
    except (OSError, ValueError, SyntaxError):
        return {}
    return {_text(file): _text(diff) for file, diff in found.items()}


def _text(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


def _lines(left: str, right: str) -> Iterator[str]:
    """Yields the lines that only one of two patches adds or removes, with its letter."""
    found = [
        f"{'A' if line[0] == '-' else 'B'}: {line[2:]}"
        for line in difflib.ndiff(_changes(left), _changes(right))
        if line[0] in "-+"
    ]
    yield from (line[:200] for line in found[:_MOST_LINES])
    if found[_MOST_LINES:]:
        yield f"… and {len(found) - _MOST_LINES} more lines"


def _changes(diff: str) -> list[str]:
    body = diff.partition("\n@@ ")[2].splitlines()
    return [line for line in body if line.startswith(("+", "-"))]
