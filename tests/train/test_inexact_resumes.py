"""Changes at a resume are recorded, because the config alone cannot reproduce the weights."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.damage import change_record
from tests.support.problems import raises
from tests.support.toy import Notes, run, toy_config


def _reasons(folder, steps, strategy="one_device", resume="same", **changes):
    results = Notes()
    run(toy_config(trainer__train_steps=steps, **changes), folder, "train", strategy,
        notes=results, resume=resume)  # fmt: skip
    return results.reasons


@pytest.fixture(scope="module")
def exact_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "a"
    assert _reasons(folder, 5) == []
    return folder


def test_resume_with_only_harmless_changes_is_exact(exact_run, tmp_path):
    folder = Path(shutil.copytree(exact_run, tmp_path / "a"))
    assert _reasons(folder, 10, trainer__checkpoint_interval=10) == []


@pytest.mark.slow
def test_resume_under_another_strategy_is_recorded(exact_run, tmp_path):
    folder = Path(shutil.copytree(exact_run, tmp_path / "a"))
    expected = [
        "it was resumed at step 5 under another strategy "
        "(OneDeviceStrategy × 1 → MirroredStrategy × 2)"
    ]
    assert _reasons(folder, 10, "mirrored2") == expected
    assert _reasons(folder, 15, "mirrored2") == expected
    record = json.loads((folder / "checkpoints" / "ckpt-15.json").read_text())
    assert record["inexact"] == expected


def test_resume_with_another_config_is_recorded(exact_run, tmp_path):
    folder = Path(shutil.copytree(exact_run, tmp_path / "a"))
    changed = {"task__train_data__seed": 3}
    with raises("other-config"):
        _reasons(folder, 10, **changed)
    expected = ["it was resumed at step 5 with another config"]
    assert _reasons(folder, 10, resume="override", **changed) == expected
    assert _reasons(folder, 15, **changed) == expected


def test_resume_on_another_installation_is_recorded(exact_run, tmp_path):
    folder = Path(shutil.copytree(exact_run, tmp_path / "a"))
    path = folder / "checkpoints" / "ckpt-5.json"
    numerics = json.loads(path.read_text())["numerics"]
    change_record(path, numerics={**numerics, "tensorflow": "1.0"})
    expected = ["it was resumed at step 5 on another machine or installation"]
    assert _reasons(folder, 10) == expected


_MODULE = """
from orbit_runner import Callback

class Quiet(Callback):
    pass
"""


@pytest.mark.slow
def test_resume_with_changed_code_is_recorded(tmp_path, monkeypatch):
    source = tmp_path / "my_own_code.py"
    source.write_text(_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    callback = {"callbacks": '[{"class_name": "my_own_code.Quiet"}]'}
    folder = tmp_path / "a"
    try:
        assert _reasons(folder, 5, **callback) == []
        assert "my_own_code" in _record(folder, 5)["code"]
        assert _reasons(folder, 10, **callback) == []
        source.write_text(_MODULE + "\nchanged = True\n")
        del sys.modules["my_own_code"]
        notes = Notes()
        run(toy_config(trainer__train_steps=10, **callback), folder, "eval", notes=notes)
        assert any("this code changed" in note and str(source) in note for note in notes.notes)
        expected = [f"it was resumed at step 10 with changed code ({source})"]
        assert _reasons(folder, 15, **callback) == expected
        assert _reasons(folder, 20, **callback) == expected
        assert _record(folder, 20)["inexact"] == expected
    finally:
        sys.modules.pop("my_own_code", None)


def _record(folder, step):
    record = json.loads((folder / "checkpoints" / f"ckpt-{step}.json").read_text())
    assert isinstance(record, dict)
    return record
