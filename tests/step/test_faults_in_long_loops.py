"""A fault in a long loop: the run names the step, and its replay the layer and the example."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.fingerprint import CheckpointContent
from orbit_runner.errors import Diverged
from orbit_runner.step.examine import ExamineAtStep, StepExamined, examine_step
from orbit_runner.step.results import Examination
from tests.support.faulty_images import BATCH, MIRRORED, faulty_config
from tests.support.toy import run

_LONG = {
    "task__num_examples": 16_000,
    "trainer__train_steps": 1000,
    "trainer__steps_per_loop": 1000,
    "trainer__summary_interval": 1000,
    "trainer__checkpoint_interval": 400,
}
_RATE = "trainer__optimizer_config__learning_rate__constant__learning_rate"
_LAYERS = {"image": "conv", "log": "log", "root": "root", "target": "loss"}


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize("example", [37, 9_999])
@pytest.mark.parametrize("fault", _LAYERS)
def test_step_layer_and_example_are_named(
    fault: str, example: int, strategy: str, tmp_path: Path
) -> None:
    changes = {**_LONG, "task__bad_example": example}
    step, found = _step_and_examination(fault, changes, strategy, tmp_path)
    assert step == example // BATCH + 1
    assert found.first_bad is not None
    assert found.first_bad.layer == _LAYERS[fault]
    assert [one.row for one in found.culprits] == [example % BATCH]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize("rate", [1e30, 1e25])
def test_step_and_layer_of_a_high_learning_rate_are_named(
    rate: float, strategy: str, tmp_path: Path
) -> None:
    changes = {**_LONG, _RATE: rate}
    step, found = _step_and_examination("rate", changes, strategy, tmp_path)
    assert step == 2  # The first update is finite, but the outputs after it overflow.
    assert found.first_bad is not None
    assert found.first_bad.layer == "hidden"
    assert len(found.culprits) == BATCH // (2 if strategy == "mirrored2" else 1)


def _step_and_examination(
    fault: str, changes: dict[str, object], strategy: str, directory: Path
) -> tuple[int, Examination]:
    """Trains until a step is not finite; returns that step, and what is found in it."""
    config = faulty_config(fault, **changes, **(MIRRORED if strategy == "mirrored2" else {}))
    with pytest.raises(Diverged) as caught:
        run(config, directory, "train", strategy)
    step = caught.value.step
    assert step is not None
    newest = CheckpointFolder(directory / "checkpoints").committed_steps()[-1]
    assert newest == step - 1
    content = CheckpointContent(directory / "checkpoints" / f"ckpt-{newest}")
    assert content.summary().non_finite == ()
    found: list[Examination] = []
    examine = ExamineAtStep(step, lambda one: found.append(examine_step(one)), stops=True)
    with pytest.raises(StepExamined):
        run(config, directory, "train", strategy, callbacks=[examine])
    return step, found[0]
