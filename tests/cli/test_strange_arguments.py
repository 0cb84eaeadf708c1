"""Malformed arguments and files: exactly one problem, exit code 2, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.problems import fails

FILES = {
    "exits.py": "import sys\nsys.exit(3)\n",
    "raises.py": "raise RuntimeError('x' * 4000)\n",
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
    "run/config.yaml": "base: digits\nnot: a config\n",
}
RUN = ["run", "--experiment=digits"]
SHOW = ["show", "--experiment=digits"]
CASES = [
    ([*SHOW, "--import=exits"], "import-failed", "imports"),
    (["list", "--import=exits"], "import-failed", "imports"),
    ([*SHOW, "--import=raises"], "import-failed", "imports"),
    ([*SHOW, "--config_file=text.yaml"], "wrong-type", "trainer"),
    ([*SHOW, "--config_file=list.yaml"], "wrong-type", "trainer"),
    ([*SHOW, "--config_file=imports.yaml"], "wrong-type", "imports"),
    ([*SHOW, "--config_file=empty_import.yaml"], "import-failed", "imports"),
    ([*SHOW, "--config_file=relative_import.yaml"], "import-failed", "imports"),
    (["validate", "name.yaml"], "wrong-type", "name"),
    ([*SHOW, "--config_file=nan.json"], "wrong-type", "trainer.train_steps"),
    ([*SHOW, "--config_file=comment.json"], "bad-syntax", ""),
    ([*SHOW, "--gin_file=self.gin"], "bad-reference", ""),
    ([*SHOW, "--gin_file=lost.gin"], "missing-file", ""),
    ([*SHOW, "--gin_file=endless.gin"], "bad-syntax", ""),
    ([*SHOW, "--gin_file=below.gin"], "wrong-type", "trainer.train_steps"),
    ([*SHOW, "--gin_file=section.gin"], "wrong-type", "trainer"),
    ([*SHOW, "--gin_file=macro.gin"], "bad-syntax", "trainer.train_steps"),
    ([*SHOW, "--gin_file=code.gin"], "bad-syntax", ""),
    (["predict", "a" * 300, "x"], "bad-path", ""),
    (["export", "a" * 300], "bad-path", ""),
    (["runs", "a" * 300], "bad-path", ""),
    (["show", "--experiment="], "not-set", "--experiment"),
    (["show", "--experiment=."], "unknown-name", "--experiment"),
    (["show", "--experiment=plain.txt"], "unknown-name", "--experiment"),
    (["show", "--experiment=run"], "unknown-setting", "not"),
    (["show", "--experiment=run", "--diff=digits"], "unknown-setting", "not"),
    (["reproduce", "run"], "unknown-setting", "not"),
    (["verify", "plain.txt"], "no-checkpoint", "RUN"),
    ([*RUN, "--trainer.=5"], "unknown-flag", ""),
    ([*RUN, "--trainer.train_steps.x=5"], "wrong-type", "trainer.train_steps"),
    ([*RUN, "--task.model=5"], "wrong-type", "task.model"),
    ([*RUN, "--params_override==5"], "bad-syntax", ""),
    ([*RUN, "--params_override=trainer..train_steps=5"], "bad-syntax", ""),
    ([*RUN, "--params_override={"], "bad-syntax", ""),
    ([*RUN, "--gin_param=a"], "bad-syntax", ""),
    ([*RUN, "--num_gpus=1.5"], "wrong-type", "runtime.num_gpus"),
    ([*RUN, "--mode="], "not-allowed", "--mode"),
    ([*RUN, "--resume=maybe"], "wrong-usage", ""),
    ([*RUN, "--model_dir=plain.txt"], "bad-path", "--model_dir"),
    ([*RUN, "--model_dir=plain.txt/below"], "not-writable", "--model_dir"),
    ([*RUN, "--model_dir=" + "x" * 300], "not-writable", "--model_dir"),
    (["run", "digits"], "unknown-flag", ""),
    ([""], "unknown-command", ""),
    (["-"], "unknown-flag", ""),
    (["--"], "unknown-flag", ""),
    (["data", "get", "mnist", "--from="], "not-set", "--from"),
    (["data", "get", "mnist", "--dir="], "bad-path", "--dir"),
    (["data", "get", "nope"], "unknown-name", ""),
    (["data", "foo"], "unknown-command", ""),
    (["launch"], "wrong-usage", ""),
    (["server", "--role=worker", "--cluster=worker=a:b"], "bad-cluster", "--cluster"),
    (["--version", "extra"], "unknown-flag", ""),
    (["report", "run", "--html=run"], "bad-path", "--html"),
    (["report", "run", "--html=" + "x" * 300], "not-writable", ""),
    (["report", "run", "--html=plain.txt/a.html"], "bad-path", "--html"),
    (["inspect", "digits", "--images=."], "bad-path", "--images"),
    (["inspect", "digits", "--html="], "bad-path", "--html"),
    (["batch", "digits", "--step=1", "--images="], "bad-path", "--images"),
    (["replay", "run", "--step=1", "--verify", "--no_verify"], "wrong-usage", ""),
    (["export", "run", "--to=plain.txt/a"], "bad-path", "--to"),
    (["runs", ".", "--json", "--csv"], "wrong-usage", ""),
    (["clean", "run", "--keep_last=x"], "wrong-usage", ""),
    (["sweep", "plain.txt", "--jobs=1.5"], "wrong-usage", ""),
    (["batch", "digits", "--step=" + "9" * 25], "wrong-usage", ""),
    (["replay", "run", "--step=" + "9" * 5000], "wrong-usage", ""),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("arguments", "code", "path"), CASES)
def test_malformed_argument_is_rejected_with_one_message(
    folder: Path, arguments: list[str], code: str, path: str
) -> None:
    before = {file.name for file in folder.iterdir()} | {"__pycache__"}

    error = fails(arguments, code, path)

    assert len(str(error)) < 4000
    assert {file.name for file in folder.iterdir()} <= before
