"""A property of every reader: any file gives a value or a `RunnerError` that names the file."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit_runner.errors import RunnerError
from tests.properties.profile import CHANGES, changed, examples
from tests.properties.readers import READERS

_CPU_SECONDS = 2.0
_FORBIDDEN = (
    "os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "pickle.find_class",
    "socket.connect", "socket.bind",
)  # fmt: skip
# The directory in which the reader may write, and what it did that it must not; None outside.
_watched: tuple[str, list[str]] | None = None
_thread = threading.get_ident()


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is None or threading.get_ident() != _thread:
        return
    folder, acts = _watched
    if event in _FORBIDDEN:
        acts.append(f"{event}{arguments!r:.200}")
    elif event == "open" and isinstance(arguments[0], (str, bytes)):
        mode, flags = arguments[1:3]
        writes = set(mode) & set("wax+") if mode else flags & (os.O_WRONLY | os.O_RDWR)
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if writes and not path.startswith((folder, "/dev/")):
            acts.append(f"wrote {path}")


sys.addaudithook(_audit)


@contextlib.contextmanager
def _watch(folder: Path) -> Iterator[None]:
    """Asserts that what runs inside takes no time, runs no code, and writes only in `folder`."""
    global _watched
    acts: list[str] = []
    began, _watched = time.thread_time(), (str(folder.resolve()), acts)
    try:
        yield
    finally:
        _watched = None
    assert acts == []
    assert time.thread_time() - began < _CPU_SECONDS


Check = Callable[[bytes], None]


@pytest.fixture
def prepared(request, here, own_cache):
    """Valid contents of the file of a reader, and a function that reads any content."""
    reader, path = READERS[request.param], here / "files" / READERS[request.param].file
    path.parent.mkdir()
    seeds = reader.seeds(path.parent)

    def check(content: bytes) -> None:
        path.write_bytes(reader.frame(content))
        message = path.name
        with _watch(here):
            try:
                reader.read(path)
            except RunnerError as error:
                message = str(error)
        assert path.name in message

    # The first one is valid, and imports what the reader needs.
    path.write_bytes(reader.frame(seeds[0]))
    reader.read(path)
    return seeds, check


@pytest.mark.sample(8)
@pytest.mark.parametrize("prepared", READERS, indirect=True)
def test_changed_file_and_any_bytes_are_read_or_refused_by_name(prepared):
    seeds, check = prepared

    @examples(40)
    @given(
        content=st.sampled_from(seeds) | st.binary(max_size=300),
        changes=CHANGES,
    )
    def check_changed(content: bytes, changes: list[tuple[int, int, bytes]]) -> None:
        check(changed(content, changes))

    check_changed()
