"""The documentation page on fine-tuning: its files and commands are run exactly as printed."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tf_keras

from orbit_runner.cli.main import main
from tests.support.images import jpeg
from tests.support.problems import output_of
from tests.support.run_directories import last_attempt

PAGE = (Path(__file__).parents[1] / "docs" / "fine_tuning.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_documented_commands_fine_tune_on_more_classes(here, capsys):
    files = dict(re.findall(r"^`(\w+\.\w+)`:\n\n```\w+\n(.*?)^```", PAGE, re.M | re.S))
    assert sorted(files) == ["five.yaml", "pets.yaml", "pets_2.yaml", "save_digits.py", "ten.yaml"]
    for name, content in files.items():
        (here / name).write_text(content, encoding="utf-8")
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
    configs = dict(re.findall(r"^`(pets\w*\.yaml)`:\n\n```yaml\n(.*?)^```", PAGE, re.M | re.S))
    assert configs["pets.yaml"].count("\n") == 10
    for name, config in configs.items():
        (here / name).write_text(config, encoding="utf-8")
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
