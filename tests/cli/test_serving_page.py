"""The program and the signature in docs/serving.md are run exactly as printed there."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.cli.main import main
from orbit_runner.datasets.scikit_learn import load_digits
from tests.support import warm_runner
from tests.support.exported import ask_elsewhere
from tests.support.problems import output_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "serving.md").read_text(encoding="utf-8")


def _block(before: str) -> str:
    (block,) = re.findall(rf"{before}\n\n```python\n(.*?)^```", PAGE, re.M | re.S)
    return str(block)


@pytest.mark.slow
def test_docs_program_agrees_with_the_predict_command(here):
    # TensorFlow fixes the thread settings of the test process at its first op.
    run = ["run", "--experiment=digits_mlp", "--runtime.intra_op_threads=0", "--train_steps=60"]
    run += ["--model_dir=a"]
    assert main([*run, "--trainer.export_subdir=export"]) == 0
    (here / "label.py").write_text(_block("`label.py`:"))
    names = [f"{index}.png" for index in range(5)]
    for name, image in zip(names, load_digits(split="test").arrays["image"], strict=False):
        Path(name).write_bytes(tf.io.encode_png(image).numpy())
    command = [sys.executable, "-I", "label.py", "a/export/60", *names]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    predicted = [
        line.split() for line in output_of(["predict", "a", "--top_k=1", *names]).splitlines()
    ]
    printed = [line.split() for line in completed.stdout.splitlines()]
    assert [line[:2] for line in printed] == [line[:2] for line in predicted]
    np.testing.assert_allclose(
        [float(line[2]) for line in printed], [float(line[2]) for line in predicted], atol=1e-4
    )


@pytest.mark.slow
def test_custom_task_from_the_docs_is_exported(tmp_path):
    own = (DOCS / "own_task.md").read_text(encoding="utf-8")
    files = re.findall(r"^`([\w/]+\.(?:py|yaml))`:\n\n```\w+\n(.*?)^```", own, re.M | re.S)
    for name, content in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    with (tmp_path / "moons/task.py").open("a") as task:
        task.write("\n" + _block("this is enough to export it:"))
        task.write("\n\nfrom orbit_runner import Serving\n")
    flags = ["--experiment=moons.yaml", "--train_steps=3", "--trainer.export_subdir=export"]
    completed = warm_runner.run(*flags, "--model_dir=a", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    points = np.zeros([3, 2], np.float32)
    (answer,) = ask_elsewhere([(tmp_path / "a/export/3", "moons", {"point": points})], tmp_path)
    assert answer["moon"].shape == (3,)
