"""Files are written completely or not at all."""

import threading

import pytest

from orbit_runner.utils.files import write_atomically, write_if_changed


def test_write_whole_creates_the_directory_and_leaves_no_other_files(tmp_path):
    path = tmp_path / "a" / "b" / "run.json"
    write_atomically(path, "one")
    write_atomically(path, "zwei ü")
    assert path.read_text(encoding="utf-8") == "zwei ü"
    assert [item.name for item in path.parent.iterdir()] == ["run.json"]


def test_reader_never_sees_a_partially_written_file(tmp_path):
    path, texts = tmp_path / "x", {"a" * 300_000, "b" * 300_000}
    write_atomically(path, "a" * 300_000)
    done = threading.Event()

    def write() -> None:
        for _ in range(50):
            for text in texts:
                write_atomically(path, text)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = {path.read_text(encoding="utf-8")}
    while writer.is_alive():
        seen.add(path.read_text(encoding="utf-8"))
    assert done.is_set()
    assert seen <= texts


@pytest.mark.parametrize("before", [b"\xff\xfe", b"other", None])
def test_derived_file_is_written_again_unless_it_is_equal(before, tmp_path):
    path = tmp_path / "sweep.json"
    if before is not None:
        path.write_bytes(before)
    write_if_changed(path, "{}")
    assert path.read_text() == "{}"
    path.chmod(0o600)
    write_if_changed(path, "{}")
    assert path.stat().st_mode & 0o777 == 0o600  # Not replaced.
