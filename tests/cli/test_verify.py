"""`runner verify`: whole runs, and runs with something wrong in each of the places there are."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.cli.main import main

COMMAND = [sys.executable, "-m", "orbit_runner"]
NAMES = ["checkpoints/ckpt-10", "checkpoints/ckpt-20", "checkpoints/ckpt-30"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 30 steps, made by a process of its own."""
    folder = tmp_path_factory.mktemp("made")
    arguments = ["--experiment=digits_mlp", "--task.model.hidden_units=[8]", "--train_steps=30",
                 "--trainer.checkpoint_interval=10", "--trainer.max_to_keep=3",
                 "--trainer.best_checkpoint_export_subdir=best", "--model_dir=a",
                 "--trainer.best_checkpoint_eval_metric=accuracy"]  # fmt: skip
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "a"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of the run, to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "a"))


@pytest.fixture
def verified(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs the command, and returns its exit code and standard output."""

    def run(*arguments: object) -> tuple[int, str]:
        code = main(["verify", *map(str, arguments)])
        return code, capsys.readouterr().out

    return run


Verified = Callable[..., tuple[int, str]]


def _flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def _data(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"ckpt-{step}.data-00000-of-00001"


def _edit(path: Path, **values: Any) -> dict[str, Any]:
    record = json.loads(path.read_text())
    record.pop("checksum")  # Earlier versions wrote none.
    path.write_text(json.dumps({**record, **values}))
    return dict(record)


def _said_of(out: str, name: str) -> str:
    (line,) = (line for line in out.splitlines() if line.startswith(f"{name} "))
    return line


def test_a_whole_run(made: Path, verified: Verified) -> None:
    code, out = verified(made)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["checkpoint", "weights", "state"]
    assert [line.split()[0] for line in lines[1:-1]] == [*NAMES, "best/best-30"]
    assert all(line.endswith("  whole") for line in lines[1:-1])
    assert lines[-1] == f"{made}: whole, 4 checkpoints read"
    for name in [*NAMES, "best/best-30"]:
        record = json.loads((made / f"{name}.json").read_text())
        assert record["weights"][:12] in _said_of(out, name)
        assert record["state"][:12] in _said_of(out, name)


def test_json_has_all_digits(made: Path, verified: Verified) -> None:
    code, out = verified(made, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["well"] is True
    record = json.loads((made / "checkpoints/ckpt-20.json").read_text())
    (one,) = (one for one in found["checkpoints"] if one["step"] == 20)
    assert (one["weights"], one["state"]) == (record["weights"], record["state"])
    assert one["well"] is True


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("checkpoints", ["ckpt-10", "ckpt-20", "ckpt-30"]),
        ("checkpoints/ckpt-20", ["ckpt-20"]),
        ("checkpoints/ckpt-20.index", ["ckpt-20"]),
        ("best", ["best-30"]),
        ("best/best-30", ["best-30"]),
    ],
)
def test_a_part_of_a_run(target: str, names: list[str], run: Path, verified: Verified) -> None:
    code, out = verified(run / target)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:-1]] == names
    # Its config is known all the same.
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("seed: 17", "seed: 18"))
    code, out = verified(run / target)
    assert code == 4
    assert "made with another config" in _said_of(out, names[0])


def test_a_flipped_bit(run: Path, verified: Verified) -> None:
    _flip(_data(run, 20), 700)
    code, out = verified(run)
    assert code == 4
    assert "ckpt-20.data-00000-of-00001 has changed" in _said_of(out, NAMES[1])
    assert _said_of(out, NAMES[0]).endswith("  whole")
    assert out.splitlines()[-1] == f"{run}: 1 of 4 damaged"


def test_a_flipped_bit_in_the_best(run: Path, verified: Verified) -> None:
    _flip(run / "best/best-30.index", 100)
    code, out = verified(run)
    assert code == 4
    assert "best-30.index has changed" in _said_of(out, "best/best-30")


def test_a_truncated_file(run: Path, verified: Verified) -> None:
    size = _data(run, 10).stat().st_size
    with _data(run, 10).open("r+b") as file:
        file.truncate(size - 1)
    code, out = verified(run)
    assert code == 4
    assert f"has {size - 1:,} bytes, not the {size:,} that were written" in _said_of(out, NAMES[0])


def test_a_missing_index(run: Path, verified: Verified) -> None:
    (run / "checkpoints/ckpt-30.index").unlink()
    code, out = verified(run)
    assert code == 4
    assert _said_of(out, NAMES[2]).endswith("ckpt-30.index is missing")


@pytest.mark.parametrize("what", ["weights", "state"])
def test_an_edited_fingerprint(what: str, run: Path, verified: Verified) -> None:
    record = _edit(run / "checkpoints/ckpt-20.json", **{what: "0" * 64})
    code, out = verified(run)
    assert code == 4
    expected = f"{what} {record[what][:12]} on the disk, 000000000000 in its record"
    assert _said_of(out, NAMES[1]).endswith(expected)


def test_files_that_were_swapped_with_their_marks(run: Path, verified: Verified) -> None:
    """Whole files of another step: only the tensors tell."""
    marks = {}
    for suffix in ("index", "data-00000-of-00001"):
        source, target = (run / f"checkpoints/ckpt-{step}.{suffix}" for step in (10, 20))
        shutil.copyfile(source, target)
        record = json.loads((run / "checkpoints/ckpt-10.json").read_text())
        marks[target.name] = record["files"][source.name]
    _edit(run / "checkpoints/ckpt-20.json", files=marks)
    code, out = verified(run)
    assert code == 4
    assert re.search(r"weights \w{12} on the disk, \w{12} in its rec", _said_of(out, NAMES[1]))


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "ckpt-10.json cannot be read"), ("[]", "expected a JSON object")],
)
def test_a_record_that_is_none(text: str, said: str, run: Path, verified: Verified) -> None:
    (run / "checkpoints/ckpt-10.json").write_text(text)
    code, out = verified(run)
    assert code == 4
    assert said in _said_of(out, NAMES[0])


def test_the_record_of_another_step(run: Path, verified: Verified) -> None:
    _edit(run / "checkpoints/ckpt-20.json", step=21)
    code, out = verified(run)
    assert code == 4
    assert "its record is that of step 21" in _said_of(out, NAMES[1])


def test_another_config(run: Path, verified: Verified) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("seed: 17", "seed: 18"))
    code, out = verified(run)
    assert code == 4
    assert out.count("whole, made with another config") == 4
    assert out.splitlines()[-1] == f"{run}: 4 of 4 made with another config than its config.yaml"


def test_a_config_that_says_the_same_of_the_weights(run: Path, verified: Verified) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("train_steps: 30", "train_steps: 90"))
    assert verified(run)[0] == 0


def test_a_config_that_does_not_load(run: Path, verified: Verified) -> None:
    (run / "config.yaml").write_text("task: [1\n")
    code, out = verified(run)
    assert code == 4
    assert "no valid YAML" in out
    assert out.splitlines()[-1] == f"{run}: config.yaml does not load"


def test_without_a_record_there_is_no_fingerprint(run: Path, verified: Verified) -> None:
    (run / "checkpoints/ckpt-20.json").unlink()
    code, out = verified(run)
    assert code == 0
    assert _said_of(out, NAMES[1]).endswith("  no fingerprint")
    assert out.splitlines()[-1].endswith("1 of them without a fingerprint to compare with")
    # TensorFlow's own checksums are there all the same.
    _flip(_data(run, 20), 700)
    code, out = verified(run)
    assert code == 4
    assert "cannot be read: " in _said_of(out, NAMES[1])


def test_checkpoints_of_others(tmp_path: Path, verified: Verified) -> None:
    import tensorflow as tf

    tf.train.Checkpoint(v=tf.Variable(1.0)).write(str(tmp_path / "model.ckpt-7"))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("by_name", initializer=2.0)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(tmp_path / "old-3"))
    code, out = verified(tmp_path)
    assert code == 0
    assert _said_of(out, "model.ckpt-7").endswith("  no fingerprint")
    assert _said_of(out, "old-3").endswith("  no fingerprint")
    _flip(tmp_path / "old-3.data-00000-of-00001", 0)
    code, out = verified(tmp_path / "old-3")
    assert code == 4
    assert "cannot be read: " in _said_of(out, "old-3")


def test_nothing_is_changed(run: Path, verified: Verified) -> None:
    _flip(_data(run, 20), 700)
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in run.rglob("*")}
    verified(run)
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in run.rglob("*")} == before


def test_files_are_looked_at_without_tensorflow(
    run: Path, without_tensorflow: dict[str, str]
) -> None:
    for step in (10, 20, 30):
        _flip(_data(run, step), 700)
    _flip(run / "best/best-30.index", 100)
    done = subprocess.run(
        [*COMMAND, "verify", str(run)],
        env=without_tensorflow, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert done.stdout.count("has changed since it was written") == 4
    assert done.stdout.splitlines()[-1] == f"{run}: 4 of 4 damaged"
    assert "reading the files of 4 checkpoints" in done.stderr


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "said"), [("nowhere", "nowhere does not exist"), ("empty", "empty holds no check")]
)
def test_no_run(
    name: str,
    said: str,
    tmp_path: Path,
    without_tensorflow: dict[str, str],
    refused: Callable[..., str],
) -> None:
    (tmp_path / "empty/checkpoints").mkdir(parents=True)
    found = refused(tmp_path, "verify", name, env=without_tensorflow)
    assert said in found
    assert "allowed: the folder of a run" in found


@pytest.mark.parametrize("command", ["verify", "reproduce"])
def test_help_needs_no_tensorflow(command: str, without_tensorflow: dict[str, str]) -> None:
    done = subprocess.run(
        [*COMMAND, command, "--help"],
        env=without_tensorflow, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"usage: runner {command}" in done.stdout


def test_a_checkpoint_that_goes_while_it_is_looked_at(
    run: Path, verified: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orbit_runner.checkpoint import discovery

    # As a run that goes on removes it: the index first, the rest a moment later.
    (run / "checkpoints/ckpt-10.index").unlink()

    def rest_goes(seconds: float) -> None:
        for path in (run / "checkpoints").glob("ckpt-10.*"):
            path.unlink()

    monkeypatch.setattr(discovery.time, "sleep", rest_goes)
    code, out = verified(run)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:-1]] == [*NAMES[1:], "best/best-30"]
