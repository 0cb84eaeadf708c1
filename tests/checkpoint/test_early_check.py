"""The checkpoint that a run resumes from is checked once, in parallel with the imports."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.checkpoint import early_check
from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.latest_checkpoint import list_checkpoints
from orbit_runner.checkpoint.record import FileMark
from tests.support.damage import DATA, flip, truncate
from tests.support.toy import Notes, run, toy_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    run(toy_config(), folder)
    return folder


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    read: list[str] = []
    look = FileMark.damage

    def remembered(self: FileMark, path: Path) -> str:
        read.append(path.name)
        return look(self, path)

    monkeypatch.setattr(FileMark, "damage", remembered)
    return read


def test_early_check_reads_each_file_once(trained: Path, reads: list[str]) -> None:
    newest = list_checkpoints(CheckpointFolder(trained / "checkpoints"))[-1]
    early_check.start_check(trained)
    assert early_check.find_damage(newest) == ""
    assert sorted(reads) == [f"ckpt-20.{DATA}", "ckpt-20.index"]
    # A second query reads the files again.
    assert early_check.find_damage(newest) == ""
    assert len(reads) == 4


def test_run_reuses_the_result_of_the_early_check(trained: Path, reads: list[str]) -> None:
    early_check.start_check(trained)
    notes = Notes()
    run(toy_config(trainer__train_steps=25), trained, notes=notes)
    assert notes.started_at == [20]
    assert sorted(name for name in reads if "-20." in name) == [f"ckpt-20.{DATA}", "ckpt-20.index"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("spoil", [truncate, flip])
@pytest.mark.parametrize("before", [True, False])
def test_damage_before_or_after_the_early_check_is_detected(
    before: bool, spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    run(toy_config(), tmp_path)
    newest = list_checkpoints(CheckpointFolder(tmp_path / "checkpoints"))[-1]
    data = tmp_path / "checkpoints" / f"ckpt-20.{DATA}"
    if before:
        spoil(data)
    early_check.start_check(tmp_path)
    if not before:
        early_check._checks[data.with_name("ckpt-20")]._thread.join()
        spoil(data)
    assert data.name in early_check.find_damage(newest)


def test_directory_without_checkpoints_starts_no_check(tmp_path: Path) -> None:
    before = {*early_check._checks}
    early_check.start_check(tmp_path / "none")
    assert {*early_check._checks} == before


def test_unreadable_record_is_reported_as_damage(trained: Path, tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "checkpoints")
    folder.path.mkdir()
    for path in (trained / "checkpoints").glob("ckpt-20.*"):
        (folder.path / path.name).write_bytes(path.read_bytes())
    (folder.path / "ckpt-20.json").write_text("{")
    early_check.start_check(tmp_path)
    assert "ckpt-20.json cannot be read" in early_check.find_damage(list_checkpoints(folder)[-1])
    intact = list_checkpoints(CheckpointFolder(trained / "checkpoints"))[-1]
    assert early_check.find_damage(intact) == ""
