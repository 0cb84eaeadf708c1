"""`runner batch`, by step and by example: text, JSON, images, runs, and their errors."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import tensorflow as tf

from orbit_runner.cli.main import main
from tests.support.problems import fails, output_of

QUIET = "--quiet"


def values(*arguments: str) -> Any:
    """Returns what a command that must succeed prints as JSON."""
    return json.loads(output_of([*arguments, "--json"]))


@pytest.mark.promise(
    "commands", "`runner batch --step` and `--example` agree on the examples of each step"
)
def test_steps_of_an_example_are_those_that_contain_it():
    step = values("batch", "digits", "--step=120")

    assert (step["step"], step["order"], step["seed"], step["batch_size"]) == (
        120,
        "computed",
        17,
        64,
    )
    for row in step["rows"][::20]:
        seen = values("batch", "digits", f"--example={row['example']}", "--until=120")
        assert seen["label"] == row["label"]
        assert seen["occurrences"][-1] == {
            name: row.get(name, 120) for name in ("step", "epoch", "position", "row")
        }


def test_text_shows_the_first_rows_and_the_number_of_others():
    text = output_of(["batch", "digits", "--step=1:2"])

    assert re.search(r"^step 1 of digits: 64 examples of digits, seed 17$", text, re.M)
    assert re.search(r"^ +row +example +epoch +position +place +label$", text, re.M)
    assert re.search(r"^ +15 +\d+ +1 +15 +digits, index \d+ +\d$", text, re.M)
    assert text.count("  … and 48 more; --all shows all of them\n") == 2
    every = output_of(["batch", "digits", "--step=1", "--all"])
    assert re.search(r"^ +63 +\d+ +1 +63 ", every, re.M)
    assert "more" not in every


def test_images_are_those_of_the_pipeline(tmp_path):
    sheet = tmp_path / "sheet.png"

    assert main(["batch", "digits", "--step=3", f"--images={sheet}", QUIET]) == 0

    # Eight rows of eight images, 6 times enlarged, with gaps of 4 pixels.
    assert tf.io.decode_png(sheet.read_bytes()).shape == (8 * 52 + 4, 8 * 52 + 4, 3)


_OWN_TASK = """
import dataclasses
import pytest
import tensorflow as tf
import tf_keras
from orbit_runner.config.schema.base import field
from orbit_runner.config.schema.experiment import TaskConfig
from orbit_runner.registry import register_task
from orbit_runner.tasks.base import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnConfig(TaskConfig):
    pass


class OwnTask(Task):
    def build_inputs(self, params, input_context=None):
        size = params.global_batch_size
        made = tf.data.Dataset.range(1000).batch(size)
        return made.map(lambda row: (tf.reshape(tf.cast(row, tf.float32), [-1, 1, 1, 1]), row))


register_task("own", config=OwnConfig, task=__name__ + ":OwnTask", help="a task")
"""


def test_other_pipelines_are_replayed(tmp_path, monkeypatch):
    (tmp_path / "own_replayed.py").write_text(_OWN_TASK)
    (tmp_path / "own.yaml").write_text(
        "imports: [own_replayed]\ntask: {name: own, train_data: {global_batch_size: 4}}\n"
        "trainer:\n  train_steps: 10\n  optimizer_config:\n    optimizer: {type: sgd}\n"
        "    learning_rate: {type: constant, constant: {learning_rate: 0.1}}\n"
        "runtime: {distribution_strategy: one_device}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    own, sheet = str(tmp_path / "own.yaml"), tmp_path / "sheet.png"

    steps = values("batch", own, "--step=3:4", QUIET)

    assert [step["order"] for step in steps] == ["replayed", "replayed"]
    for step, first in zip(steps, (8, 12), strict=True):
        assert step["rows"] == [
            {"row": row, "position": first + row, "label": str(first + row)} for row in range(4)
        ]
        assert step["tensors"][0]["low"] == first
    text = output_of(["batch", own, "--step=3", f"--images={sheet}", QUIET])
    assert "step 3 of own: 4 examples, replayed from step 1\n" in text
    assert sheet.exists()
    fails(["batch", own, "--example=3"], "not-repeatable", "RUN|EXPERIMENT")
    fails(["batch", own, "--step=1000", QUIET], "unknown-step", "--step")


def test_pipeline_of_model_garden_is_replayed():
    line = ("batch", "official/my_line", "--import=tests.support.official_toys", QUIET)

    every = values(*line, "--step=1:6")
    alone = values(*line, "--step=5")

    assert alone == every[4]
    assert (alone["order"], alone["rows"][0]["position"]) == ("replayed", 32)
    # The labels are shuffled, and have noise that is drawn in the pipeline.
    assert len({step["tensors"][1]["mean"] for step in every}) == 6
