"""A step under instruments: losses, the first bad value, and a run that stays as it was."""

import numpy as np
import pytest
from official.core import exp_factory

import tests.support.official_toys  # noqa: F401 (registers the experiment)
from orbit_runner import Callback
from orbit_runner.checkpoint.fingerprint import fingerprint, tensor_line, weights_fingerprint
from orbit_runner.repeat.replay import ExamineAtStep, StepExamined
from orbit_runner.step.examine import KeptState, examine_step
from orbit_runner.step.results import COMPUTED_IN_STEP, COMPUTED_PER_ROW
from tests.support.digits import digits_config
from tests.support.faulty_images import BATCH, MIRRORED, ROW, STEP, faulty_config
from tests.support.official_runs import run_official
from tests.support.ratings import ratings_config
from tests.support.toy import records, run, toy_config

_EVERYTHING = {
    "trainer__train_steps": 12,
    "trainer__summary_interval": 1,
    "trainer__steps_per_loop": 1,
    "trainer__gradient_accumulation_steps": 2,
    "trainer__optimizer_config__ema": "{average_decay: 0.9}",
    "task__model__dropout_rate": 0.3,
}


def _examine(config, folder, step, strategy):
    """Trains up to a step and returns what is found in it."""
    at_step = ExamineAtStep(step, stops=True)
    with pytest.raises(StepExamined):
        run(config, folder, "train", strategy, callbacks=[at_step])
    return at_step.examination


# Fault: step, layer, op, kind, phase, rows, source.
_FAULTS = {
    "image": (STEP, "conv", "Conv2D", "inf", "forward", [ROW], "batch"),
    "log": (STEP, "log", "Log", "inf", "forward", [ROW], ""),
    "root": (STEP, "root", "SqrtGrad", "inf", "backward", [ROW], ""),
    "label": (STEP, "loss", "GatherV2", "error", "forward", [ROW], ""),
    "target": (STEP, "loss", "Sub", "nan", "forward", [ROW], "batch"),
    "rate": (2, "hidden", "MatMul", "inf", "forward", None, ""),
}


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
@pytest.mark.parametrize("fault", _FAULTS)
def test_first_bad_value_names_layer_op_and_example(fault, strategy, tmp_path):
    step, layer, op, kind, phase, rows, source = _FAULTS[fault]
    is_mirrored = strategy == "mirrored2"
    config = faulty_config(fault, **(MIRRORED if is_mirrored else {}))
    examination = _examine(config, tmp_path, step, strategy)

    bad = examination.first_bad
    assert (bad.layer, bad.op, bad.kind, bad.phase) == (layer, op, kind, phase)
    assert bad.source == source
    if rows is not None:
        assert [culprit.row for culprit in examination.culprits] == rows
        assert bad.replica == (1 if is_mirrored else None)  # the one with the second half
    else:
        assert len(examination.culprits) == (BATCH // 2 if is_mirrored else BATCH)
    assert len(examination.examples) == BATCH


def test_corrupt_label_is_the_worst_example(tmp_path):
    examination = _examine(faulty_config("label"), tmp_path, STEP, "one_device")
    assert examination.examples[0].row == ROW
    assert examination.examples[0].error == "indices[0] = 99 is not in [0, 3)"
    assert all(
        example.loss is not None and np.isfinite(example.loss)
        for example in examination.examples[1:]
    )
    assert examination.error == f"indices[{ROW}] = 99 is not in [0, 3)"


def test_masked_infinity_is_not_reported(tmp_path):
    examination = _examine(faulty_config(""), tmp_path, STEP, "one_device")
    assert examination.first_bad is None
    assert examination.is_finite
    assert examination.culprits == []


class _Examine(Callback):
    """Examines the step after a given one, and keeps fingerprints of the state around it."""

    def __init__(self, step):
        self.step, self.states = step, list[str]()
        self.found = None

    def on_loop_end(self, run, logs):
        if run.step == self.step and self.found is None:
            self.states.append(_state(run))
            self.found = examine_step(run)
            self.states.append(_state(run))


def _state(run):
    values = [value for parts in KeptState(run)._copies.values() for _, value in parts]
    return fingerprint(tensor_line(str(number), value) for number, value in enumerate(values))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["one_device", "mirrored2"])
def test_training_continues_as_if_no_step_was_examined(strategy, tmp_path):
    config = digits_config(**_EVERYTHING, **(MIRRORED if strategy == "mirrored2" else {}))
    examine, models = _Examine(5), []
    for name, callbacks in {"plain": [], "examined": [examine]}.items():
        model, _ = run(config, tmp_path / name, "train", strategy, callbacks=callbacks)
        models.append(weights_fingerprint(model))
    assert models[0] == models[1]
    assert examine.states[0] == examine.states[1]
    assert examine.found is not None
    plain, examined = (records(tmp_path / name, "train") for name in ("plain", "examined"))
    assert [entry["training_loss"] for entry in plain] == [
        entry["training_loss"] for entry in examined
    ]
    losses = [entry.loss for entry in examine.found.examples]
    assert len(losses) == 64
    np.testing.assert_allclose(np.mean(losses), plain[5]["training_loss"], rtol=1e-4)
    np.testing.assert_allclose(examine.found.loss, plain[5]["training_loss"], rtol=1e-4)


@pytest.mark.slow
def test_norms_are_those_of_the_weights_before_and_after_the_step(tmp_path):
    rate = 0.01
    settings = {
        "trainer__optimizer_config__optimizer__type": "sgd",
        "trainer__optimizer_config__learning_rate__constant__learning_rate": rate,
    }
    before, after = (
        run(digits_config(**settings, trainer__train_steps=steps), tmp_path / str(steps), "train")[
            0
        ]
        for steps in (4, 5)
    )
    examination = _examine(digits_config(**settings), tmp_path / "examined", 5, "one_device")
    assert len(examination.variables) == len(before.trainable_variables) == 4
    for row, old, new in zip(
        examination.variables, before.trainable_variables, after.trainable_variables, strict=True
    ):
        assert row.name == old.name.removesuffix(":0")
        moved = np.linalg.norm(new.numpy() - old.numpy())
        np.testing.assert_allclose(row.weight_norm, np.linalg.norm(old.numpy()), rtol=1e-5)
        np.testing.assert_allclose(row.update_norm, moved, rtol=1e-3)
        # Plain gradient descent moves the weights by the learning rate times the gradient.
        np.testing.assert_allclose(row.gradient_norm * rate, moved, rtol=1e-3)


@pytest.mark.slow
def test_losses_of_a_recommendation_have_their_examples(tmp_path):
    examination = _examine(ratings_config(), tmp_path, 3, "one_device")
    assert examination.losses == COMPUTED_IN_STEP
    losses = [example.loss for example in examination.examples]
    assert losses == sorted(losses, reverse=True)
    np.testing.assert_allclose(np.mean(losses), examination.loss, rtol=1e-4)
    assert {"example", "user", "item", "label"} <= {*examination.examples[0].about}


def test_loss_of_a_garden_task_is_computed_row_by_row(tmp_path):
    at_step = ExamineAtStep(3, stops=True)
    with pytest.raises(StepExamined):
        run_official(exp_factory.get_exp_config("my_line"), tmp_path, "train", callbacks=[at_step])
    examination = at_step.examination
    assert examination.losses == COMPUTED_PER_ROW
    losses = [example.loss for example in examination.examples]
    assert len(losses) == 8
    np.testing.assert_allclose(np.mean(losses), examination.loss, rtol=1e-4)


def test_step_of_a_run_that_starts_there_is_examined(tmp_path):
    examination = _examine(toy_config(), tmp_path, 1, "one_device")
    assert (examination.step, examination.rows) == (1, 8)
