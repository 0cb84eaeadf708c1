"""Runs report removed and damaged files in their run directory, and continue."""

import json
import shutil
from pathlib import Path

import pytest

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.reporting.run_record import RunRecord
from tests.support.configs import keep_best
from tests.support.damage import DATA, flip, truncate
from tests.support.toy import Notes, records, run, toy_config

BEST = keep_best("error")


@pytest.fixture(scope="module")
def reference_run(tmp_path_factory):
    """A run of 10 steps with checkpoints at 5 and 10, and the weights that 15 steps give."""
    folder = tmp_path_factory.mktemp("made")
    run(toy_config(trainer__train_steps=10, **BEST), folder / "a")
    model, _ = run(toy_config(trainer__train_steps=15, **BEST), folder / "whole")
    return folder / "a", weights_fingerprint(model)


def _file(run_dir, suffix, step=10):
    return run_dir / "checkpoints" / f"ckpt-{step}.{suffix}"


def _damage_all(run_dir):
    for path in (run_dir / "checkpoints").glob(f"*.{DATA}"):
        truncate(path)


def _lose_newest(run_dir):
    for path in (run_dir / "checkpoints").glob("ckpt-10.*"):
        path.unlink()


def _replace_newest(run_dir):
    """Puts the files of another step under the name of the newest checkpoint."""
    for suffix in ("index", DATA, "json"):
        shutil.copyfile(_file(run_dir, suffix, 5), _file(run_dir, suffix))


def _leave_unfinished(run_dir):
    """Leaves what a kill leaves between the renames of the record and of the index."""
    _file(run_dir, "index").unlink()
    for folder in (run_dir, run_dir / "checkpoints"):
        pointer = folder / "checkpoint"
        pointer.write_text(pointer.read_text().replace("ckpt-10", "ckpt-5"))


_DAMAGES = {
    "bit flipped": (lambda a: flip(_file(a, DATA)), f"step 10 is damaged: ckpt-10.{DATA}", 5),
    "all damaged": (_damage_all, "starting from the beginning", 0),
    "another step": (_replace_newest, "step 10 is damaged: ", 5),
    "newest removed": (_lose_newest, "ckpt-10, which is missing", 5),
    "all removed": (
        lambda a: shutil.rmtree(a / "checkpoints"),
        "checkpoints/ckpt-10, whose directory is missing",
        0,
    ),
    "unfinished": (_leave_unfinished, "checkpoint of step 10 was incomplete when the run", 5),
    "best removed": (lambda a: shutil.rmtree(a / "best"), "are missing: best/best-10", 10),
}


@pytest.mark.promise(
    "faults", "a damaged checkpoint is noticed before it is used, and the one before it is restored"
)
@pytest.mark.slow
@pytest.mark.parametrize("kind", list(_DAMAGES))
def test_run_reports_damage_and_continues(kind, reference_run, tmp_path):
    spoil, expected, start = _DAMAGES[kind]
    folder = Path(shutil.copytree(reference_run[0], tmp_path / "a"))
    spoil(folder)
    notes = Notes()
    model, _ = run(toy_config(trainer__train_steps=15, **BEST), folder, notes=notes)
    assert notes.started_at == [start]
    assert expected in "\n".join(notes.notes)
    assert weights_fingerprint(model) == reference_run[1]
    is_moved = (folder / "checkpoints" / "damaged" / "ckpt-10").is_dir()
    assert is_moved is ("step 10 is damaged" in "\n".join(notes.notes))
    # The earlier records are kept if checkpoints are lost.
    lost = start < 10 and kind != "unfinished"
    kept = folder / f"metrics.jsonl.before-step-{start}"
    assert kept.exists() is lost
    if lost:
        assert kept.read_text() == (reference_run[0] / "metrics.jsonl").read_text()


@pytest.mark.slow
def test_rerun_of_a_finished_run_adds_no_second_evaluation_record(reference_run, tmp_path):
    folder = Path(shutil.copytree(reference_run[0], tmp_path / "a"))
    before = (folder / "metrics.jsonl").read_bytes()
    notes = Notes()
    run(toy_config(trainer__train_steps=10, **BEST), folder, notes=notes)
    assert [step for step, _ in notes.evaluations] == [10]
    assert (folder / "metrics.jsonl").read_bytes() == before


@pytest.mark.slow
def test_run_sets_garbage_files_aside_and_replaces_them(reference_run, tmp_path):
    folder = Path(shutil.copytree(reference_run[0], tmp_path / "a"))
    fingerprints = folder / "checkpoints" / "fingerprints.jsonl"
    fingerprints.unlink()
    fingerprints.mkdir()
    metrics = folder / "metrics.jsonl"
    metrics.write_bytes(b"\xff\x00\x80\n" + metrics.read_bytes() + b'{"step": 10, "spl')
    (folder / "best" / "info.json").write_text("[1]")
    model, _ = run(toy_config(trainer__train_steps=15, **BEST), folder)
    assert weights_fingerprint(model) == reference_run[1]
    assert fingerprints.with_name(f"{fingerprints.name}.damaged").exists()
    assert fingerprints.is_file()
    assert [record["step"] for record in records(folder, "train")] == [5, 10, 15]
    info = json.loads((folder / "best" / "info.json").read_text())
    assert info["best_ckpt_global_step"] == 15


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"{", b"[]", b'{"attempts": "x"}', b'{"attempts": [1]}', None]
)
def test_garbage_run_record_is_set_aside(content, tmp_path):
    path, notes = tmp_path / "run.json", list[str]()
    path.mkdir() if content is None else path.write_bytes(content)
    RunRecord(path, ["runner"], "train", 1, notes.append).finish("done")
    (note,) = notes
    assert f"{path} cannot be read" in note
    assert str(tmp_path / "run.json.damaged") in note
    assert [attempt["outcome"] for attempt in json.loads(path.read_text())["attempts"]] == ["done"]
    RunRecord(path, ["runner"], "train", 1, notes.append).finish("done")
    assert len(json.loads(path.read_text())["attempts"]) == 2
    assert len(notes) == 1
