"""Several tasks on one model, trained and evaluated as Model Garden's own runner does."""

import contextlib
import io
import json

import numpy as np
import pytest
import tensorflow as tf
from official.modeling.multitask import multitask
from official.modeling.multitask import train_lib as garden

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.trainer import FineTuning
from orbit_runner.determinism.numerics import configure_numerics
from orbit_runner.errors import RunnerError, SettingError
from orbit_runner.tasks.adapter import build_task
from orbit_runner.tasks.multitask import JointTask
from orbit_runner.train_lib import run_experiment
from tests.support.official_runs import run_official
from tests.support.official_toys import BothModel, BothTasks, lines
from tests.support.toy import make_strategy, records

_NAMES = ["up", "down"]


def _as_model_garden_does(params, folder):
    strategy = make_strategy("one_device")
    for routine in params.task.task_routines:
        routine.task_config.train_data.seed = 0
    with strategy.scope(), contextlib.redirect_stdout(io.StringIO()):
        task = BothTasks.from_config(params.task)
        model = BothModel(_NAMES)
        _begin(model)
        tf.random.set_seed(0)  # The seed of our pipelines.
        return garden.run_experiment(
            distribution_strategy=strategy, task=task, model=model, mode="train_and_eval",
            params=params, model_dir=str(folder), run_post_eval=True,
        )  # fmt: skip


def _begin(model):
    for number, variable in enumerate(_variables(model)):
        variable.assign(tf.fill(variable.shape, 0.1 * (number + 1)))


def _variables(model):
    return sorted(model.trainable_variables, key=lambda variable: variable.name)


class _FromThere(BothTasks):
    """Starts with the weights of the other run."""

    def build_multitask_model(self):
        model = super().build_multitask_model()
        model.initialize = lambda: _begin(model)
        return model


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["joint", "interleaving"])
def test_training_matches_model_gardens_own_runner(kind, tmp_path):
    params = lines()
    params.trainer.override({"trainer_type": kind, "validation_steps": 3, "validation_interval": 6})
    for routine in params.task.task_routines:
        routine.task_config.noise = 0.0
    theirs, their_logs = _as_model_garden_does(params, tmp_path / "theirs")
    model, logs = run_official(
        params, tmp_path / "ours", task_class=_FromThere.from_config, mode="train_and_eval"
    )

    for one, other in zip(_variables(model), _variables(theirs), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)
    for name in _NAMES:
        for metric in ("error", "validation_loss"):
            value = float(their_logs[name][metric])
            np.testing.assert_allclose(logs[name][metric], value, rtol=1e-5, err_msg=metric)
    assert logs["down"]["validation_examples"] == 16  # Two batches, as its routine says.


@pytest.mark.slow
def test_records_contain_the_values_of_each_task(tmp_path):
    params = lines()
    params.trainer.override(
        {"trainer_type": "joint", "best_checkpoint_export_subdir": "best",
         "best_checkpoint_eval_metric": "up|error", "best_checkpoint_metric_comp": "lower"}
    )  # fmt: skip
    _, logs = run_official(params, tmp_path, strategy="mirrored2")

    first, _ = records(tmp_path, "train")
    weighted = 3.0 * first["up/training_loss"] + first["down/training_loss"]
    np.testing.assert_allclose(first["training_loss"], weighted, rtol=1e-5)
    (last,) = records(tmp_path, "validation")
    assert last["up/error"] == pytest.approx(float(logs["up"]["error"]))
    best = json.loads((tmp_path / "best" / "info.json").read_text())
    assert best["up|error"] == pytest.approx(best["up"]["error"])
    assert {path.name for path in (tmp_path / "validation").iterdir() if path.is_dir()} == {*_NAMES}


def test_single_task_is_evaluated_on_several_tasks(tmp_path):
    config = resolve(
        Request(
            experiment="official/my_line_on_two",
            imports=("tests.support.official_toys",),
            params_overrides=(
                "trainer.best_checkpoint_export_subdir=best",
                "trainer.best_checkpoint_eval_metric=down|label_sum",
            ),
        )
    ).config
    configure_numerics(config.runtime)
    strategy = make_strategy("one_device")
    with strategy.scope():
        task = build_task(config, str(tmp_path))
    model, logs = run_experiment(strategy, task, "train_and_eval", config, str(tmp_path))

    assert set(logs) == {*_NAMES}
    x = np.arange(24, dtype=np.float32)[:, None] / 8
    for name, slope in (("up", 1.0), ("down", -1.0)):
        expected = np.mean((slope * x - model(x).numpy()) ** 2)
        np.testing.assert_allclose(logs[name]["validation_loss"], expected, rtol=1e-5)
    assert logs["down"]["label_sum"] == pytest.approx(-34.5)
    best = json.loads((tmp_path / "best" / "info.json").read_text())
    assert best["down|label_sum"] == pytest.approx(-34.5)
    assert "image/labels" not in best["down"]


def _refused(params, folder, task_class=None, **trainer):
    with pytest.raises(RunnerError) as caught:
        run_official(params, folder, task_class=task_class, **trainer)
    return caught.value


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"gradient_accumulation_steps": 2}, "trainer.gradient_accumulation_steps"),
        ({"fine_tuning": FineTuning()}, "trainer.fine_tuning"),
    ],
)
def test_settings_for_one_task_are_rejected(changes, path, tmp_path):
    error = _refused(lines(), tmp_path, **changes)
    assert isinstance(error, SettingError)
    assert error.path == path


def test_invalid_tasks_are_rejected(tmp_path):
    unknown, twice, taken = lines(), lines(), lines()
    unknown.trainer.trainer_type = "interleaved"
    twice.task.task_routines[1].task_name = "up"
    taken.task.task_routines[1].task_name = "learning_rate"
    for params, path, message in (
        (unknown, "trainer.trainer_type", "interleaving"),
        (twice, "task.task_routines[1].task_name", "up"),
        (taken, "task.task_routines[1].task_name", "the name 'learning_rate' is taken"),
    ):
        error = _refused(params, tmp_path)
        assert isinstance(error, SettingError)
        assert error.path == path
        assert message in str(error)

    error = _refused(lines(), tmp_path, task_class=multitask.MultiTask.from_config)
    assert "build_multitask_model" in str(error)


def test_model_without_a_part_for_each_task_is_rejected(tmp_path):
    class Lacking(BothTasks):
        def build_multitask_model(self):
            return BothModel(["up"])

    assert "'down'" in str(_refused(lines(), tmp_path, task_class=Lacking.from_config))


@pytest.mark.slow
def test_initial_weights_are_loaded_from_a_checkpoint(tmp_path):
    source = BothModel(_NAMES)
    source.build()
    _begin(source)
    path = tf.train.Checkpoint(model=source).write(str(tmp_path / "weights"))
    params = lines()
    params.task.init_checkpoint = path
    joint = JointTask(BothTasks.from_config(params.task), params.task)
    model = joint.build_model()
    joint.initialize(model)

    for one, other in zip(_variables(model), _variables(source), strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
