"""The note on threads, for new runs of small networks that do not set their number."""

from pathlib import Path
from typing import Any

import pytest

from orbit_runner.train.callbacks import own_callbacks
from tests.support.digits import digits_config
from tests.support.toy import Notes, run


class _Notes(Notes):
    def note(self, text: str) -> None:
        self.notes.append(text)


_INTERVALS = {f"trainer__{name}_interval": 1000 for name in ("summary", "checkpoint", "validation")}


def _advice(folder: Path, **changes: Any) -> list[str]:
    notes = _Notes()
    run(
        digits_config(**{"trainer__train_steps": 1000, **_INTERVALS, **changes}),
        folder,
        "train",
        notes=notes,
    )
    return [note for note in notes.notes if "intra_op_threads" in note]


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_callbacks, "intra_op_threads", lambda runtime: 2)


@pytest.mark.slow
def test_a_small_network_gets_one_note(tmp_path: Path) -> None:
    (note,) = _advice(tmp_path, trainer__steps_per_loop=500)
    assert "each op uses 2 threads" in note
    assert "runtime.intra_op_threads=1 often trains it faster" in note


@pytest.mark.slow
def test_a_large_network_gets_no_note(tmp_path: Path) -> None:
    assert _advice(tmp_path, task__model__hidden_units=[1000, 1000]) == []


@pytest.mark.slow
def test_one_core_gets_no_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_callbacks, "intra_op_threads", lambda runtime: 1)
    assert _advice(tmp_path) == []


@pytest.mark.slow
def test_resumed_run_gets_no_note(tmp_path: Path) -> None:
    assert _advice(tmp_path)
    notes = _Notes()
    run(digits_config(trainer__train_steps=1010), tmp_path, "train", notes=notes)
    assert not [note for note in notes.notes if "intra_op_threads" in note]


def test_a_short_run_gets_no_note(tmp_path: Path) -> None:
    assert _advice(tmp_path, trainer__train_steps=10) == []
