"""Changes at a resume are recorded, because the config alone cannot reproduce the weights."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.toy import Notes, run, toy_config


def _reasons(folder: Path, steps: int, strategy: str = "one_device", **changes: Any) -> list[str]:
    results = Notes()
    run(toy_config(trainer__train_steps=steps, **changes), folder, "train", strategy,
        notes=results)  # fmt: skip
    assert results.reasons is not None
    return results.reasons


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "a"
    assert _reasons(folder, 5) == []
    return folder


def test_resume_with_only_harmless_changes_is_exact(made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "a"))
    assert _reasons(folder, 10, trainer__checkpoint_interval=10) == []


def test_resume_under_another_strategy_is_recorded(made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "a"))
    expected = [
        "it was resumed at step 5 under another strategy "
        "(OneDeviceStrategy × 1 → MirroredStrategy × 2)"
    ]
    assert _reasons(folder, 10, "mirrored2") == expected
    assert _reasons(folder, 15, "mirrored2") == expected
    record = json.loads((folder / "checkpoints" / "ckpt-15.json").read_text())
    assert record["inexact"] == expected


def test_resume_with_another_config_is_recorded(made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "a"))
    changed = {"task__train_data__seed": 3}
    expected = ["it was resumed at step 5 with another config"]
    assert _reasons(folder, 10, **changed) == expected
    assert _reasons(folder, 15, **changed) == expected


def test_resume_on_another_installation_is_recorded(made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "a"))
    path = folder / "checkpoints" / "ckpt-5.json"
    record = json.loads(path.read_text())
    record["numerics"]["tensorflow"] = "1.0"
    path.write_text(json.dumps({**record, "checksum": None}))
    expected = ["it was resumed at step 5 on another machine or installation"]
    assert _reasons(folder, 10) == expected


def test_resume_from_a_checkpoint_without_a_record_is_recorded(made: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for suffix in ("index", "data-00000-of-00001"):
        shutil.copyfile(made / "checkpoints" / f"ckpt-5.{suffix}", tmp_path / f"a/ckpt-5.{suffix}")
    (reason,) = _reasons(tmp_path / "a", 10)
    assert reason.startswith("it was resumed at step 5 from a checkpoint without a record")
