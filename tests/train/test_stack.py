"""How many functions of the runner are on the stack when it calls the task."""

import traceback
from pathlib import Path
from typing import Any

import pytest

import orbit_runner
from orbit_runner.tasks.image_classification.task import ImageClassificationTask
from tests.support.digits import digits_config
from tests.support.toy import run

_PACKAGE = str(Path(orbit_runner.__file__).parent)


@pytest.mark.slow
@pytest.mark.parametrize("on_device", [True, False], ids=["in memory", "pipeline"])
def test_at_most_eight_functions_lead_from_the_trainer_to_the_task(
    on_device: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = []
    original = ImageClassificationTask.train_step

    def train_step(*args: Any, **kwargs: Any) -> Any:
        stacks.append(traceback.extract_stack()[:-1])
        return original(*args, **kwargs)

    monkeypatch.setattr(ImageClassificationTask, "train_step", train_step)
    run(digits_config(trainer__train_steps=2, task__train_data__on_device=on_device), tmp_path)
    frames = [frame for frame in stacks[0] if frame.filename.startswith(_PACKAGE)]
    places = [f"{Path(frame.filename).stem}.{frame.name}" for frame in frames]
    assert len(places[places.index("trainer.train") :]) <= 8, places
