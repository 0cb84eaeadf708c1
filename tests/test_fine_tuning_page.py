"""The documentation page on fine-tuning: its files and commands are run exactly as printed."""

import re
import shlex
import subprocess
import sys

import pytest
import tf_keras

from orbit_runner.cli.main import main
from tests.support.docs import files_of, text_of, write_files
from tests.support.images import jpeg
from tests.support.problems import output_of
from tests.support.run_directories import last_attempt

PAGE = text_of("fine_tuning.md")


@pytest.mark.slow
def test_documented_commands_fine_tune_on_more_classes(here, capsys):
    write_files("fine_tuning.md", here)
    _, _, _, script, *commands = re.findall(r"^\$ (.*)$", PAGE, re.M)
    subprocess.run([sys.executable, *shlex.split(script)[1:]], check=True, cwd=here)
    for command in commands:
        name, *arguments = shlex.split(command)
        assert name == "runner"
        assert main(arguments) == 0

    (line,) = re.findall(r"^```text\n(.*?)^```", PAGE, re.M | re.S)
    assert line in capsys.readouterr().err
    assert last_attempt(here / "runs/ten")["metrics"]["accuracy"] > 0.9


@pytest.mark.slow
def test_documented_config_fine_tunes_published_weights(here, capsys, monkeypatch):
    write_files("fine_tuning.md", here)
    assert files_of("fine_tuning.md")["pets.yaml"].count("\n") == 10
    for number in range(80):
        split = "val" if number % 5 == 4 else "train"
        path = here / "pets" / split / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number))
    file = "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224_no_top.h5"
    weights = here / "home/.keras/models" / file
    weights.parent.mkdir(parents=True)
    network = tf_keras.applications.MobileNetV2(include_top=False, weights=None)
    network.save_weights(weights)
    monkeypatch.setenv("HOME", str(here / "home"))
    train, predict, train_all, *_ = (
        shlex.split(text)[1:] for text in re.findall(r"^\$ (.*)$", PAGE, re.M)
    )

    # Smaller than on the page: 500 steps of 224 × 224 pixels take minutes.
    small = ["--trainer.train_steps=2", "--task.model.input_size=[64, 64, 3]"]
    assert main([*train, *small]) == 0
    notes = capsys.readouterr().err
    assert "these keep their initial values:\n  logits/kernel" in notes
    assert re.search(r"fine-tuning: (\d+) of \d+ layers are frozen, \1 are loaded from", notes)
    weights.unlink()
    assert len(output_of(predict).splitlines()) == 16
    assert main([*train_all, *small]) == 0
    notes = capsys.readouterr().err
    assert re.search(r"fine-tuning: 0 of (\d+) layers are frozen, \1 are loaded from", notes)
