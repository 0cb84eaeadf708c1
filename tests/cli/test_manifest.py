"""`runner manifest` as a command: its flags, and mistakes that it reports."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.cli.command import Parser
from orbit_runner.cli.commands import manifest, run, sweep
from orbit_runner.cli.flags.config_flags import add_config_flags
from orbit_runner.cli.main import main
from tests.sweep.sweep_files import TEXT, write

DOCS = Path(__file__).resolve().parents[2] / "docs"
NEEDED = {
    "kubernetes": ["--image=x"],
    "slurm": [],
    "vertex": ["--image=x", "--model_dir=/gcs/b/r"],
}
MIRRORED = "--distribution_strategy=multi_worker_mirrored"
SERVED = "--distribution_strategy=parameter_server"
ON_GPU = TEXT.replace("overrides:\n", "overrides:\n  runtime: {num_gpus: 1}\n")
Rejection = Callable[..., str]


@pytest.fixture
def rejection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Rejection:
    """Runs the command, which must be rejected, and returns its error message."""
    monkeypatch.chdir(tmp_path)

    def run_it(*arguments: str) -> str:
        assert main(["manifest", *arguments]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert len(said.err.splitlines()) < 25
        return said.err

    return run_it


@pytest.mark.parametrize(
    ("place", "flags"),
    [*((place, ["--experiment=digits", MIRRORED, "--workers=2"]) for place in NEEDED),
     ("slurm", ["--sweep=s.yaml", "--workers=2", "--model_dir=runs/a"])],
)  # fmt: skip
def test_manifest_is_printed_without_importing_tensorflow(
    place: str, flags: list[str], tmp_path: Path, without_tensorflow: dict[str, str]
) -> None:
    write(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "orbit_runner", "manifest", place, *NEEDED[place], *flags],
        cwd=tmp_path, env=without_tensorflow, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert "# Made by: runner manifest" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([], ["usage: runner manifest PLACE", *(f"\n  {place} " for place in NEEDED)]),
        (["slurm", "--help"], ["usage: runner manifest slurm", " --workers ", " --ps ", " --mode "]),
        (["vertex", "--help"], ["usage: runner manifest vertex", " --evaluator ", " --image "]),
        (["slurm", "--sweep=s.yaml", "--help"], ["  --sweep ", "  --workers ", "  --jobs ", "  --seeds "]),
    ],
)  # fmt: skip
def test_help_lists_places_and_flags(
    arguments: list[str], shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        main(["manifest", *arguments])

    text = capsys.readouterr().out
    assert [name for name in shown if name not in text] == []


@pytest.mark.parametrize(
    ("parser", "passed", "not_passed"),
    [
        (run.COMMAND.parser(), manifest._RUN_FLAGS, {"pretrain_steps"}),
        (sweep.COMMAND.parser(), manifest._SWEEP_FLAGS,
         {"sweep_file", "more_steps", "exclude", "force", "dry_run"}),
    ],
)  # fmt: skip
def test_every_flag_of_the_command_is_passed_on_or_deliberately_omitted(
    parser: Parser, passed: tuple[str, ...], not_passed: set[str]
) -> None:
    config = Parser("run")
    add_config_flags(config)
    known = {"help", "model_dir", "progress", "progress_interval", "json", *passed, *not_passed}
    known |= {action.dest for action in config._actions} if parser.settings else set()

    # A new flag fails here until someone decides whether the processes get it.
    assert {action.dest for action in parser._actions} == known


def test_dotted_settings_and_gin_files_are_merged_into_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.gin").write_text("trainer.train_steps = 77\n")

    arguments = ["--experiment=digits", "--gin_file=own.gin", "--task.model.dropout_rate=0.25"]
    assert main(["manifest", "slurm", *arguments]) == 0

    text = capsys.readouterr().out
    assert "  train_steps: 77\n" in text
    assert "    dropout_rate: 0.25\n" in text
    assert "own.gin" not in text[text.index("srun") :]


def test_manifest_flags_override_equivalent_settings(capsys: pytest.CaptureFixture[str]) -> None:
    both = ["--workers=2", "--runtime.num_workers=4", "--gpus-per-worker=1", "--num_gpus=2"]
    assert main(["manifest", "slurm", "--experiment=digits", MIRRORED, *both]) == 0

    text = capsys.readouterr().out
    assert "#SBATCH --ntasks=2\n" in text
    assert "#SBATCH --gpus-per-task=1\n" in text
    assert "  num_workers: 2\n" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--workers=2", "--distribution_strategy=mirrored"],
            ["runtime.num_workers — --workers", "got 2 under `mirrored`, which runs in one"],
        ),
        (["--ps=1", MIRRORED, "--workers=2"], ["runtime.num_parameter_servers — --ps", "has no"]),
        (["--workers=two", MIRRORED], ["runtime.num_workers — --workers", "'two', expected"]),
        ([MIRRORED], ["runtime.num_workers — ", "is not set: use --workers=N"]),
        ([SERVED, "--ps=2"], ["runtime.num_workers — ", "is not set: use --workers=N"]),
        ([MIRRORED, "--workers=1"], ["runtime.num_workers — --workers", "got 1 under `multi"]),
        (["--evaluator"], ["runtime.num_evaluators — --evaluator", "--mode=continuous_eval"]),
        (
            ["--distribution_strategy=mirrored", "--num_gpus=-1"],
            ["runtime.num_gpus — --num_gpus", "requires the number of GPUs: 0 or more"],
        ),
        (
            ["--distribution_strategy=tpu", "--tpu=local"],
            ["runtime.distribution_strategy — --distribution_strategy", "TPUs are not supported"],
        ),
        (
            [MIRRORED, "--workers=2", "--runtime.worker_hosts=a:1,b:1"],
            ["runtime.worker_hosts — --runtime.worker_hosts", "the cluster assigns the hosts"],
        ),
        (
            [SERVED, "--workers=2", "--runtime.remote_cluster=worker=a:1;ps=b:1"],
            ["runtime.remote_cluster — --runtime.remote_cluster", "cluster assigns the servers"],
        ),
        ([MIRRORED, "--workers=2", "--runtime.cluster_source=tf_config"], ["allowed: auto, slurm"]),
        ([MIRRORED, "--workers=3"], ["got 64, which is not a multiple of 3 (3 replicas)"]),
        (
            [MIRRORED, "--workers=2", "--evaluator", "--trainer.early_stopping={patience: 3}"],
            ["trainer.early_stopping — --trainer.early_stopping", "do not receive its results"],
        ),
        (["--mode=trian"], ["--mode", "did you mean 'train'"]),
        (["--train_epochs=0"], ["trainer.train_steps", "set it, or trainer.train_epochs"]),
        (["--pretrain_steps=3"], ["--pretrain_steps\n    has no effect with --mode=train"]),
        (["--wrkers=2"], ["unknown flag --wrkers; did you mean '--workers'"]),
        (["--experiment=digts"], ["unknown experiment 'digts'; did you mean 'digits'"]),
        (["--image=x"], ["unknown flag --image"]),
        (["--name=My_Job"], ["--name\n    got 'My_Job', expected lowercase letters"]),
        (["--name=a", "--mode=z", "--num_gpus=-1", MIRRORED], ["3 problems"]),
        ([f"--name={'a' * 41}"], ["at most 40"]),
    ],
    ids=lambda value: " ".join(value)[:50] if "--" in value[0] else "",
)  # fmt: skip
def test_invalid_arguments_are_rejected_with_reasons(
    rejection: Rejection, arguments: list[str], said: list[str]
) -> None:
    found = rejection("slurm", "--experiment=digits", *arguments)

    assert [text for text in said if text not in found] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kubernets"], "unknown place 'kubernets'; did you mean 'kubernetes'?"),
        (["kubernetes"], "--image\n    is not set; expected a container image in which `runner`"),
        (["kubernetes", "--image=a b"], "--image\n    got 'a b'; expected a container image"),
        *(
            (["kubernetes", "--image=x", f"--model_dir={folder}"],
             f"--model_dir\n    got '{folder}'; expected /runs/…, a directory of the claim")
            for folder in ("/runs", "/runsx/a", "runs/a", "/runs/../etc", "/tmp/a")
        ),
        (["kubernetes", "--image=x", "--model_dir=gs://b/r"], "such as /gcs/BUCKET/…"),
        (["vertex", "--image=x"], "--model_dir\n    is not set; expected /gcs/BUCKET/…, a directory"),
        (["vertex", "--image=x", "--model_dir=gs://b/r"], "such as /gcs/BUCKET/…"),
        (["vertex", "--image=x", "--sweep=s.yaml"], "`vertex` does not have\nallowed: kubernetes, slurm"),
        (["vertex", "--image=x", "--model_dir=/gcs/b/r", "--runtime.cluster_source=slurm"], "allowed: auto, tf_config"),
    ],
)  # fmt: skip
def test_what_a_place_cannot_do_is_rejected(
    rejection: Rejection, arguments: list[str], said: str
) -> None:
    assert said in rejection(*arguments, "--experiment=digits")


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        ([], TEXT, "--workers\n    is not set; expected the number of processes, 1 to 8"),
        (["--workers=two"], TEXT, "argument --workers: got 'two', expected an integer"),
        (["--workers=0"], TEXT, "--workers\n    got 0, allowed: 1 to 8, because the sweep has 8 runs"),
        (["--workers=9", "--jobs=2", "--seeds=2"], TEXT, "1 to 8, because the sweep has 16 runs, 2 at a time"),
        (["--workers=2", "--jobs=0"], TEXT, "--jobs: got 0, allowed: 1 to 1000"),
        (["--workers=2", "--name=A"], TEXT, "--name\n    got 'A', expected lowercase letters"),
        (["--wrkers=2"], TEXT, "unknown flag --wrkers; did you mean '--workers'?"),
        (["--experiment=digits"], TEXT, "unknown flag --experiment"),
        (["--more_steps=3"], TEXT, "unknown flag --more_steps"),
        (["--trainer.train_steps=3"], TEXT, "does not accept settings\nset it under `overrides`"),
        (["--workers=2", "--model_dir=gs://b/x"], TEXT, "--model_dir: got 'gs://b/x'"),
        (["--workers=2"], TEXT.replace("digits_mlp", "digits_mpl"), "did you mean 'digits_mlp'?"),
        (
            ["--workers=2"],
            TEXT.replace("overrides:\n", f"overrides:\n  runtime: {{{MIRRORED[2:].replace('=', ': ')}}}\n"),
            "got 'multi_worker_mirrored', but each trial is one process\n    allowed: off, one_device, mirrored",
        ),
        (["--workers=2"], ON_GPU.replace("num_gpus: 1", "num_gpus: -1"), "runtime.num_gpus — s.yaml:3"),
        (["--workers=2", "--devices_per_job=1"], TEXT, "got 1, allowed: 0 (runtime.num_gpus: 0)"),
        (["--workers=2", "--jobs=2"], ON_GPU, "--devices_per_job\n    got 0, allowed: 1 (runtime.num_gpus: 1)"),
        (["--workers=2", "--devices_per_job=2"], ON_GPU, "got 2, allowed: 0 or 1 (runtime.num_gpus: 1)"),
    ],
)  # fmt: skip
def test_mistakes_in_sweeps_are_rejected(
    rejection: Rejection, tmp_path: Path, arguments: list[str], text: str, said: str
) -> None:
    write(tmp_path, text)

    assert said in rejection("slurm", "--sweep=s.yaml", *arguments)


def _shown(page: str) -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.M | re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    commands = [shlex.split(re.split(r" [|>] ", line)[0]) for line in lines]
    return [command[1:] for command in commands if command[:2] == ["runner", "manifest"]]


@pytest.mark.parametrize(
    "arguments", [*_shown("clusters.md"), *_shown("sweeps.md")], ids=lambda words: " ".join(words[1:3])
)  # fmt: skip
def test_commands_in_the_docs_work(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)

    assert main(arguments) == 0, capsys.readouterr().err


def test_docs_show_a_command_for_every_place() -> None:
    assert [arguments[1] for arguments in _shown("clusters.md")] == [*NEEDED]
    assert [arguments[1] for arguments in _shown("sweeps.md")] == ["slurm", "kubernetes"]
