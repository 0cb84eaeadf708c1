"""Checkpoints of Model Garden's trainer: they begin a run as initial weights, and no more."""

import shutil

import numpy as np
import pytest

from tests.support.garden import GardenRun
from tests.support.problems import raises
from tests.support.toy import make_strategy, run, session_of, toy_config

_OPTIMIZER = "trainer__optimizer_config__"
_CASES = {
    "average": {f"{_OPTIMIZER}optimizer__type": "adam", f"{_OPTIMIZER}ema__average_decay": 0.9,
                "task__batch_norm": True},
    "float16": {"runtime__mixed_precision_dtype": "float16"},
}  # fmt: skip


@pytest.mark.parametrize("case", _CASES)
def test_checkpoint_of_model_garden_has_the_initial_weights_of_a_run(case, tmp_path):
    theirs = GardenRun(toy_config(**_CASES[case]), tmp_path / "theirs", steps=5)
    for place in ("", "/ckpt-5"):
        config = toy_config(task__init_checkpoint=f"{tmp_path}/theirs{place}", **_CASES[case])
        session = session_of(config, tmp_path / "ours", make_strategy("one_device"))
        session.restore_or_initialize()

        assert session.step == 0
        variables = session.state.model.variables
        for variable, expected in zip(variables, theirs.weights(), strict=True):
            np.testing.assert_array_equal(variable, expected)


def test_run_directory_of_model_garden_is_refused(tmp_path):
    GardenRun(toy_config(), tmp_path / "theirs", steps=5)
    for mode in ("train", "eval"):
        with raises("not-a-run", "--model_dir") as caught:
            run(toy_config(), tmp_path / "theirs", mode)
        assert f"task.init_checkpoint={tmp_path}/theirs/ckpt-5" in str(caught.value)

    # Beside checkpoints of this runner, they are ignored.
    ours = tmp_path / "ours"
    run(toy_config(trainer__train_steps=5), ours, "train")
    for path in (tmp_path / "theirs").glob("ckpt-5.*"):
        shutil.copyfile(path, ours / path.name.replace("ckpt-5", "ckpt-90"))
    session = session_of(toy_config(), ours, make_strategy("one_device"))
    session.restore_or_initialize()
    assert session.step == 5
