"""Evaluations beside training, and runs that are resumed with other validation data."""

import json
import shutil
from pathlib import Path

import pytest

from orbit_runner.config.serialize import to_yaml
from orbit_runner.run_directory.evaluations import evaluated_data, read_evaluations
from orbit_runner.run_directory.metric_records import MetricLog
from tests.support.digits import digits_config
from tests.support.keras_models import BASE, keras_config
from tests.support.tables import make_rows, table_config, write_csv
from tests.support.toy import Notes, config_of, run

_KEEPS_BEST = {
    "task__metrics": "[sparse_categorical_accuracy]",
    "trainer__best_checkpoint_export_subdir": "best",
    "trainer__best_checkpoint_eval_metric": "sparse_categorical_accuracy",
    "trainer__best_checkpoint_metric_comp": "higher",
}
_TEST_DATA = {"task__validation_data__arguments": "{count: 41, seed: 5}"}


def _train(folder, **changes):
    config = keras_config(**{**_KEEPS_BEST, **changes})
    run(config, folder)
    (folder / "config.yaml").write_text(to_yaml(config))


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("once") / "run"
    _train(folder)
    return folder


@pytest.fixture
def trained(once, tmp_path):
    """A run of 20 steps, to be changed."""
    return Path(shutil.copytree(once, tmp_path / "run"))


def _files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock" and path.parent.name != "evaluations"
    }


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, _TEST_DATA])
def test_evaluation_writes_a_file_of_its_own_and_no_curve(trained, changes):
    files, notes = _files(trained), Notes()

    _, logs = run(keras_config(**_KEEPS_BEST, **changes), trained, "eval", notes=notes)

    assert _files(trained) == files  # Neither records, nor the best checkpoint, nor event files.
    (record,) = read_evaluations(trained)
    assert (record["step"], record["checkpoint"]) == (20, "checkpoints/ckpt-20")
    assert record["metrics"]["validation_loss"] == pytest.approx(logs["validation_loss"])
    assert record["metrics"]["validation_examples"] == (41 if changes else 37)
    assert record["data"] == {
        f"task.validation_data.arguments.{name}": value
        for name, value in ({"count": 41, "seed": 5} if changes else {}).items()
    }
    warnings = [text for text in notes.notes if "are not those of the run" in text]
    assert len(warnings) == bool(changes)
    assert not changes or "task.validation_data.arguments.count: 41" in warnings[0]


@pytest.mark.parametrize(
    ("make", "changes", "is_other"),
    [
        (keras_config, {}, False),
        (keras_config, {"task__validation_data__prefetch_buffer_size": 3}, False),
        (keras_config, {"task__validation_data__global_batch_size": 8}, False),
        (keras_config, {"task__train_data__arguments": "{count: 50}"}, False),
        (keras_config, {"task__metrics": "[mean_squared_error]"}, False),
        (keras_config, {"trainer__validation_steps": 1}, True),
        (keras_config, {"task__validation_data__drop_remainder": "true"}, True),
        (keras_config, _TEST_DATA, True),
        (keras_config, {"task__loss": "sparse_categorical_crossentropy"}, True),
        (digits_config, {"task__model__dropout_rate": 0.4}, False),
        (digits_config, {"task__losses__label_smoothing": 0.2}, True),
        (digits_config, {"task__validation_data__split": "train"}, True),
    ],
)
def test_settings_that_change_what_is_evaluated(tmp_path, make, changes, is_other):
    (tmp_path / "config.yaml").write_text(to_yaml(make()))
    assert bool(evaluated_data(tmp_path, make(**changes))) == is_other


def test_batch_size_counts_if_it_decides_how_many_examples_are_evaluated(tmp_path):
    steps = {"trainer__validation_steps": 2}
    (tmp_path / "config.yaml").write_text(to_yaml(keras_config(**steps)))
    other = evaluated_data(
        tmp_path, keras_config(**steps, task__validation_data__global_batch_size=8)
    )
    assert other == {"task.validation_data.global_batch_size": 8}


def test_held_out_part_of_the_training_data(tmp_path):
    base = {path: value for path, value in BASE.items() if "validation_data" not in path}
    base |= {"task.validation_split": 0.2, "task.validation_data.global_batch_size": 8}
    (tmp_path / "config.yaml").write_text(to_yaml(config_of(base)))
    assert evaluated_data(tmp_path, config_of(base, task__validation_split=0.3))
    assert evaluated_data(tmp_path, config_of(base, task__train_data__arguments="{count: 50}"))
    larger_batches = config_of(base, task__train_data__global_batch_size=8)
    assert not evaluated_data(tmp_path, larger_batches)
    # The examples that are left out of training stay in the part that is held out.
    for name, value in {"exclude": "[3]", "class_sampling": "balanced"}.items():
        config = config_of(base, **{f"task__train_data__{name}": value})
        assert not evaluated_data(tmp_path, config)


def test_part_of_the_training_table_changes_with_the_table(tmp_path):
    base = {
        "task.name": "keras",
        "task.split": "{fractions: {train: 0.8, validation: 0.2}}",
        "task.train_data": "{source: csv, input_path: a.csv, global_batch_size: 4}",
        "task.outputs": "y",
        "task.validation_data.global_batch_size": 4,
    }
    base = {**{path: value for path, value in BASE.items() if "_data" not in path}, **base}
    (tmp_path / "config.yaml").write_text(to_yaml(config_of(base)))
    excluding = config_of(base, task__train_data__exclude="[3]")
    assert not evaluated_data(tmp_path, excluding)
    other = evaluated_data(tmp_path, config_of(base, task__train_data__input_path="b.csv"))
    assert [*other] == ["task.train_data.input_path"]


def test_files_that_changed_are_other_data(tmp_path):
    from orbit_runner.run_directory.data_record import DataRecord, fingerprint_of

    path = write_csv(tmp_path / "rows.csv", make_rows(50))
    config = table_config(path)
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    DataRecord(tmp_path, fingerprint_of(config.task)).write()
    assert not evaluated_data(tmp_path, config)
    write_csv(path, make_rows(51))
    other = evaluated_data(tmp_path, config)
    assert [*other] == ["files"]
    assert "rows.csv: " in other["files"][0]


@pytest.mark.slow
def test_resume_with_other_validation_data_starts_comparisons_anew(tmp_path):
    """Earlier results are neither the best nor a limit for early stopping any more."""
    stopping = {
        "trainer__early_stopping": "{metric: sparse_categorical_accuracy, patience: 3}",
        "trainer__best_checkpoints_to_keep": 2,
    }
    _train(tmp_path, **stopping)
    notes = Notes()
    resumed = keras_config(**_KEEPS_BEST, **_TEST_DATA, **stopping, trainer__train_steps=30)
    run(resumed, tmp_path, notes=notes, resume="override")
    curves = MetricLog(tmp_path / "metrics.jsonl").curves()[0]
    assert curves["validation", "validation_examples"] == {10: 37, 20: 37, 30: 41}
    info = json.loads((tmp_path / "best" / "info.json").read_text())
    assert info["best_ckpt_global_step"] == 30
    assert any("are of other data or losses than before" in text for text in notes.notes)


@pytest.mark.slow
def test_resume_at_the_last_step_records_the_evaluation_of_the_new_data(trained):
    run(keras_config(**_KEEPS_BEST, **_TEST_DATA), trained, resume="override")
    curves = MetricLog(trained / "metrics.jsonl").curves()[0]
    assert curves["validation", "validation_examples"] == {10: 37, 20: 41}


@pytest.mark.slow
def test_resume_with_another_best_metric_forgets_the_best_result(trained):
    loss = {
        "trainer__best_checkpoint_eval_metric": "validation_loss",
        "trainer__best_checkpoint_metric_comp": "lower",
    }
    run(keras_config(**{**_KEEPS_BEST, **loss}, trainer__train_steps=30), trained)
    info = json.loads((trained / "best" / "info.json").read_text())
    assert info["best_ckpt_global_step"] == 30
    curves = MetricLog(trained / "metrics.jsonl").curves()[0]
    assert [*curves["validation", "validation_loss"]] == [10, 20, 30]
