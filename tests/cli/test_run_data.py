"""A run whose data change while it is stopped: noticed before anything is imported, and told."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.fingerprint import identity_settings, settings_fingerprint
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.run_directory.config import is_made_with, keep_settings
from orbit_runner.run_directory.data_record import DataRecord, read_record
from orbit_runner.tasks.image_classification import sources
from tests.support.toy import Notes, run

NAME = "task.train_data.data_dir"
Refused = Callable[..., str]
RECORD = 3073
CONFIG = """
task:
  name: image_classification
  model: {name: mlp, hidden_units: [4]}
  train_data: {source: cifar10, data_dir: set, global_batch_size: 8}
  validation_data: {source: cifar10, data_dir: set, global_batch_size: 8}
trainer:
  train_steps: 4
  checkpoint_interval: 2
  optimizer_config:
    optimizer: {type: sgd}
    learning_rate: {type: constant, constant: {learning_rate: 0.01}}
runtime: {distribution_strategy: one_device, seed: 1}
"""
AT_START = SimpleNamespace(step=0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset, and the run `a` that was trained on it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "set").mkdir()
    rows = np.random.default_rng(0).integers(0, 10, (8, RECORD)).astype(np.uint8)
    for name in (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"):
        rows.tofile(folder / "set" / name)
    (folder / "some.yaml").write_text(CONFIG)
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main(["run", "--experiment=some.yaml", "--model_dir=a"]) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy, in which this process works."""
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    monkeypatch.chdir(copy)
    sources._files.cache_clear()
    yield copy
    sources._files.cache_clear()


def _shorten(folder: Path) -> None:
    os.truncate(folder / "set/data_batch_5.bin", 5 * RECORD)


def test_a_resume_names_the_file_and_what_differs(
    folder: Path, refused: Refused, without_tensorflow: dict[str, str]
) -> None:
    _shorten(folder)
    before = (folder / "a/data.json").read_bytes()
    said = refused(folder, "run", "--experiment=some.yaml", "--model_dir=a", "--train_steps=6",
                   env=without_tensorflow)  # fmt: skip
    assert said.startswith("runner: a: the data changed since the run last started:\n")
    assert "  train_data: data_batch_5.bin: 15,365 bytes, it had 24,584 bytes; modified " in said
    assert "--resume=override" in said
    assert (folder / "a/data.json").read_bytes() == before


def test_with_override_it_continues_and_is_not_reproducible(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _shorten(folder)
    arguments = ["run", "--experiment=some.yaml", "--model_dir=a"]
    assert main([*arguments, "--train_steps=6", "--resume=override"]) == 0
    assert "note: the data changed:\n  train_data: data_batch_5.bin" in capsys.readouterr().err
    attempt = json.loads((folder / "a/run.json").read_text())["attempts"][-1]
    assert attempt["inexact"] == ["it continued from step 4 with other data"]
    assert main([*arguments, "--train_steps=7"]) == 0  # The record is that of the new data now.
    attempt = json.loads((folder / "a/run.json").read_text())["attempts"][-1]
    assert attempt["inexact"] == ["it continued from step 4 with other data"]


def test_another_time_or_place_of_equal_files_is_no_change(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (folder / "set").iterdir():
        os.utime(path, (1, 1))
    assert main(["run", "--experiment=some.yaml", "--model_dir=a", "--train_steps=5"]) == 0
    assert "note:" not in capsys.readouterr().err
    assert json.loads((folder / "a/run.json").read_text())["attempts"][-1]["inexact"] == []


MOVED = ["--data_dir=moved", "--train_steps=6", "--experiment=some.yaml", "--model_dir=a"]


def test_a_run_resumes_when_its_data_were_moved(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "set").rename(folder / "moved")
    assert main(["run", *MOVED]) == 0
    assert "restored step 4" in capsys.readouterr().err
    assert json.loads((folder / "a/run.json").read_text())["attempts"][-1]["inexact"] == []


def test_other_data_in_another_directory_are_noticed(folder: Path, refused: Refused) -> None:
    _shorten(folder)
    (folder / "set").rename(folder / "moved")
    assert "the data changed since the run last started" in refused(folder, "run", *MOVED)


@pytest.mark.parametrize("record", [None, "{"])
def test_without_a_record_of_the_data_another_directory_is_another_config(
    record: str | None, folder: Path, refused: Refused
) -> None:
    (folder / "set").rename(folder / "moved")
    (folder / "a/data.json").unlink()
    if record is not None:
        (folder / "a/data.json").write_text(record)
    said = refused(folder, "run", *MOVED)
    assert "a holds a run of another config:\n  task.train_data.data_dir: set → moved\n" in said


def test_a_run_from_python_compares_its_data(folder: Path) -> None:
    def resume(train_steps: int) -> list[str]:
        steps = (("--train_steps", "trainer.train_steps", str(train_steps)),)
        config, notes = resolve(Request(experiment="some.yaml", flags=steps)).config, Notes()
        run(config, folder / "a", "train", notes=notes)
        return notes.notes

    assert not [note for note in resume(6) if "changed" in note]
    _shorten(folder)
    sources._files.cache_clear()
    notes = resume(7)
    assert any("data_batch_5.bin: 15,365 bytes" in note for note in notes)
    assert [change["step"] for change in read_record(folder / "a")[1]] == [6]


def test_reproduce_does_not_begin_with_other_data(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _shorten(folder)
    assert main(["reproduce", "a"]) == 4
    said = capsys.readouterr()
    assert "train_data: data_batch_5.bin: 15,365 bytes, it had 24,584 bytes" in said.err
    assert said.out == ""


def test_verify_reads_the_data_where_that_is_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "--data", "a"]) == 0
    assert capsys.readouterr().out.endswith("data: contents are as recorded, 6 files\n")
    path = folder / "set/test_batch.bin"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert main(["verify", "a"]) == 0
    capsys.readouterr()
    assert main(["verify", "--data", "--json", "a"]) == 4
    found = json.loads(capsys.readouterr().out)["data"]
    assert not found["well"]
    (line,) = found["changes"]
    assert line.startswith("validation_data: test_batch.bin: other contents, of the same size")
    (folder / "a/data.json").unlink()
    assert main(["verify", "--data", "a"]) == 2


def test_only_the_time_of_a_file_of_unknown_contents_is_a_note(tmp_path: Path) -> None:
    DataRecord(tmp_path, {"train_data": [DataFile("x", 5, 1)]}).on_run_begin(
        SimpleNamespace(step=0)
    )
    record = DataRecord(tmp_path, {"train_data": [DataFile("x", 5, 10**18)]})
    record.check()
    (note,) = record.notes()
    assert note.startswith("these files were modified since the run last started; whether their")


def test_an_earlier_run_without_a_record_was_made_with_its_data_directory(tmp_path: Path) -> None:
    config = resolve(Request(experiment="mnist", flags=(("x", NAME, "moved"),))).config
    settings = {**identity_settings(config), NAME: "set"}
    keep_settings(tmp_path, settings)
    fingerprint = settings_fingerprint(settings)
    assert not is_made_with(tmp_path, fingerprint, config)
    DataRecord(tmp_path, {}).on_run_begin(AT_START)
    assert is_made_with(tmp_path, fingerprint, config)
