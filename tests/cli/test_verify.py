"""`runner verify`: intact runs, and runs that are damaged in each possible place."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.damage import DATA, change_record
from tests.support.problems import output_of

NAMES = ["checkpoints/ckpt-20", "checkpoints/ckpt-30"]
BEST = "best/best-30"
Damage = Callable[[Path], object]


def verified(*arguments: object, exit_code: int = 0) -> str:
    """Returns the standard output of the command."""
    return output_of(["verify", *map(str, arguments)], exit_code=exit_code)


def _flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def _data(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"ckpt-{step}.data-00000-of-00001"


def _line_of(out: str, name: str) -> str:
    (line,) = (line for line in out.splitlines() if line.startswith(f"{name} "))
    return line


@pytest.mark.slow
def test_intact_run_is_reported_as_intact(finished_run):
    out = verified(finished_run)
    lines = out.splitlines()
    assert lines[0].split() == ["checkpoint", "weights", "state"]
    assert [line.split()[0] for line in lines[1:-1]] == [*NAMES, BEST]
    assert all(line.endswith("  intact") for line in lines[1:-1])
    assert lines[-1] == f"{finished_run}: intact, 3 checkpoints read"
    for name in [*NAMES, BEST]:
        record = json.loads((finished_run / f"{name}.json").read_text())
        assert record["weights"][:12] in _line_of(out, name)
        assert record["state"][:12] in _line_of(out, name)
    values = json.loads(verified(finished_run, "--json"))
    assert values["well"] is True
    (checkpoint,) = (
        checkpoint for checkpoint in values["checkpoints"] if checkpoint["name"] == BEST
    )
    assert (checkpoint["weights"], checkpoint["state"], checkpoint["well"]) == (
        record["weights"], record["state"], True,
    )  # fmt: skip


def _write(name: str, text: str) -> Damage:
    return lambda run: (run / f"checkpoints/{name}").write_text(text)


def _delete(name: str) -> Damage:
    return lambda run: (run / f"checkpoints/{name}").unlink()


def _edit(**values: object) -> Damage:
    return lambda run: change_record(run / "checkpoints/ckpt-20.json", **values)


def _cut(run: Path) -> None:
    os.truncate(_data(run, 20), _data(run, 20).stat().st_size - 1)


# The damage, the damaged checkpoint, and the message about it.
DAMAGES: dict[str, tuple[Damage, str, str]] = {
    "data": (lambda run: _flip(_data(run, 20), 700), NAMES[0], f"ckpt-20.{DATA} has changed"),
    "best": (lambda run: _flip(run / "best/best-30.index", 100), BEST, "best-30.index has changed"),
    "end": (_cut, NAMES[0], " bytes instead of "),
    "index": (_delete("ckpt-30.index"), NAMES[1], "ckpt-30.index is missing"),
    "weights": (_edit(weights="0" * 64), NAMES[0], " on disk, 000000000000 in its record"),
    "state": (_edit(state="0" * 64), NAMES[0], " on disk, 000000000000 in its record"),
    "step": (_edit(step=21), NAMES[0], "ckpt-20.json is the record of step 21"),
    "syntax": (_write("ckpt-30.json", "{"), NAMES[1], "ckpt-30.json cannot be read"),
    "type": (_write("ckpt-30.json", "[]"), NAMES[1], "expected a JSON object"),
    "record": (_delete("ckpt-30.json"), NAMES[1], "ckpt-30.json is missing"),
}


@pytest.mark.promise("commands", "`runner verify` finds checkpoints that have changed")
@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_found_in_one_checkpoint(what, run):
    damage, name, message = DAMAGES[what]
    damage(run)
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in run.rglob("*")}
    out = verified(run, exit_code=4)
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in run.rglob("*")} == before
    assert message in _line_of(out, name)
    assert all(_line_of(out, other).endswith("  intact") for other in {*NAMES, BEST} - {name})
    assert out.splitlines()[-1] == f"{run}: 1 of 3 damaged"


def test_swapped_checkpoint_files_with_matching_file_records_are_detected(run):
    """Intact files of another step: only the tensors reveal the swap."""
    marks = {}
    for suffix in ("index", "data-00000-of-00001"):
        source, target = (run / f"checkpoints/ckpt-{step}.{suffix}" for step in (20, 30))
        shutil.copyfile(source, target)
        record = json.loads((run / "checkpoints/ckpt-20.json").read_text())
        marks[target.name] = record["files"][source.name]
    change_record(run / "checkpoints/ckpt-30.json", files=marks)
    out = verified(run, exit_code=4)
    assert re.search(r"weights \w{12} on disk, \w{12} in its rec", _line_of(out, NAMES[1]))


@pytest.mark.usefixtures("no_tensorflow")
def test_damaged_files_are_detected_without_importing_tensorflow(run):
    for step in (20, 30):
        _flip(_data(run, step), 700)
    _flip(run / "best/best-30.index", 100)
    out = verified(run, exit_code=4)
    assert out.count("has changed since it was written") == 3
    assert out.splitlines()[-1] == f"{run}: 3 of 3 damaged"


def test_checkpoint_that_a_killed_run_has_not_completed_is_ignored(run):
    for suffix in ("json", DATA):
        shutil.copyfile(run / f"{NAMES[1]}.{suffix}", run / f"checkpoints/ckpt-40.{suffix}")
    assert verified(run).splitlines()[-1] == f"{run}: intact, 3 checkpoints read"


def test_checkpoint_removed_during_verification_is_skipped(run, monkeypatch):
    from orbit_runner.checkpoint import directory

    # As a live run removes it: the index first, the rest a moment later.
    (run / "checkpoints/ckpt-20.index").unlink()

    def rest_goes(seconds: float) -> None:
        for path in (run / "checkpoints").glob("ckpt-20.*"):
            path.unlink()

    monkeypatch.setattr(directory.time, "sleep", rest_goes)
    out = verified(run)
    assert [line.split()[0] for line in out.splitlines()[1:-1]] == [*NAMES[1:], BEST]
