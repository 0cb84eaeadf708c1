"""What the report shows of Model Garden's tasks."""

import pytest

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.reporting.report_data import read_data
from orbit_runner.reporting.report_writer import ReportWriter
from tests.support.official_photos import SmallPhotoTask, photos
from tests.support.official_runs import run_official
from tests.support.official_toys import line
from tests.support.toy import records


@pytest.mark.slow
@pytest.mark.parametrize("one_hot", [True, False])
def test_image_classification_has_a_confusion_matrix(one_hot, tmp_path, monkeypatch):
    params = photos(tmp_path)
    params.task.losses.one_hot = one_hot
    # The examples may take 20 s.
    monkeypatch.setattr("orbit_runner.reporting.report_writer._PART", 1e9)
    params.trainer.validation_steps = 6
    params.trainer.validation_interval = 3
    run = tmp_path / "run"
    run.mkdir()
    # A report is due after each loop.
    writer = ReportWriter(run, 0.001)

    model, logs = run_official(params, run, task_class=SmallPhotoTask, callbacks=[writer])

    data = read_data(run)
    counts = data.evaluation.confusion
    assert sum(count for *_, count in counts) == 24
    correct = sum(count for label, other, count in counts if label == other)
    assert correct / 24 == pytest.approx(float(logs["accuracy"]))
    assert [sum(n for a, _, n in counts if a == label) for label in range(3)] == [8] * 3
    assert data.inputs.step is None  # The pipeline cannot make the batch of a step.
    assert len(data.inputs.pictures) == 4
    assert data.model.layers[-1].shape == (3,)
    if one_hot:
        without, _ = run_official(params, tmp_path / "other", task_class=SmallPhotoTask)
        assert weights_fingerprint(model) == weights_fingerprint(without)
        assert _records(run) == _records(tmp_path / "other")


def _records(run):
    return [_values(record) for split in ("train", "validation") for record in records(run, split)]


def _values(record):
    timed = ("time", "steps_per_second", "tflops_per_second", "mfu")
    return {k: v for k, v in record.items() if k not in timed and not k.startswith("system/")}


def test_other_tasks_have_a_batch_and_layers_only(tmp_path):
    tmp_path.joinpath("run").mkdir()
    writer = ReportWriter(tmp_path / "run", 0.001)

    run_official(line(), tmp_path / "run", callbacks=[writer])

    data = read_data(tmp_path / "run")
    assert data.evaluation is None
    assert data.inputs.tensors
    assert data.model.layers
