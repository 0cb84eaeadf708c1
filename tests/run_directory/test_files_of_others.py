"""What the runner did not write, it does not delete, and what it writes is never lost."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from orbit_runner.repeat.branch import prepare_branch
from orbit_runner.serving.export import RECORD, new_directory_scope
from orbit_runner.tasks.assets import Assets
from orbit_runner.train.callbacks.object_state import ArrayFiles
from orbit_runner.utils.files import temporary_path
from tests.support.problems import raises
from tests.support.toy import run, toy_config

_OTHERS = (
    ".config.yaml.20261128", ".env.4194305", ".tmp-elsewhere-7-7-run.json",
    "checkpoints/.writing-notes/a.txt", "checkpoints/ckpt-5.txt", "callbacks/own.npz",
    "assets/notes/a.txt", "best/notes.txt", ".cluster/notes.json",
)  # fmt: skip


@pytest.mark.slow
def test_start_and_resume_keep_files_of_others(tmp_path):
    for name in _OTHERS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for steps in (20, 40):
        run(toy_config(trainer__train_steps=steps), tmp_path, resume="override")
        for number in range(6):  # More than the files of the last states.
            ArrayFiles(tmp_path).write({f"{steps}, {number}": np.zeros(1)})
    assert {name for name in _OTHERS if (tmp_path / name).read_text() == name} == {*_OTHERS}


def test_assets_of_another_start_are_renamed(tmp_path):
    def start(content):
        assets = Assets(tmp_path)
        assets.discard()
        assets.get("names.txt", lambda: content)
        assets.write()

    start(b"first")
    (tmp_path / "assets" / "notes.txt").write_text("own")
    for content in (b"second", b"second"):
        start(content)

    texts = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.txt")}
    assert texts == {
        Path("assets/names.txt"): b"second",
        Path("assets.old/names.txt"): b"first",
        Path("assets.old/notes.txt"): b"own",
    }


@pytest.mark.parametrize("name", [RECORD, "notes.txt"])
def test_only_an_export_is_replaced_and_only_by_a_complete_one(name, tmp_path):
    place = tmp_path / "export" / "20"
    place.mkdir(parents=True)
    (place / name).write_text("before")

    def export(fails):
        with raises("not-writable"), new_directory_scope(place, replaces=True):
            if fails:
                raise OSError("the disk is full")

    export(fails=True)
    assert (place / name).read_text() == "before"
    if name != RECORD:
        export(fails=False)
        assert (place / name).read_text() == "before"
    assert [path.name for path in place.parent.iterdir()] == ["20"]


def test_branch_is_not_created_among_other_files(tmp_path):
    own = tmp_path / ".b.branch" / "notes.txt"
    own.parent.mkdir()
    own.write_text("own")
    plan = SimpleNamespace(directory=tmp_path / "b")
    for _ in range(2):
        with raises("already-exists", "--model_dir"):
            prepare_branch(plan, "train", None)
    assert [*own.parent.iterdir()] == [own]


def test_temporary_files_of_two_machines_have_different_names(tmp_path, monkeypatch):
    own = temporary_path(tmp_path / "run.json")
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(nodename="elsewhere"))
    assert temporary_path(tmp_path / "run.json") != own
