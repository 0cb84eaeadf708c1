"""Changes to the data of a stopped run are detected and reported before heavy imports."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.run_directory.data_record import DataRecord, read_record
from orbit_runner.tasks.image_classification import sources
from tests.support.problems import fails
from tests.support.run_directories import last_attempt
from tests.support.toy import Notes, run

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


@pytest.fixture(scope="module")
def folder_with_run(tmp_path_factory):
    """A directory with a dataset, and the run `a` that was trained on it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "set").mkdir()
    rows = np.random.default_rng(0).integers(0, 10, (8, RECORD)).astype(np.uint8)
    for name in (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"):
        rows.tofile(folder / "set" / name)
    (folder / "some.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["run", "--experiment=some.yaml", "--model_dir=a"]) == 0
    return folder


@pytest.fixture
def folder(folder_with_run, tmp_path, monkeypatch):
    """A copy that is the working directory of this process."""
    copy = Path(shutil.copytree(folder_with_run, tmp_path / "copy"))
    monkeypatch.chdir(copy)
    sources._load_cached.cache_clear()
    yield copy
    sources._load_cached.cache_clear()


def _shorten(folder: Path) -> None:
    os.truncate(folder / "set/data_batch_5.bin", 5 * RECORD)


@pytest.mark.slow
@pytest.mark.usefixtures("no_tensorflow")
def test_resume_is_rejected_and_names_the_changed_data_file(folder):
    _shorten(folder)
    before = (folder / "a/data.json").read_bytes()
    fails(["run", "--experiment=some.yaml", "--model_dir=a", "--train_steps=6"], "data-changed")
    assert (folder / "a/data.json").read_bytes() == before


@pytest.mark.slow
def test_resume_override_with_changed_data_is_recorded_as_inexact(folder, capsys):
    _shorten(folder)
    arguments = ["run", "--experiment=some.yaml", "--model_dir=a"]
    assert main([*arguments, "--train_steps=6", "--resume=override"]) == 0
    assert "note: the data changed:\n  train_data: data_batch_5.bin" in capsys.readouterr().err
    inexact = ["it resumed at step 4 with different data"]
    assert last_attempt(folder / "a")["inexact"] == inexact
    assert main([*arguments, "--train_steps=7"]) == 0  # The record now describes the new data.
    assert last_attempt(folder / "a")["inexact"] == inexact


MOVED = ["--data_dir=moved", "--train_steps=6", "--experiment=some.yaml", "--model_dir=a"]


@pytest.mark.slow
def test_run_resumes_after_its_data_are_copied_to_another_directory(folder, capsys):
    (folder / "set").rename(folder / "moved")
    for path in (folder / "moved").iterdir():
        os.utime(path, (1, 1))
    assert main(["run", *MOVED]) == 0
    messages = capsys.readouterr().err
    assert "restored step 4" in messages
    assert "note:" not in messages
    assert last_attempt(folder / "a")["inexact"] == []


@pytest.mark.slow
def test_resume_is_rejected_if_moved_data_also_changed(folder):
    _shorten(folder)
    (folder / "set").rename(folder / "moved")
    fails(["run", *MOVED], "data-changed")


@pytest.mark.slow
@pytest.mark.parametrize("record", [None, "{"])
def test_moved_data_counts_as_config_change_without_data_record(record, folder):
    (folder / "set").rename(folder / "moved")
    (folder / "a/data.json").unlink()
    if record is not None:
        (folder / "a/data.json").write_text(record)
    fails(["run", *MOVED], "other-config")


@pytest.mark.slow
def test_run_from_python_detects_changed_data(folder):
    def resume(train_steps: int) -> list[str]:
        steps = (("--train_steps", "trainer.train_steps", str(train_steps)),)
        config, notes = resolve(Request(experiment="some.yaml", flags=steps)).config, Notes()
        run(config, folder / "a", "train", notes=notes)
        return notes.notes

    assert not [note for note in resume(6) if "changed" in note]
    _shorten(folder)
    sources._load_cached.cache_clear()
    notes = resume(7)
    assert any("data_batch_5.bin: 15,365 bytes" in note for note in notes)
    assert [change["step"] for change in read_record(folder / "a")[1]] == [6]


@pytest.mark.slow
def test_reproduce_stops_before_training_if_data_changed(folder, capsys):
    _shorten(folder)
    fails(["reproduce", "a"], "data-changed", "", exit_code=4)
    assert capsys.readouterr().out == ""


def test_note_warns_if_modified_file_has_unknown_contents(tmp_path):
    DataRecord(tmp_path, {"train_data": [DataFile("x", 5, 1)]}).write()
    record = DataRecord(tmp_path, {"train_data": [DataFile("x", 5, 10**18)]})
    record.check()
    (note,) = record.notes()
    warning = "these files were modified since the run last started; it is unknown whether their"
    assert note.startswith(warning)
