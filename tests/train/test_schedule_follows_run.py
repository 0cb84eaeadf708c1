"""A schedule with the length `auto` in a run: the same weights as the number, also with epochs."""

import pytest

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.schedule_length import schedule_steps
from orbit_runner.inspection.experiment import inspect_experiment
from orbit_runner.reporting.inspection import inspection_sections
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.train.callbacks.base import Callback
from tests.support.digits import digits_config
from tests.support.toy import run

_RATE = "trainer__optimizer_config__learning_rate"
_STEPS = 45  # Two epochs of 1,438 examples in batches of 64.


def _config(steps, **changes):
    rate = {
        f"{_RATE}__type": "cosine",
        f"{_RATE}__cosine__initial_learning_rate": 0.003,
        f"{_RATE}__cosine__decay_steps": steps,
    }
    epochs = {"trainer__train_steps": 0, "trainer__train_epochs": 2}
    return digits_config(**{**rate, **epochs, **changes})


class _Holder(Callback):
    def on_run_begin(self, run):
        self.run = run


def _train(config, model_dir):
    holder = _Holder()
    run(config, model_dir, callbacks=[holder])
    return holder.run


@pytest.mark.slow
def test_auto_gives_the_weights_of_the_number_of_steps(tmp_path):
    follows = _train(_config("auto"), tmp_path / "a")
    fixed = _train(_config(_STEPS), tmp_path / "b")

    assert follows.step == _STEPS
    assert schedule_steps(follows.written_config) == _STEPS
    assert weights_fingerprint(follows.model) == weights_fingerprint(fixed.model)
    assert follows.checkpoints.conditions.config == config_fingerprint(_config(_STEPS))
    assert follows.records.warnings == fixed.records.warnings == ()


@pytest.mark.slow
def test_a_run_says_at_which_step_its_schedule_ends(tmp_path):
    config = _config(20)
    short = _train(config, tmp_path / "a")
    inspection = inspect_experiment(config)

    (warning,) = short.records.warnings
    assert warning.startswith(f"the learning rate is 0 after step 20 of {_STEPS}, because")
    assert [*inspection.warnings] == [warning]
    assert f"  {warning}" in [*section_lines(inspection_sections(inspection))]
    assert inspection.as_dict()["warnings"] == [warning]


def test_inspect_shows_the_rates_of_a_schedule_that_follows_the_run():
    schedules = [inspect_experiment(_config(steps)).schedule for steps in ("auto", _STEPS)]

    assert schedules[0] == schedules[1]


@pytest.mark.slow
def test_a_resume_with_more_epochs_is_another_schedule(cli, tmp_path):
    adamw = "--trainer.optimizer_config.optimizer={type: adamw, adamw: {weight_decay_rate: auto}}"
    flags = ("--experiment=digits", "--model_dir=a", "--trainer.checkpoint_interval=10", adamw)
    first = cli(*flags, "--train_epochs=1")
    again = cli(*flags, "--train_epochs=1")
    longer = cli(*flags, "--train_epochs=2")
    as_written = cli("--experiment=a/config.yaml", "--model_dir=a", "--train_epochs=2")

    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    written = (tmp_path / "a" / "config.yaml").read_text()
    assert "decay_steps: 23\n" in written
    assert f"weight_decay_rate: {1250 / 1438}\n" in written
    assert longer.returncode == 2
    assert "cosine.decay_steps: 23 → auto" in longer.stderr
    assert "to keep that of this run, set 23" in longer.stderr
    assert as_written.returncode == 0, as_written.stderr
    assert "warning: the learning rate is 0 after step 23 of 45" in as_written.stderr


@pytest.mark.slow
def test_auto_does_not_replace_another_number_of_a_run(cli):
    flags = ("--experiment=digits", "--model_dir=a", "--train_epochs=1")
    length = "--trainer.optimizer_config.learning_rate.cosine.decay_steps"
    first = cli(*flags, f"{length}=900")
    other = cli(*flags)
    overridden = cli(*flags, "--resume=override")

    assert first.returncode == 0, first.stderr
    assert other.returncode == 2
    assert "decay_steps: 900 → 23" in other.stderr
    assert overridden.returncode == 0, overridden.stderr
