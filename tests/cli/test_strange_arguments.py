"""Malformed arguments and files: exactly one message, exit code 2, no traceback."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

from pathlib import Path

import pytest

from orbit_runner.cli.main import main

FILES = {
    "exits.py": "import sys\nsys.exit(3)\n",
    "raises.py": "raise RuntimeError('x' * 100000)\n",
    "text.yaml": "trainer: 5\n",
    "list.yaml": "trainer: [1]\n",
    "nulls.yaml": "task: {model: null, train_data: null}\ntrainer:\nruntime:\n",
    "imports.yaml": "imports: os\n",
    "empty_import.yaml": "imports: ['']\n",
    "relative_import.yaml": "imports: ['..x']\n",
    "name.yaml": "name: [a]\n",
    "nan.json": '{"trainer": {"train_steps": NaN}}',
    "comment.json": '// no\n{"trainer": {}}',
    "self.gin": "include 'self.gin'\n",
    "lost.gin": "include 'nowhere.gin'\n",
    "endless.gin": "include '/dev/zero'\n",
    "below.gin": "trainer.train_steps = 5\ntrainer.train_steps.x = 6\n",
    "section.gin": "trainer = 5\n",
    "macro.gin": "A = %A\ntrainer.train_steps = %A\n",
    "code.gin": "trainer.train_steps = __import__('os').getpid()\n",
    "plain.txt": "a\n",
    "run/config.yaml": "not: a config\n",
}
RUN = ["run", "--experiment=digits"]
SHOW = ["show", "--experiment=digits"]
CASES = [
    ([*SHOW, "--import=exits"], "cannot import 'exits': SystemExit: 3"),
    (["list", "--import=exits"], "cannot import 'exits': SystemExit: 3"),
    ([*SHOW, "--import=raises"], "cannot import 'raises': RuntimeError: xxx"),
    ([*SHOW, "--config_file=text.yaml"], "trainer — text.yaml:1\n    got 5, expected a section"),
    ([*SHOW, "--config_file=list.yaml"], "trainer — list.yaml:1\n    got [1], expected a section"),
    ([*SHOW, "--config_file=imports.yaml"], "imports — imports.yaml:1\n    got 'os', expected a list"),
    ([*SHOW, "--config_file=empty_import.yaml"], "cannot import ''"),
    ([*SHOW, "--config_file=relative_import.yaml"], "cannot import '..x'"),
    (["validate", "name.yaml"], "name — name.yaml:1\n    got ['a'], expected a string"),
    ([*SHOW, "--config_file=nan.json"], "got 'NaN', expected an integer"),
    ([*SHOW, "--config_file=comment.json"], "comment.json:2\n    invalid YAML"),
    ([*SHOW, "--gin_file=self.gin"], "'self.gin' includes itself"),
    ([*SHOW, "--gin_file=lost.gin"], "unknown file 'nowhere.gin'"),
    ([*SHOW, "--gin_file=endless.gin"], "is larger than 1 MiB"),
    ([*SHOW, "--gin_file=below.gin"], "below.gin:2\n    got a section, expected an integer"),
    ([*SHOW, "--gin_file=section.gin"], "section.gin:1\n    got 5, expected a section"),
    ([*SHOW, "--gin_file=macro.gin"], "macro %A refers to itself"),
    ([*SHOW, "--gin_file=code.gin"], "got __import__, expected a value"),
    (["predict", "a" * 300, "x"], "… (312 characters): the name is too long"),
    (["export", "a" * 300], "the name is too long"),
    (["runs", "a" * 300], "the name is too long"),
    (["show", "--experiment="], "is empty; expected an experiment, a file or a run directory"),
    (["show", "--experiment=."], ". is a directory without config.yaml"),
    (["show", "--experiment=plain.txt"], "unknown experiment 'plain.txt'"),
    (["show", "--experiment=run"], "not — run/config.yaml:1\n    unknown setting 'not'"),
    (["diff", "run", "digits"], "unknown setting 'not'"),
    (["reproduce", "run"], "unknown setting 'not'"),
    (["verify", "plain.txt"], "plain.txt contains no checkpoint"),
    ([*RUN, "--trainer.=5"], "--trainer.: expected --trainer.NAME=VALUE"),
    ([*RUN, "--trainer.train_steps.x=5"], "got a section, expected an integer"),
    ([*RUN, "--task.model=5"], "task.model — --task.model\n    got 5, expected a section"),
    ([*RUN, "--params_override==5"], "contains no `name: value` pairs"),
    ([*RUN, "--params_override=trainer..train_steps=5"], "expected path.to.setting=value"),
    ([*RUN, "--params_override={"], "invalid YAML"),
    ([*RUN, "--gin_param=a"], "invalid gin"),
    ([*RUN, "--num_gpus=1.5"], "got 1.5, expected an integer"),
    ([*RUN, "--mode="], "unknown mode ''"),
    ([*RUN, "--resume=maybe"], "invalid choice: 'maybe'"),
    ([*RUN, "--model_dir=plain.txt"], "plain.txt is a file"),
    ([*RUN, "--model_dir=plain.txt/below"], "cannot write to"),
    ([*RUN, "--model_dir=" + "x" * 300], "--model_dir"),
    (["run", "digits"], "unknown argument digits"),
    ([""], "unknown command ''"),
    (["-"], "unknown flag -"),
    (["--"], "unknown flag --"),
    (["data", "get", "mnist", "--from="], "--from: is empty"),
    (["data", "get", "mnist", "--dir="], "--dir: is empty"),
    (["data", "get", "nope"], "unknown dataset 'nope'"),
    (["manifest", "foo"], "unknown place 'foo'"),
    (["manifest", "slurm", "--experiment=digits", "--name=-1"], "got '-1', expected lowercase letters"),
    (["launch"], "come after `--`"),
    (["launch", "--"], "no task is set"),
    (["server", "--role=worker", "--cluster=worker=a:b"], "got port 'b'"),
    (["env", "extra"], "unknown argument extra"),
    (["report", "run", "--html=run"], "--html: run is a directory, expected a file"),
    (["report", "run", "--html=" + "x" * 300], "--html=FILE"),
    (["report", "run", "--html=plain.txt/a.html"], "plain.txt is not a directory"),
    (["inspect", "digits", "--images=."], "--images: . is a directory, expected a file"),
    (["inspect", "digits", "--html="], "--html: is empty"),
    (["batch", "digits", "--step=1", "--images="], "--images: is empty"),
    (["replay", "run", "--step=1", "--layer=a", "--out=run"], "--out: run is a directory"),
    (["replay", "run", "--step=1", "--verify", "--no_verify"], "not allowed with argument --verify"),
    (["profile", "digits", "--keep=plain.txt"], "--keep: plain.txt is a file, expected a directory"),
    (["export", "run", "--to=plain.txt/a"], "plain.txt is not a directory"),
    (["runs", ".", "--json", "--csv"], "--csv: not allowed with argument --json"),
    (["compare", "run", "--json", "--csv"], "--csv: not allowed with argument --json"),
    (["clean", "run", "--keep_last=x"], "--keep_last: got 'x', expected an integer"),
    (["sweep", "plain.txt", "--more_steps=1.5"], "--more_steps: got '1.5', expected an integer"),
    (["batch", "digits", "--step=" + "9" * 25], "allowed: N or N:M"),
    (["replay", "run", "--step=" + "9" * 5000], "allowed: a step from 1 to"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("arguments", "expected"), CASES)
def test_malformed_argument_is_rejected_with_one_message(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    before = {path.name for path in folder.iterdir()} | {"__pycache__"}

    assert main(arguments) == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("runner: ")
    assert expected in said.err
    assert len(said.err) < 4000
    assert {path.name for path in folder.iterdir()} <= before
