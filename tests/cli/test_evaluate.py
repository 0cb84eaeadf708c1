"""`runner evaluate`: results of a checkpoint on any data, apart from the records of training."""

import contextlib
import errno
import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbit_runner import TaskConfig
from orbit_runner.cli.commands.evaluate import _split_setting
from orbit_runner.cli.main import main
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import to_yaml
from orbit_runner.registry import (
    ARRAY_SOURCES,
    RATING_SOURCES,
    SOURCES,
    TABLE_SOURCES,
    TEXT_SOURCES,
)
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig
from orbit_runner.tasks.keras.config import KerasConfig, KerasDataConfig
from orbit_runner.tasks.shared_config import TableSplitConfig
from orbit_runner.tasks.tabular.config import TabularConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from tests.support.keras_models import keras_config
from tests.support.problems import fails, output_of
from tests.support.toy import run as run_in_process

# TensorFlow fixes the thread settings of the test process at its first op.
RUN = ["run", "--experiment=digits_mlp", "--runtime.intra_op_threads=0", "--train_steps=60",
       "--task.model.hidden_units=[16]", "--trainer.validation_interval=20",
       "--trainer.optimizer_config.ema.average_decay=0.9",
       "--trainer.best_checkpoint_export_subdir=best",
       "--trainer.best_checkpoint_eval_metric=accuracy"]  # fmt: skip
BAD = "tests.train.test_divergence"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of 60 steps that keeps an average of the weights and the best checkpoint."""
    run = tmp_path_factory.mktemp("trained") / "run"
    assert main([*RUN, f"--model_dir={run}"]) == 0
    return run


Evaluate = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def evaluate(trained):
    """Evaluates the run, once with the same arguments; returns the results."""

    @functools.cache
    def call(*arguments: str) -> dict[str, Any]:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            assert main(["evaluate", str(trained), "--json", *arguments]) == 0
        return json.loads(printed.getvalue())

    return call


def _recorded(run: Path, step: int) -> dict[str, Any]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    (record,) = (
        candidate
        for candidate in lines
        if (candidate["split"], candidate["step"]) == ("validation", step)
    )
    extra = ("split", "step", "time", "steps_per_second")
    return {name: value for name, value in record.items() if name not in extra}


def _float32(metrics: dict[str, float]) -> dict[str, np.float32]:
    return {name: np.float32(value) for name, value in metrics.items()}


def _state(run: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.parent.name != "evaluations"
    }


@pytest.mark.promise("commands", "`runner evaluate` gives the recorded results and changes nothing")
def test_checkpoints_give_the_recorded_results_and_change_nothing(trained, evaluate):
    before = _state(trained)
    last, best = evaluate(), evaluate("--checkpoint=best")
    assert (last["step"], last["weights"], last["data"]) == (60, "average", {})
    assert _float32(last["metrics"]) == _float32(_recorded(trained, 60))
    assert _float32(best["metrics"]) == _float32(_recorded(trained, best["step"]))
    assert best["checkpoint"].startswith("best/best-")
    assert _state(trained) == before
    for results in (last, best):
        written = json.loads(Path(results["file"]).read_text())
        assert written == {key: value for key, value in results.items() if key != "file"}


def test_result_of_a_run_that_cannot_be_written_is_printed(evaluate, monkeypatch):
    def refuse(path: Path, content: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr("orbit_runner.run_directory.evaluations.write_atomically", refuse)
    results = evaluate.__wrapped__()  # Not the result of an earlier test.
    assert results["file"] is None
    assert results["metrics"]["validation_examples"] > 0


def test_plain_weights_are_those_of_the_checkpoint(trained, evaluate):
    plain = evaluate("--weights=plain")
    record = json.loads((trained / "checkpoints" / "ckpt-60.json").read_text())
    assert plain["weights_sha256"] == record["weights"]
    assert plain["metrics"] != _recorded(trained, 60)


@pytest.mark.slow
def test_another_split_is_named(trained, evaluate):
    results = evaluate("--split=train")
    assert results["data"] == {"task.validation_data.split": "train"}
    assert results["metrics"]["validation_examples"] == 1438
    printed = output_of(["evaluate", str(trained), "--split=train"])
    assert "task.validation_data.split: train" in printed
    assert "validation_examples  1438" in printed
    assert "\nClasses\n" in printed
    assert "Expected calibration error 0." in printed


def test_report_lists_evaluations_apart(trained, evaluate):
    accuracy = evaluate("--split=train")["metrics"]["accuracy"]
    assert main(["report", str(trained)]) == 0
    page = (trained / "report.html").read_text()
    assert "Evaluations of checkpoints" in page
    assert "task.validation_data.split: train" in page.replace("<wbr>", "")
    assert f"accuracy {accuracy:.4g}" in page


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        (["--split=tset"], "unknown-name", "task.validation_data.split"),
        (["--trainer.train_steps=3"], "unknown-flag", "--trainer.train_steps"),
    ],
)
def test_mistakes_are_errors(trained, arguments, code, path):
    fails(["evaluate", str(trained), *arguments], code, path)


@pytest.mark.parametrize(
    ("task", "setting"),
    [
        (ImageClassificationConfig(validation_data=ImageDataConfig(source="digits")), "split"),
        (ImageClassificationConfig(validation_data=ImageDataConfig(source="tfds")), "tfds_split"),
        (KerasConfig(validation_data=KerasDataConfig(source="tfds")), "tfds_split"),
        (TabularConfig(validation_data=TableDataConfig(source="tfds")), "tfds_split"),
        (
            TabularConfig(
                validation_data=TableDataConfig(source="tfds"),
                split=TableSplitConfig(),
            ),
            "split",
        ),
        (TaskConfig(), "split"),
    ],
)
def test_source_declares_the_setting_of_its_split(task, setting):
    assert _split_setting(ExperimentConfig(task=task)) == setting


def test_each_source_with_a_setting_for_its_split_declares_it():
    registries = (SOURCES, TABLE_SOURCES, TEXT_SOURCES, RATING_SOURCES, ARRAY_SOURCES)
    for entry in [entry for registry in registries for entry in registry.registered()]:
        own = [
            name for name in entry.traits.settings if name in ("tfds_split", "hugging_face_split")
        ]
        assert [entry.traits.split_setting] == (own or ["split"]), entry.name


def test_speed_of_the_run_is_that_of_training(trained):
    (attempt,) = json.loads((trained / "run.json").read_text())["attempts"]
    assert "steps_per_second" not in attempt["metrics"]
    trains = [
        record["steps_per_second"]
        for record in map(json.loads, (trained / "metrics.jsonl").read_text().splitlines())
        if record["split"] == "train"
    ]
    assert attempt["steps_per_second"] == pytest.approx(trains[-1])


@pytest.mark.slow
def test_results_that_are_not_finite_exit_with_3(tmp_path, capsys):
    config = keras_config(task__model=f"{BAD}:logarithmic", trainer__train_steps=10)
    run_in_process(config, tmp_path)
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    data = [
        f"--task.validation_data.function={BAD}:with_bad_rows",
        "--task.validation_data.arguments={bad: [5]}",
    ]
    assert main(["evaluate", str(tmp_path), *data]) == 3
    out, err = capsys.readouterr()
    assert "validation_loss      nan  (not finite)" in out
    assert "is not finite: validation_loss is nan" in err

    run = ["run", f"--experiment={tmp_path}", f"--model_dir={tmp_path}", "--mode=eval"]
    results = json.loads(output_of([*run, *data, "--json"], exit_code=3))
    assert results["non_finite_metrics"] == ["validation_loss"]
    (attempt,) = json.loads((tmp_path / "run.eval.json").read_text())["attempts"]
    assert attempt["outcome"] == "done"
    assert attempt["non_finite_metrics"] == ["validation_loss"]
    assert attempt["data"] == results["data"] != {}


@pytest.mark.slow
def test_training_data_need_not_be_there(tmp_path):
    for name, count in (("train", 40), ("new", 15)):
        rows = "".join(f"{n % 7},{n % 5},{n % 7 + n % 5}\n" for n in range(count))
        (tmp_path / f"{name}.csv").write_text(f"a,b,y\n{rows}")
    sections = [
        f"--task.{section}.{setting}"
        for section in ("train_data", "validation_data")
        for setting in ("source=csv", f"input_path={tmp_path}/train.csv", "global_batch_size=8")
    ]
    (tmp_path / "table.yaml").write_text(
        "task:\n  name: tabular\n  features: {numeric: [a, b]}\n"
        "  target: {column: y, type: regression}\n  model: {name: mlp}\n"
        "trainer:\n  train_steps: 3\n  optimizer_config:\n    optimizer: {type: sgd}\n"
        "    learning_rate: {type: constant, constant: {learning_rate: 0.01}}\n"
    )
    start = ["run", f"--experiment={tmp_path}/table.yaml", "--runtime.intra_op_threads=0"]
    run = str(tmp_path / "run")
    assert main([*start, *sections, f"--model_dir={run}"]) == 0
    (tmp_path / "train.csv").unlink()
    new = f"--task.validation_data.input_path={tmp_path}/new.csv"
    results = json.loads(output_of(["evaluate", run, new, "--json"]))
    assert results["metrics"]["validation_examples"] == 15
    assert results["data"] == {"task.validation_data.input_path": f"{tmp_path}/new.csv"}


def test_details_are_written(trained, evaluate):
    values = evaluate()

    counts = [count for *_, count in values["details"]["confusion"]]
    assert sum(counts) == values["metrics"]["validation_examples"]
    assert values["details"]["pictures"] == []
    right = sum(n for a, b, n in values["details"]["confusion"] if a == b)
    assert right / sum(counts) == pytest.approx(values["metrics"]["accuracy"], abs=1e-6)
    assert main(["report", str(trained)]) == 0
    page = (trained / "report.html").read_text().replace("<wbr>", "")
    assert ", evaluated at " in page


def test_an_evaluation_whose_details_fail_has_its_results(trained, capsys, monkeypatch):
    from orbit_runner.reporting import report_collection

    def fail(*arguments: Any) -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr(report_collection, "collect_details", fail)

    assert main(["evaluate", str(trained)]) == 0

    captured = capsys.readouterr()
    assert "accuracy" in captured.out
    assert captured.err.endswith("warning: the evaluation has no examples: no such thing\n")


@pytest.mark.slow
def test_json_is_one_document_whatever_libraries_print(trained, monkeypatch, capsys):
    from orbit_runner.serving.evaluation import CheckpointEvaluation

    evaluate = CheckpointEvaluation.evaluate

    def evaluate_and_print(evaluation: CheckpointEvaluation) -> Any:
        print("creating index...")
        return evaluate(evaluation)

    monkeypatch.setattr(CheckpointEvaluation, "evaluate", evaluate_and_print)
    assert main(["evaluate", str(trained), "--json"]) == 0
    output = capsys.readouterr()
    assert "creating index..." in output.err
    assert json.loads(output.out)["metrics"]
