"""`runner predict`: ordered predictions of a run or an export, and items without a prediction."""

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from orbit_runner.cli.commands.predict import _checked_indexes_scope
from orbit_runner.cli.main import main
from orbit_runner.config.serialize import to_yaml
from orbit_runner.data.images.headers import ImageHeader, read_header
from orbit_runner.datasets.scikit_learn import load_digits
from tests.support.problems import fails
from tests.support.toy import run as run_toy
from tests.support.toy import toy_config

# TensorFlow fixes the thread settings of the test process at its first op.
RUN = ["run", "--experiment=digits_mlp", "--runtime.intra_op_threads=0",
       "--train_steps=150", "--task.model.hidden_units=[16]",
       "--trainer.export_subdir=export"]  # fmt: skip
SET = load_digits(split="test").arrays


@pytest.fixture(scope="module")
def exported_run(tmp_path_factory):
    """A directory with a run, its export, and images."""
    folder = tmp_path_factory.mktemp("made")
    assert main([*RUN, f"--model_dir={folder / 'run'}"]) == 0
    images = folder / "images"
    (images / "deeper").mkdir(parents=True)
    for index, image in enumerate(SET["image"][:12]):
        name = f"{index:02}.png" if index < 9 else f"deeper/{index:02}.PNG"
        (images / name).write_bytes(tf.io.encode_png(image).numpy())
    (images / "readme.txt").write_text("no image")
    return folder


@pytest.fixture
def predicted(capsys):
    """Runs the command; returns its exit code, the lines of stdout, and stderr."""

    def run(*arguments: object) -> tuple[int, list[str], str]:
        capsys.readouterr()
        code = main(["predict", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return run


Predicted = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def typed(monkeypatch):
    """Puts a text on standard input."""
    return lambda text: monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def _labels(lines: list[str]) -> list[str]:
    return [json.loads(line)["predictions"][0]["label"] for line in lines]


@pytest.mark.slow
def test_images_of_a_directory_are_predicted_in_order(exported_run, predicted):
    images = exported_run / "images"
    code, lines, _ = predicted(exported_run / "run", "--json", images, "--batch_size=5")
    assert code == 0
    rows = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    paths = [Path(row["image"]).relative_to(exported_run / "images").as_posix() for row in rows]
    assert paths == sorted(paths)
    below = [f"deeper/{n:02}.PNG" for n in (9, 10, 11)]
    assert paths == [*(f"{n:02}.png" for n in range(9)), *below]
    right = np.array([*map(int, _labels(lines))]) == SET["label"][:12]
    assert right.mean() > 0.7
    for row in rows:
        chances = [each["probability"] for each in row["predictions"]]
        assert len(chances) == 3
        assert chances == sorted(chances, reverse=True)
        assert 0 < sum(chances) <= 1 + 1e-5
        assert all(each["label"] == str(each["class"]) for each in row["predictions"])


def test_text_output_has_one_line_per_image(exported_run, predicted):
    items = [exported_run / "images/03.png", exported_run / "images/deeper/09.PNG"]
    code, lines, err = predicted(exported_run / "run/export/150", *items, "--top_k=2")
    assert code == 0
    assert [line.split()[0] for line in lines] == [str(item) for item in items]
    words = lines[0].split()
    assert len(words) == 5
    assert words[1] == str(SET["label"][3])
    assert float(words[2]) > float(words[4])
    assert "loading" in err


def test_unreadable_items_are_reported_in_input_order(exported_run, tmp_path, predicted):
    good = exported_run / "images/00.png"
    (tmp_path / "bad.png").write_bytes(b"no image at all")
    jpeg = tf.io.encode_jpeg(np.zeros([8, 8, 1], np.uint8)).numpy()
    (tmp_path / "half.jpg").write_bytes(jpeg[: len(jpeg) // 2])
    (tmp_path / "empty.png").touch()
    (tmp_path / "bare").mkdir()
    names = ["bad.png", "half.jpg", "empty.png", "bare", "none.png"]
    items = [good, *(tmp_path / name for name in names), good]
    code, lines, err = predicted(exported_run / "run/export", *items, "--json")
    assert code == 5
    rows = [json.loads(line) for line in lines]
    assert [row["image"] for row in rows] == [str(item) for item in items]
    assert rows[0] == rows[-1]
    assert "predictions" in rows[0]
    reasons = [row["error"] for row in rows[1:-1]]
    assert "Unknown image file format" in reasons[0]
    assert reasons[1].startswith("cannot be decoded: ")
    assert "Graph execution" not in reasons[1]
    assert reasons[2] == "is empty"
    assert reasons[3].startswith("no images in this directory")
    assert reasons[4] == "cannot be read: No such file or directory"
    assert err.endswith("5 of 7 items have no prediction\n")
    code, lines, _ = predicted(exported_run / "run/export", *items)
    assert code == 5
    assert lines[1].endswith(f"error: {reasons[0]}")
    assert lines[1].startswith(str(items[1]))


def test_image_names_are_read_from_standard_input(exported_run, predicted, typed):
    names = [str(exported_run / "images" / f"{n:02}.png") for n in (4, 2, 7)]
    typed("\n".join([names[0], "", *names[1:]]))
    _, alone, _ = predicted(exported_run / "run/export", "--json")
    typed(f"{names[1]}\r\n")
    code, among, _ = predicted(exported_run / "run/export", names[0], "-", names[2], "--json")
    assert code == 0
    assert [json.loads(line)["image"] for line in alone] == names
    assert among == alone


def test_empty_input_is_an_error(exported_run, predicted, typed):
    typed("\n")
    code, lines, err = predicted(exported_run / "run/export")
    assert (code, lines) == (2, [])
    assert err.endswith("ITEM: standard input: there are no items to predict\n")


def test_images_of_other_sizes_and_colors_are_converted(exported_run, tmp_path, predicted):
    image = SET["image"][0]
    for name, encoded in {
        "a.png": tf.io.encode_png(image),
        "b.png": tf.io.encode_png(np.repeat(np.repeat(image, 3, axis=0), 3, axis=1)),
        "c.png": tf.io.encode_png(np.repeat(image, 3, axis=2)),
    }.items():
        (tmp_path / name).write_bytes(encoded.numpy())
    # JPEG allows 0xFF in front of a marker.
    filled = tf.io.encode_jpeg(image, quality=100).numpy().replace(b"\xff\xd8", b"\xff\xd8\xff", 1)
    assert read_header(filled) == ImageHeader(8, 8, 1)
    (tmp_path / "d.jpg").write_bytes(filled)
    # TensorFlow decodes these only in color, and the network is one for grayscale images.
    others = [tmp_path / f"others.{kind}" for kind in ("bmp", "gif", "webp")]
    for other in others:
        Image.fromarray(image[..., 0]).save(other)
    _, lines, _ = predicted(
        exported_run / "run/export", *sorted(tmp_path.glob("?.*")), *others, "--json"
    )
    assert _labels(lines) == [str(SET["label"][0])] * 7
    first, _, third = (json.loads(line)["predictions"] for line in lines[:3])
    assert first[0]["probability"] == pytest.approx(third[0]["probability"], abs=0.05)


def test_task_without_a_predictor_is_rejected(tmp_path):
    config = toy_config(trainer__train_steps=5)
    run_toy(config, tmp_path, "train")
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    fails(["predict", str(tmp_path), "x"], "missing-method")


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        ((), "wrong-usage", ""),
        (("nope", "x.png"), "not-a-run", "WHERE"),
        ((".", "x.png"), "not-a-run", "WHERE"),
        (("run", "--top_k=0", "x"), "out-of-range", "--top_k"),
        (("run", "--batch_size=-1", "x"), "out-of-range", "--batch_size"),
        (("run", "x", "--weights=average"), "not-allowed", "--weights"),
        (("run/export", "x", "--checkpoint=150"), "no-effect", "--checkpoint"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_tensorflow")
def test_invalid_arguments_are_rejected_before_importing_tensorflow(
    arguments, code, path, exported_run, monkeypatch
):
    monkeypatch.chdir(exported_run)
    fails(["predict", *arguments], code, path)


@pytest.mark.slow
def test_predictions_are_printed_as_items_are_typed(exported_run):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "orbit_runner", "predict", "run/export", "-", "--json"]
    with subprocess.Popen(
        command,
        cwd=exported_run,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(theirs)
        for name in ("00.png", "nope.png"):
            os.write(ours, f"images/{name}\n".encode())
            assert json.loads(process.stdout.readline())["image"] == f"images/{name}"
        os.write(ours, b"\x04")
        assert process.wait(timeout=600) == 5
    os.close(ours)


@pytest.mark.parametrize(("needs_cpu", "devices"), [(True, [None, "CPU:0"]), (False, [None])])
def test_model_whose_indexes_only_the_cpu_checks_is_loaded_there(needs_cpu, devices, monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    loaded: list[str | None] = []

    @contextlib.contextmanager
    def load_scope(device: str | None) -> Any:
        loaded.append(device)
        yield SimpleNamespace(needs_cpu=needs_cpu)

    with _checked_indexes_scope(load_scope):
        assert loaded == devices
