"""What a run says at its start, in `run.json`, in its report, and in an inspection."""

import json
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.serialize import to_yaml
from orbit_runner.train.run_warnings import better_values, run_warnings
from tests.support.problems import output_of
from tests.support.tables import make_rows, table_config, write_csv
from tests.support.toy import toy_config


@pytest.mark.slow
def test_shared_examples_are_reported_at_the_start_in_the_report_and_by_inspect(here, capsys):
    rows = write_csv(here / "rows.csv", make_rows())
    config = table_config(rows, task__split=None, trainer__train_steps=2)
    (here / "a.yaml").write_text(to_yaml(config))
    text = "100 of 100 validation rows have the features of training rows, such as "

    assert main(["run", "--experiment=a.yaml", "--model_dir=run"]) == 0
    stderr = capsys.readouterr().err
    (attempt,) = json.loads(Path("run/run.json").read_text())["attempts"]
    assert main(["report", "run"]) == 0
    inspected = json.loads(output_of(["inspect", "a.yaml", "--json"]))
    output = output_of(["inspect", "a.yaml", "--html=a.html"])

    assert stderr.count(f"warning: {text}") == 1
    (warning,) = attempt["warnings"]
    assert warning.startswith(text)
    assert text in Path("run/report.html").read_text()
    assert inspected["warnings"] == [warning]
    assert f"\n  {text}" in output
    assert text in Path("a.html").read_text()


@pytest.mark.parametrize(
    ("metric", "better"),
    [
        ("validation_loss", "lower"),
        ("sparse_categorical_crossentropy", "lower"),
        ("mean_squared_error", "lower"),
        ("rmse", "lower"),
        ("accuracy", "higher"),
        ("top_5_accuracy", "higher"),
        ("AUC", "higher"),
        ("hr_at_10", "higher"),
        ("bleu", "higher"),
        ("profit", ""),
        ("accuracy_loss", ""),
    ],
)
def test_names_of_metrics_tell_which_values_are_better(metric, better):
    assert better_values(metric) == better


def test_direction_that_prefers_the_worst_evaluation_is_named():
    wrong = toy_config(
        trainer__early_stopping="{metric: accuracy, patience: 2}",
        trainer__best_checkpoint_export_subdir="best",
        trainer__best_checkpoint_eval_metric="validation_loss",
    )
    best, stopping = run_warnings(wrong, None)

    assert best.startswith("trainer.best_checkpoint_metric_comp is higher, but lower values of")
    assert stopping.startswith("trainer.early_stopping.metric_comp is lower, but higher values of")
    right = toy_config(
        trainer__early_stopping="{metric: validation_loss, patience: 2}",
        trainer__best_checkpoint_export_subdir="best",
        trainer__best_checkpoint_eval_metric="accuracy",
    )
    assert run_warnings(right, None) == []
