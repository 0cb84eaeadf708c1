"""`runner run` given bad input: all errors at once, with their codes."""

import json

import pytest

from orbit_runner.cli.main import main
from orbit_runner.launch import LAUNCHED
from tests.support.problems import check, error_of, fails, problems_of


@pytest.mark.usefixtures("no_tensorflow")
def test_all_errors_are_reported_in_one_message():
    flags = ["--data_dir=nowhere", "--mode=trian", "--model_dir=/proc/x"]

    problems = problems_of(error_of(["--experiment=mnist", *flags]))

    check(
        problems,
        ("not-allowed", "--mode"),
        ("not-writable", "--model_dir"),
        ("missing-file", "task.train_data.data_dir"),
        ("missing-file", "task.validation_data.data_dir"),
    )
    assert {str(problem.origin) for problem in problems[2:]} == {"--data_dir"}


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        (
            ["--trainer.best_checkpoint_eval_metric=acuracy"],
            "unknown-name",
            "trainer.best_checkpoint_eval_metric",
        ),
        (
            ["--task.init_checkpoint=nowhere"],
            "no-checkpoint",
            "task.init_checkpoint",
        ),
    ],
)
def test_settings_unsuited_to_machine_or_model_are_rejected(arguments, code, path, tmp_path):
    fails(["--experiment=digits", f"--model_dir={tmp_path}/run", *arguments], code, path)


def test_missing_gpus_are_an_error(tmp_path):
    flags = ["--num_gpus=64", "--distribution_strategy=mirrored", f"--model_dir={tmp_path}/run"]
    (problem,) = problems_of(error_of(["--experiment=digits", *flags]))
    # The text depends on the machine.
    assert (problem.code, problem.path) == ("not-allowed", "runtime.num_gpus")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "launched"),
    [
        (["--experiment=no_such_experiment"], 2, False),
        (["--experiment=no_such_experiment"], 2, True),
        (
            [
                *("--experiment=digits_mlp", "--task.model.hidden_units=[4]", "--train_steps=2"),
                "--trainer.optimizer_config.learning_rate.constant.learning_rate=1e38",
            ],
            3,
            True,
        ),
    ],
    ids=["alone", "before the run", "in the run"],
)
def test_process_of_a_launcher_prints_no_error_as_json(
    capsys, monkeypatch, tmp_path, arguments, exit_code, launched
):
    """The launcher may start it again, and its standard output has the results of all starts."""
    if launched:
        monkeypatch.setenv(LAUNCHED, "1")

    assert main(["run", *arguments, f"--model_dir={tmp_path}", "--json"]) == exit_code

    output = capsys.readouterr().out
    assert output == "" if launched else json.loads(output).keys() == {"errors"}
