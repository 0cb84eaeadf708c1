"""Files appear whole or not at all."""

import threading
from pathlib import Path

from orbit_runner.training.files import write_whole


def test_it_makes_the_folder_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "run.json"
    write_whole(path, "one")
    write_whole(path, "zwei ü")
    assert path.read_text(encoding="utf-8") == "zwei ü"
    assert [item.name for item in path.parent.iterdir()] == ["run.json"]


def test_a_reader_never_sees_half_of_it(tmp_path: Path) -> None:
    path, texts = tmp_path / "x", {"a" * 300_000, "b" * 300_000}
    write_whole(path, "a" * 300_000)
    done = threading.Event()

    def write() -> None:
        for _ in range(50):
            for text in texts:
                write_whole(path, text)
        done.set()

    threading.Thread(target=write).start()
    seen = set()
    while not done.is_set():
        seen.add(path.read_text(encoding="utf-8"))
    assert seen <= texts
