"""`runner reproduce`: runs made by separate processes are reproduced in this one."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.cli.main import main
from tests.support import warm_runner
from tests.support.damage import change_record
from tests.support.problems import check, error_of, fails, problems_of
from tests.support.run_directories import locked_by_another

Reproduced = Callable[..., tuple[int, str, str]]


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The directory in which temporary directories are created."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def reproduced(temporary, capsys):
    """Runs the command, and returns its exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["reproduce", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def _change(run: Path, before: str, after: str) -> None:
    text = (run / "config.yaml").read_text()
    assert before in text
    (run / "config.yaml").write_text(text.replace(before, after))


def _record(run: Path, step: int) -> dict[str, Any]:
    return dict(json.loads((run / f"checkpoints/ckpt-{step}.json").read_text()))


def _set_threads(run: Path, step: int, threads: str) -> None:
    numerics = {**_record(run, step)["numerics"], "intra-op threads": threads}
    change_record(run / f"checkpoints/ckpt-{step}.json", numerics=numerics)


def _row(out: str, name: str) -> str:
    (line,) = (line for line in out.splitlines() if line.startswith(f"  {name:<12} "))
    return line[15:]


@pytest.mark.promise(
    "commands", "`runner reproduce` trains again, and prints `equal` or what differs first"
)
@pytest.mark.slow
def test_unchanged_run_is_reproduced_exactly(finished_run, reproduced, temporary):
    before = {p: p.stat().st_mtime_ns for p in finished_run.rglob("*")}
    # A live run is read, too.
    with locked_by_another(finished_run):
        code, out, err = reproduced(finished_run)
    assert code == 0
    # The checkpoint of step 10 was removed, but its fingerprints remain.
    assert out.splitlines()[0] == "equal: 3 checkpoints up to step 30"
    record = _record(finished_run, 30)
    assert _row(out, "weights") == f"sha256 {record['weights']}"
    assert _row(out, "state") == f"sha256 {record['state']}"
    assert "note" not in out + err
    assert "training from step 0 to 30" in err
    assert [*temporary.glob("reproduce-*")] == []
    assert {p: p.stat().st_mtime_ns for p in finished_run.rglob("*")} == before


@pytest.mark.promise(
    "commands", "`runner reproduce` trains again, and prints `equal` or what differs first"
)
@pytest.mark.slow
def test_different_seed_is_reported_as_a_difference(run, tmp_path):
    """As a process: checks the exit code and the directory that remains."""
    _change(run, "seed: 17", "seed: 18")
    completed = warm_runner.run("reproduce", "a", "--model_dir=b", cwd=tmp_path)
    out = completed.stdout
    assert completed.returncode == 4, completed.stderr
    assert "Traceback" not in completed.stderr
    assert (
        "  the newest checkpoint was made with a different config than config.yaml\n"
        in completed.stderr
    )
    assert out.startswith("differs: the weights at step 10, the first checkpoint that was comp")
    assert f"{_record(run, 30)['weights']}\n" in out
    assert f"{_record(tmp_path / 'b', 30)['weights']} in the new run\n" in out
    assert re.match(r"first differs in the record of step 5: \d\.\d+ → \d", _row(out, "loss"))
    assert _row(out, "new run") == "b"
    assert (tmp_path / "b/config.yaml").read_text().startswith("# Made by: runner reproduce a")


def test_reasons_for_inexact_reproduction_are_listed(run, reproduced):
    _change(run, "deterministic: true", "deterministic: false")
    for step in (20, 30):
        _set_threads(run, step, "77")
    attempts = json.loads((run / "run.json").read_text())
    attempts["attempts"][0]["argv"].append("--resume=override")
    (run / "run.json").write_text(json.dumps(attempts))
    code, out, err = reproduced(run)
    # Without determinism, the weights may be equal or not.
    assert out.startswith({0: "equal: ", 4: "differs: "}[code])
    for text in (
        "runtime.deterministic is false: bitwise-identical results are not guaranteed",
        "intra-op threads: 77 → ",
        "the run was resumed with --resume=override",
    ):
        assert text in out
        assert text in err[: err.index("importing tensorflow")]


@pytest.mark.slow
def test_intra_op_threads_setting_is_applied_to_the_rerun(run, tmp_path):
    """In a separate process, because threads cannot change once TensorFlow has started."""
    for step in (20, 30):
        _set_threads(run, step, "1")

    flags = ("--runtime.intra_op_threads=1", "--model_dir=b")
    completed = warm_runner.run("reproduce", "a", *flags, cwd=tmp_path)

    # The original run used all cores, which may change the last bits of the weights.
    assert completed.returncode in (0, 4), completed.stderr
    assert "intra-op threads" not in completed.stdout + completed.stderr
    assert _record(tmp_path / "b", 30)["numerics"]["intra-op threads"] == "1"
    assert "intra_op_threads: 1\n" in (tmp_path / "b/config.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        (["nowhere"], "not-a-run", "RUN"),
        (["empty"], "not-a-run", "RUN"),
        (["damaged"], "no-checkpoint", "RUN"),
        (["a", "--model_dir=a/b"], "bad-path", "--model_dir"),
        (["a", "--model_dir=full"], "already-exists", "--model_dir"),
        (["broken"], "bad-syntax", ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("no_tensorflow")
def test_invalid_arguments_are_rejected_before_importing_tensorflow(
    arguments, code, path, run, here, temporary
):
    (here / "empty").mkdir()
    (here / "full").mkdir()
    (here / "full/x").touch()
    for name in ("damaged", "broken"):
        shutil.copytree(run, here / name)
    for file in (here / "damaged/checkpoints").glob("*.index"):
        file.unlink()
    (here / "broken/config.yaml").write_text("task: [1\n")
    fails(["reproduce", *arguments], code, path)
    assert [*temporary.iterdir()] == []


@pytest.mark.usefixtures("no_tensorflow")
def test_missing_data_are_an_error_before_importing_tensorflow(run):
    _change(run, "source: digits", "source: mnist")
    _change(run, " data_dir: ''", " data_dir: nowhere")
    settings = [f"task.{section}.data_dir" for section in ("train_data", "validation_data")]

    problems = problems_of(error_of(["reproduce", str(run)]))

    check(problems, *(("missing-file", setting) for setting in settings))


def _sweep(folder: Path, *statuses: str) -> Path:
    """Writes the files of a sweep that `reproduce` reads, with two seeds for the first trial."""
    folder.mkdir()
    (folder / "sweep.yaml").touch()
    runs = [
        {"seed": 1, "directory": f"trials/{number}", "status": status}
        for number, status in enumerate(statuses)
    ]
    trials = [{"number": number, "runs": [run]} for number, run in enumerate(runs)]
    trials[0]["runs"] = [runs[0], {**runs[0], "seed": 2, "directory": "trials/0b"}]
    (folder / "sweep.json").write_text(json.dumps({"trials": trials}))
    return folder


@pytest.mark.usefixtures("no_tensorflow")
def test_finished_runs_of_a_sweep_are_repeated_each_in_a_process(here, reproduced, monkeypatch):
    sweep = _sweep(here / "s", "finished", "stopped", "diverged", "finished")
    equal = {"equal": True, "verdict": "equal: 3 checkpoints", "again": ""}
    answers = {
        "trials/0": (0, equal),
        "trials/0b": (4, {"equal": False, "verdict": "differs: at step 9", "again": "/tmp/x"}),
        "trials/1": (2, {"errors": [{"message": "the data changed\nrestore it"}]}),
        "trials/3": (137, None),
    }
    calls = []

    def run_child(arguments: list[str]) -> tuple[int, str]:
        calls.append(arguments)
        code, answer = answers[str(Path(arguments[1]).relative_to(here / "s"))]
        return code, json.dumps(answer) if answer else ""

    monkeypatch.setattr("orbit_runner.repeat.reproduce.run_child", run_child)
    code, out, err = reproduced("s", "--import=m", "--runtime.intra_op_threads=1")

    assert code == 4
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "differs: 3 of 4 runs",
        "trials/0 equal: 3 checkpoints",
        "trials/0b differs: at step 9 /tmp/x",
        "trials/1 not compared: the data changed",
        "trials/2 not compared: diverged",
        "trials/3 not compared: the process exited with code 137",
    ]
    assert "trials/0: equal: 3 checkpoints\n" in err
    assert calls[0][2:] == ["--json", "--quiet", "--import=m", "--runtime.intra_op_threads=1"]

    answers["trials/3"] = (0, equal)
    assert reproduced(sweep, "--trial=3", "--quiet")[0] == 0
    answers["trials/0"] = (143, None)
    assert reproduced(sweep, "--trial=0")[0] == 143


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        (["s", "--trial=7"], "unknown-name", "--trial"),
        (["s", "--trial=1"], "nothing-selected", "RUN"),
        (["s", "--model_dir=s/b"], "bad-path", "--model_dir"),
        (["begun"], "unreadable-file", "RUN"),
        (["other", "--trial=1"], "no-effect", "--trial"),
    ],
)
@pytest.mark.usefixtures("no_tensorflow")
def test_sweep_that_cannot_be_repeated_is_an_error(arguments, code, path, here):
    _sweep(here / "s", "finished", "failed")
    (_sweep(here / "begun", "finished") / "sweep.json").unlink()
    fails(["reproduce", *arguments], code, path)
