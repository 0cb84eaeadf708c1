"""A property of every reader: any file gives a value or a `RunnerError` that names the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.profile import examples
from tools.fuzz.target import Case
from tools.fuzz.targets import TARGETS

# The others parse configs; test_configs.py tests these.
_READERS = [name for name, target in TARGETS.items() if target.names_file]
_CHANGES = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 8), st.binary(max_size=8)), max_size=4
)


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", _READERS)
def test_changed_file_is_read_or_refused_by_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    case = Case(TARGETS[name], tmp_path / "files")

    @examples(25)
    @given(index=st.integers(0, len(case.seeds) - 1), changes=_CHANGES)
    def check(index: int, changes: list[tuple[int, int, bytes]]) -> None:
        content = bytearray(case.seeds[index])
        for place, length, new in changes:
            content[place : place + length] = new
        case.run(bytes(content))

    check()


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", _READERS)
def test_any_bytes_are_refused_by_name_or_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    case = Case(TARGETS[name], tmp_path / "files")

    @examples(25)
    @given(content=st.binary(max_size=300))
    def check(content: bytes) -> None:
        case.run(content)

    check()
