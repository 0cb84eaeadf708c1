"""`runner inspect`: text, JSON, page and pictures, and its errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tensorflow as tf

from orbit_runner.cli.main import main

QUIET = "--quiet"


def test_text_has_a_part_for_layers_batches_memory_and_schedule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["inspect", "digits", "--train_steps=30", "--trainer.train_epochs=0", QUIET]) == 0

    text = capsys.readouterr().out
    assert re.search(r"^  conv2 +Conv2D +4×4×64 +18,496 +589\.82 k$", text, re.M)
    assert re.search(r"^  trainable parameters +53,002$", text, re.M)
    assert re.search(r"^  features +64×8×8×1 +uint8 +0 +16 ", text, re.M)
    assert re.search(r"^  estimated peak +\d\.\d\d MiB$", text, re.M)
    assert re.search(r"^  steps +30$", text, re.M)
    assert "start 0.002 (step 0)" in text
    assert "measured" not in text


def test_flag_and_positional_argument_name_the_same_experiment(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sheet, page = tmp_path / "sheet.png", tmp_path / "page.html"
    given = ["--experiment=digits_mlp", "--json", QUIET, f"--images={sheet}", f"--html={page}"]

    assert main(["inspect", *given]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "digits_mlp"
    parts = (found["memory"][name] for name in ("weights", "optimizer", "average", "inputs",
                                                "activations", "temporary", "unused",
                                                "constants"))  # fmt: skip
    assert found["memory"]["peak"] == sum(parts)
    assert tf.io.decode_png(sheet.read_bytes()).shape[-1] == 3
    text = page.read_text(encoding="utf-8")
    assert "<h2>Layers</h2>" in text
    assert "data:image/png;base64," in text
    assert "<script" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits", "--experiment=digits_mlp"], "--experiment: got 'digits_mlp', but EXPERIMENT"),
        (["digit"], "unknown experiment 'digit'; did you mean 'digits'?"),
        (["digits", "--trainer.train_epochs=0"], "trainer.train_steps"),
        (["resnet_cifar", "--data_dir=nowhere"], "task.train_data.data_dir — --data_dir"),
    ],
)
def test_mistakes_are_reported_as_by_run(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", *arguments, QUIET]) == 2

    text = capsys.readouterr().err
    assert message in text
    assert "Traceback" not in text


def test_a_section_without_data_is_reported_in_its_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = [
        "fashion_mnist",
        "--task.train_data.source=digits",
        "--task.train_data.data_dir=''",
        f"--task.validation_data.data_dir={tmp_path}",
    ]

    assert main(["inspect", *given, QUIET]) == 0

    text = capsys.readouterr().out
    assert re.search(r"^training batch\n  tensor", text, re.M)
    assert re.search(r"^validation batch\n  none: .*idx", text, re.M)
    assert re.search(r"^  estimated peak +\d", text, re.M)


def test_images_of_an_experiment_without_pictures_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = ["ncf_movielens", "--config_file=configs/data/synthetic.yaml", QUIET]

    assert main(["inspect", *given, f"--images={tmp_path / 'x.png'}"]) == 2

    assert "--images: the training batch has no pictures" in capsys.readouterr().err


def test_tables_get_a_first_look(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ["diabetes", "--task.split=null", f"--html={tmp_path / 'page.html'}", QUIET]

    assert main(["inspect", *given]) == 0
    text = capsys.readouterr().out
    assert main(["inspect", *given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["table"]

    assert re.search(r"^table of train_data: 442 rows$", text, re.M)
    assert re.search(r"^  bmi +feature +number +0 +163 +18 +42\.2 +26\.38 +-$", text, re.M)
    assert re.search(r"^  sex +feature +category +0 +2 +- +- +- +1 \(235\), 2 \(207\)$", text, re.M)
    assert re.search(r"^  of validation_data also in train_data +442: \S+, row 1 = ", text, re.M)
    assert found["rows"] == {"train_data": 442, "validation_data": 442}
    assert found["leaked"]["rows"] == 442
    assert found["repeated"]["train_data"] == {"rows": 0, "examples": []}
    assert "progression</t" in (tmp_path / "page.html").read_text()
