"""What takes long to compute from files is computed once, until a file changes."""

import os

import numpy as np
import pytest

from orbit_runner.data.disk_cache import CacheEntry, cached, file_status
from orbit_runner.storage.paths import cache_directory
from tests.support.problems import raises

VALUES = {
    "codes": np.arange(7, dtype=np.int16),
    "text": "ä\ud800",
    "empty": np.zeros((3, 0), np.float32),
    "pairs": [["a", 1], ["b", 2]],
    "table": np.arange(6.0).reshape(2, 3),
}


@pytest.fixture
def path(tmp_path, own_cache):
    """A file that values are computed from."""
    path = tmp_path / "data"
    path.write_text("some")
    return path


def _load(path, make=lambda: VALUES, seconds=-1.0):
    return cached("kind", ["key"], make, [file_status(path)], kept_seconds=seconds)


def _never():
    raise AssertionError("computed again")


def _check(values):
    assert values.keys() == VALUES.keys()
    for name, value in VALUES.items():
        np.testing.assert_array_equal(values[name], value)
        assert type(values[name]) is type(value)
        assert getattr(values[name], "dtype", None) == getattr(value, "dtype", None)


def test_values_are_computed_once_and_arrays_are_mapped(path):
    _check(_load(path))
    values = _load(path, _never)
    _check(values)
    assert not values["table"].flags.owndata
    assert not values["table"].flags.writeable
    assert values["table"].ctypes.data % 64 == 0


@pytest.mark.parametrize("change", ["longer", "touched", "elsewhere", "key", "kind"])
def test_changed_files_and_other_keys_have_other_values(path, change):
    _load(path)
    kind = "other" if change == "kind" else "kind"
    key = ["other" if change == "key" else "key"]
    if change == "longer":
        path.write_text("some more")
    elif change == "touched":
        os.utime(path, ns=(1, 1))
    elif change == "elsewhere":
        path = path.rename(path.with_name("moved"))
    assert cached(kind, key, lambda: {"a": 1}, [file_status(path)], kept_seconds=-1.0) == {"a": 1}
    # A changed file replaces its entry.
    entries = [*cache_directory("kind").iterdir(), *cache_directory("other").glob("*")]
    assert len(entries) == (1 if change in ("longer", "touched") else 2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-5],
        lambda content: content.replace(b'"b"', b'"c"'),
        lambda content: b"00000000\n{}\n",
        lambda content: b"\xff\xfe" + content,
    ],
)
def test_damaged_entry_is_computed_again(path, damage):
    _load(path)
    (entry,) = cache_directory("kind").iterdir()
    content = entry.read_bytes()
    assert damage(content) != content
    entry.write_bytes(damage(content))
    with pytest.raises(AssertionError, match="computed again"):
        _load(path, _never)
    _check(_load(path))
    assert entry.read_bytes() == content
    assert [*entry.parent.iterdir()] == [entry]


def test_values_that_took_no_time_are_not_kept(path, own_cache):
    _check(_load(path, seconds=60.0))
    assert not own_cache.exists()


def test_cache_that_cannot_be_written_is_ignored(path, own_cache):
    own_cache.write_text("a file where the folder should be")
    _check(_load(path))
    assert CacheEntry("kind", ["key"], [file_status(path)]).read() is None


def test_file_that_cannot_be_read_is_an_error(tmp_path):
    with raises("unreadable-file") as caught:
        file_status(tmp_path / "gone", "input_path")
    assert str(caught.value) == f"{tmp_path / 'gone'}: cannot be read (No such file or directory)"
    assert caught.value.field == "input_path"
