"""`runner manifest --sweep` as a command: its help, and mistakes that it reports."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.sweep.directory import SweepDirectory, write_file
from orbit_runner.sweep.file.check import resolve_base
from tests.sweep.sweep_files import TEXT, parsed, write

DOCS = Path(__file__).resolve().parents[3] / "docs/sweeps.md"
Refusal = Callable[..., str]
NEEDED = {"slurm": [], "kubernetes": ["--image=x", "--volume_claim=runs"], "vertex": ["--image=x"]}
ON_GPU = TEXT.replace("overrides:\n", "overrides:\n  runtime: {num_gpus: 1}\n")


@pytest.fixture
def refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refusal:
    """Runs the command, which has to fail, and returns its error message."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, place: str = "slurm", text: str = TEXT) -> str:
        write(tmp_path, text)
        assert main(["manifest", place, "--sweep=s.yaml", *NEEDED[place], *arguments]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert len(said.err.splitlines()) < 25
        return said.err

    return run


def test_manifest_of_a_sweep_is_printed_without_importing_tensorflow(
    tmp_path: Path, without_tensorflow: dict[str, str]
) -> None:
    write(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "orbit_runner", "manifest", "slurm", "--sweep=s.yaml",
         "--workers=2", "--model_dir=runs/a"],
        cwd=tmp_path, env=without_tensorflow, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert "#SBATCH --array=0-1\n" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


@pytest.mark.parametrize("place", ["slurm", "kubernetes"])
def test_help_of_a_sweep_lists_its_flags(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["manifest", place, "--sweep=s.yaml", "--help"])

    text = capsys.readouterr().out
    flags = ("--sweep", "--workers", "--gpus_per_worker", "--time", "--jobs", "--seeds", "--cpus")
    assert [flag for flag in flags if f"  {flag} " not in text] == []
    assert "--experiment" not in text


@pytest.mark.parametrize("place", ["slurm", "kubernetes"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--workers\n    is not set; expected the number of processes"),
        (["--workers=two"], "--workers\n    got 'two', expected an integer of at least 1"),
        (["--workers=0"], "--workers\n    got '0', expected an integer of at least 1"),
        (["--workers=9"], "--workers\n    got 9, allowed: at most 8, because the sweep has 8 runs"),
        (["--workers=9", "--jobs=2", "--seeds=2"], "at most 8, because the sweep has 16 runs, 2 a"),
        (["--workers=2", "--jobs=0"], "--jobs: got 0, allowed: 1 to 1000"),
        (["--workers=2", "--max_restarts=x"], "--max_restarts\n    got 'x', expected an integer"),
        (["--workers=2", "--time=1h"], "--time\n    got '1h', expected minutes"),
        (["--workers=2", "--name=A"], "--name\n    got 'A', expected lowercase letters"),
        (["--wrkers=2"], "unknown flag --wrkers; did you mean '--workers'?"),
        (["--experiment=digits"], "--experiment\n    set `experiment` in the sweep file"),
        (["--train_steps=3"], "--train_steps\n    set it under `overrides` in the sweep file"),
        (["--seed=3"], "--seed\n    use --seeds, or set `runtime.seed`"),
        (["--num-gpus=1"], "--num_gpus\n    use --gpus_per_worker"),
        (["--ps=1"], "--ps\n    each trial is one process; use --workers"),
        (["--mode=train"], "--mode\n    trials are trained and evaluated; remove it"),
        (["--more-steps=3"], "--more_steps\n    changes the sweep once: run `runner sweep`"),
        (["--resume=override"], "--resume\n    has no effect on a sweep; remove it"),
        (["--trainer.train_steps=3"], "does not accept settings\nset it under `overrides`"),
        (["--workers=2", "--model_dir=gs://b/x"], "--model_dir: got 'gs://b/x'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_in_flags_are_refused(
    refusal: Refusal, place: str, arguments: list[str], said: str
) -> None:
    assert said in refusal(*arguments, place=place)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("digits_mlp", "digits_mpl", "unknown experiment 'digits_mpl'; did you mean 'digits_mlp'?"),
        ("task.model.dropout_rate", "task.model.drop_rate", "s.yaml:7"),
        ("[0.0, 0.3]", "[]", "s.yaml:7"),
        ("mode: max", "mode: most", "objective.mode — s.yaml:8"),
        ("rungs: [20, 40]", "rungs: [30]", "got 30, but trials are not evaluated at this"),
        (
            "overrides:\n",
            "overrides:\n  runtime: {distribution_strategy: multi_worker_mirrored}\n",
            "got 'multi_worker_mirrored', but each trial is one process\n"
            "    allowed: off, one_device, mirrored",
        ),
        (
            "overrides:\n",
            "overrides:\n  runtime: {distribution_strategy: mirrored, num_gpus: -1}\n",
            "runtime.num_gpus — s.yaml:3",
        ),
    ],
)
def test_mistakes_in_the_sweep_file_are_refused(
    refusal: Refusal, before: str, after: str, said: str
) -> None:
    assert said in refusal("--workers=2", text=TEXT.replace(before, after))


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (TEXT, ["--gpus_per_worker=1"], "got 1, but a trial with runtime.num_gpus: 0 use 0"),
        (TEXT, ["--gpus_per_worker=x"], "got 'x', expected an integer"),
        (TEXT, ["--devices_per_job=1"], "got 1, allowed: 0 (runtime.num_gpus: 0)"),
        (ON_GPU, ["--jobs=2"], "--devices_per_job\n    got 0, allowed: 1 (runtime.num_gpus: 1)"),
        (ON_GPU, ["--devices_per_job=2"], "got 2, allowed: 0 or 1 (runtime.num_gpus: 1)"),
        (
            ON_GPU,
            ["--jobs=3", "--devices_per_job=1", "--gpus_per_worker=2"],
            "--gpus_per_worker\n    got 2, but 3 trials with runtime.num_gpus: 1 use 3",
        ),
    ],
)
def test_gpus_that_do_not_fit_are_refused(
    refusal: Refusal, text: str, arguments: list[str], said: str
) -> None:
    assert said in refusal("--workers=2", *arguments, text=text)


@pytest.mark.parametrize(
    ("place", "arguments", "said"),
    [
        ("vertex", [], "which `vertex` does not have\nallowed: kubernetes, slurm"),
        ("kubernetes", ["--api=tfjob"], "--api\n    got 'tfjob', but a sweep is an indexed Job"),
        ("kubernetes", ["--model_dir=/tmp/a"], "expected a directory below /runs"),
        ("slurm", ["--nodes=2"], "--nodes\n    got 2, allowed: 1, because an array element is"),
    ],
)
def test_what_a_place_cannot_do_is_refused(
    refusal: Refusal, place: str, arguments: list[str], said: str
) -> None:
    assert said in refusal("--workers=2", *arguments, place=place)


def test_directory_of_another_sweep_is_refused(refusal: Refusal, tmp_path: Path) -> None:
    other = parsed(TEXT.replace("seed: 1", "seed: 2"))
    (tmp_path / "runs").mkdir()
    write_file(SweepDirectory(tmp_path / "runs"), other, resolve_base(other))

    assert "runs contains another sweep:\n  search.seed: 2 → 1" in refusal(
        "--workers=2", "--model_dir=runs"
    )


def _shown() -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```", DOCS.read_text(encoding="utf-8"), re.M | re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line.partition(" | ")[0]) for line in lines]
    return [command[1:] for command in commands if command[:2] == ["runner", "manifest"]]


@pytest.mark.parametrize("arguments", _shown(), ids=lambda arguments: arguments[1])
def test_commands_in_the_docs_work(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)

    assert main(arguments) == 0, capsys.readouterr().err
    assert "type: random, trials: 32" in capsys.readouterr().out


def test_docs_show_a_command_for_both_places() -> None:
    assert [arguments[1] for arguments in _shown()] == ["slurm", "kubernetes"]


def test_sweep_in_a_file_of_flags_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    (tmp_path / "flags").write_text("--sweep=s.yaml\n")

    assert main(["manifest", "slurm", "--flagfile=flags"]) == 2
    assert "--sweep: write --sweep=FILE on the command line" in capsys.readouterr().err
