"""`runner profile`: of runs, of experiments, and its errors."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.profiling.calls import read_calls
from orbit_runner.profiling.trace_files import TraceDescription, newest_trace
from orbit_runner.profiling.xspace import read_xspace
from tests.support.problems import fails
from tests.support.xspaces import Plane, fetch, new_xspace, steps, write_trace

QUIET = "--quiet"


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """A run directory with a trace of two steps of 5 ms, a fifth of which waits for input."""
    xspace = new_xspace()
    Plane(xspace, "/host:CPU").line("python", steps(2, 10, 20)).line(
        "tf_Compute/1",
        *fetch(10, 12),
        ("net/dense/MatMul:MatMul", 12, 15),
        ("gradient_tape/net/dense/MatMul/MatMul:MatMul", 15, 19),
        ("SGD/update:ResourceApplyGradientDescent", 19, 20),
    )
    description = TraceDescription("small", "net", ("dense",), ("SGD",), cores=4, cpu_seconds=0.01)
    write_trace(xspace, tmp_path / "run", description)
    return tmp_path / "run"


def test_a_run_is_shown_as_text(traced: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(traced)]) == 0

    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    assert lines[0] == (
        "A step takes 5 ms; 1 ms of it (20.0%) wait for input: the input limits training."
    )
    assert "ops by type: 4 ms per step, summed over threads; 2 steps; the 4 cores are 25% busy" in (
        lines
    )
    assert re.search(r"^  MatMul +3\.500 +87\.5% +1$", shown.out, re.M)
    assert re.search(r"^  dense +1\.500 +2\.000 +87\.5%$", shown.out, re.M)
    assert re.search(r"^  optimizer +0\.500 +0\.000 +12\.5%$", shown.out, re.M)


@pytest.mark.usefixtures("no_tensorflow")
def test_a_run_is_read_without_tensorflow(traced: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(traced), "--json", "--top=1"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 2
    assert found["step_seconds"] == pytest.approx(5e-3)
    assert found["wait_share"] == pytest.approx(0.2)
    assert [row["part"] for row in found["parts"]] == ["dense", "optimizer"]


def test_an_experiment_is_profiled_without_leaving_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    given = ["digits", "--steps=7", "--task.model.filters=[4, 8]", "--keep=kept", QUIET]

    assert main(["profile", *given]) == 0

    text = capsys.readouterr().out
    assert re.match(r"A step takes \S+ ms; \S+ ms of it \(\S+%\) wait for input: the input ", text)
    assert "; 7 steps; " in text
    assert re.search(r"^  conv2 +\d+\.\d+ +\d+\.\d+ +\d+\.\d%$", text, re.M)
    assert [*temporary.glob("profile-*")] == []
    assert [path.name for path in tmp_path.iterdir() if path != temporary] == ["kept"]
    kept = newest_trace(tmp_path / "kept")
    assert kept is not None
    assert kept.directory.parent == tmp_path / "kept" / "plugins" / "profile"
    assert main(["profile", "kept"]) == 0
    assert capsys.readouterr().out == text


def test_an_experiment_with_evaluations_and_checkpoints_only_trains(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(
        "base: digits_mlp\n"
        "trainer: {validation_interval: 1, checkpoint_interval: 2, summary_interval: 3,"
        " train_steps: 4, steps_per_loop: 2, early_stopping: {patience: 1},"
        " best_checkpoint_export_subdir: best, best_checkpoint_eval_metric: accuracy,"
        " export_subdir: export, watch_interval: 3}\n"
        "callbacks: [no_such_module.Class]\n"
    )
    assert main(["profile", "a.yaml", "--steps=5", "--json", "--keep=kept", QUIET]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["steps"], found["trace"]) == (5, "kept")
    kept = newest_trace(tmp_path / "kept")
    assert kept is not None
    # Nothing interrupted the loop.
    assert len(read_calls(read_xspace(kept.hosts[0])).windows) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        (["digits", "--experiment=digits_mlp"], "conflict", "--experiment"),
        (["digit"], "unknown-name", "--experiment"),
        (["digits", "--steps=0"], "wrong-usage", ""),
        (["digits", "--top=x"], "wrong-usage", ""),
        (["run", "--steps=3"], "no-effect", "--steps"),
        (["run", "--keep=a"], "no-effect", "--keep"),
        (["run", "--train_steps=3"], "no-effect", ""),
        (["run", "--runtime.seed=3"], "no-effect", ""),
        (["empty"], "missing-file", "RUN"),
        (["untraced"], "missing-file", "RUN"),
        (
            ["digits", "--config_file=configs/runtime/parameter_server.yaml"],
            "not-supported",
            "runtime.distribution_strategy",
        ),
    ],
)
def test_mistakes_are_reported(
    arguments: list[str],
    code: str,
    path: str,
    traced: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(traced.parent)
    Path("empty").mkdir()
    Path("untraced").mkdir()
    Path("untraced/config.yaml").write_text("")

    fails(["profile", *arguments], code, path)


def test_report_has_the_profile_of_a_run(
    traced: Path, cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (traced / "config.yaml").write_text("name: small\n")

    assert cli("report", str(traced)).returncode == 0

    page = (traced / "report.html").read_text(encoding="utf-8")
    _, _, section = page.partition("<h2>Profile</h2>")
    section = section.partition("</section>")[0]
    assert "(20.0%) wait for input: the input limits training." in section
    assert "<li>if the dataset fits in memory, try task.train_data.on_<wbr>" not in section
    assert "task.train_data.on_device=true" in section
    assert re.search(
        r">dense</th><td class=number>1\.500</td><td class=number>2\.000</td>", section
    )


def test_report_of_a_run_without_a_trace_has_no_section(
    tmp_path: Path, cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "config.yaml").write_text("name: small\n")

    assert cli("report", str(tmp_path)).returncode == 0

    assert "Profile" not in (tmp_path / "report.html").read_text(encoding="utf-8")
