"""The records of two runs are compared without running them."""

import json
from dataclasses import replace

import pytest

from orbit_runner.compare.histories import LossDiff
from orbit_runner.repeat.records import RecordedRun, Reruns, compare_recorded
from orbit_runner.step.tensor_comparison import TensorDifference
from tests.support.run_directories import write_run

WEIGHTS = {100: "a", 200: "b", 300: "c"}
OTHER = {100: "a", 200: "x", 300: "y"}
SOFTWARE = {"tensorflow": "2.20.0", "numpy": "2.0.0"}


def _compare(folder):
    runs = [RecordedRun(folder / name, name.upper()) for name in ("a", "b")]
    return compare_recorded(*runs)


def _write_data(run, **files):
    rows = [
        {"name": name, "bytes": size, "mtime_ns": 0, "digest": digest, "files": 1}
        for name, (size, digest) in files.items()
    ]
    record = {"format": 1, "sections": {"train_data": rows}, "changes": []}
    (run / "data.json").write_text(json.dumps(record))


def _code(**changed):
    return {
        "revision": "ab" * 20,
        "changed": {f"{name}.py": change for name, change in changed.items()},
    }


def _pair(folder, left, right):
    base = {"software": SOFTWARE, "code": _code()}
    for name, weights, values in (("a", WEIGHTS, left), ("b", OTHER, right)):
        run = write_run(folder / name, **{**base, "weights": weights, **values})
        if not (run / "data.json").exists():
            _write_data(run, one=(3, "sha256:1"))
    return _compare(folder)


def test_equal_runs(tmp_path):
    explanation = _pair(tmp_path, {}, {"weights": WEIGHTS})
    assert explanation.equal
    assert explanation.verdict == "equal: 3 checkpoints up to step 300"
    assert explanation.causes == []
    assert explanation.unknown == []


def test_runs_of_other_lengths_are_equal_as_far_as_both_go(tmp_path):
    explanation = _pair(tmp_path, {}, {"weights": {100: "a", 200: "b"}})
    assert explanation.verdict == "equal: 2 checkpoints up to step 200"


def test_setting_and_first_checkpoint_are_named(tmp_path):
    flags = [("task.model.dropout_rate", "0.3"), ("trainer.max_to_keep", "9")]
    explanation = _pair(tmp_path, {}, {"flags": flags})
    assert not explanation.equal
    assert explanation.verdict == (
        "task.model.dropout_rate differs (0.4 and 0.3); "
        "the weights differ at step 200, and are equal at step 100"
    )
    # The other setting cannot change the weights.
    assert [cause.name for cause in explanation.causes] == ["task.model.dropout_rate"]


@pytest.mark.parametrize(
    ("left", "right", "cause"),
    [
        ({}, {"software": {**SOFTWARE, "numpy": "1.26.0"}}, "numpy differs (2.0.0 and 1.26.0)"),
        ({}, {"devices": {"gpus": ["H200"]}}, "devices differ (CPU and H200)"),
        ({}, {"software": {**SOFTWARE, "PyYAML": "6"}}, "no recorded difference explains it"),
    ],
)
def test_package_or_device_is_the_cause_if_no_setting_differs(left, right, cause, tmp_path):
    explanation = _pair(tmp_path, left, right)
    assert explanation.verdict.startswith(f"{cause}; ")


def test_data_is_compared_file_by_file(tmp_path):
    for name, digest, size in (("a", "sha256:22", 4), ("b", "sha256:33", 5)):
        (tmp_path / name).mkdir()
        _write_data(tmp_path / name, one=(3, "sha256:1"), two=(4, digest), three=(size, ""))
    records = {name: (tmp_path / name / "data.json").read_text() for name in "ab"}
    for name in "ab":
        (tmp_path / name / "data.json").unlink()
        (tmp_path / name).rmdir()
    _pair(tmp_path, {}, {})
    for name, text in records.items():
        (tmp_path / name / "data.json").write_text(text)
    explanation = _compare(tmp_path)
    assert [(cause.name, cause.values) for cause in explanation.causes] == [
        ("train_data: two", "sha256:22 and sha256:33"),
        ("train_data: three", "4 bytes and 5 bytes"),
    ]
    assert explanation.verdict.startswith("train_data: two differs (sha256:22 and sha256:33); ")


def test_code_that_differs_is_named(tmp_path):
    sides = [_code(net=digest) for digest in ("1" * 16, "2" * 16)]
    explanation = _pair(tmp_path, {"code": sides[0]}, {"code": sides[1]})
    assert [(cause.name, cause.values) for cause in explanation.causes] == [
        ("net.py", "changed (11111111) and changed (22222222)")
    ]
    assert explanation.verdict.startswith("net.py differs (changed (11111111) and ")


def test_files_that_only_one_run_changed_and_other_revisions_are_named(tmp_path):
    other = {"revision": "cd" * 20, "changed": {"net.py": "1" * 16}}
    explanation = _pair(tmp_path, {}, {"code": other})
    assert [(cause.name, cause.values) for cause in explanation.causes] == [
        ("git revision", "abababababab and cdcdcdcdcdcd"),
        ("net.py", "as committed and changed (11111111)"),
    ]


def test_missing_records_are_not_compared(tmp_path):
    _pair(tmp_path, {}, {"software": None, "code": None})
    (tmp_path / "b/data.json").unlink()
    (tmp_path / "b/config.yaml").unlink()
    explanation = _compare(tmp_path)
    assert (explanation.causes, explanation.unknown) == ([], ["B: it has no config.yaml"])
    assert explanation.verdict.startswith("not known, because a config cannot be read; ")


def test_config_that_cannot_be_built_is_named(tmp_path):
    _pair(tmp_path, {}, {})
    path = tmp_path / "b/config.yaml"
    text = path.read_text().replace("name: image_classification", "name: not_installed")
    path.write_text(text)
    explanation = _compare(tmp_path)
    assert explanation.causes == []
    assert explanation.unknown[0].startswith("B: task.name: ")
    assert explanation.verdict.startswith("not known, because a config cannot be read; ")


@pytest.mark.parametrize(
    ("flags", "loss"),
    [([], LossDiff(200, 1.0, 1.5)), ([("trainer.summary_interval", "25")], None)],
)
def test_losses_are_compared_if_they_are_means_over_the_same_steps(flags, loss, tmp_path):
    explanation = _pair(tmp_path, {}, {"losses": (2.0, 1.5, 0.5), "flags": flags})
    assert explanation.recorded.loss == loss


def test_runs_without_a_common_checkpoint_are_not_equal(tmp_path):
    explanation = _pair(tmp_path, {}, {"weights": {150: "a"}})
    assert not explanation.equal
    assert explanation.verdict.endswith("; no checkpoint of the same step")


def _reruns(**values):
    tensor = TensorDifference(place="gradient", name="w", step=150)
    base = {"start": 100, "end": 200, "first_step": 150, "tensor": tensor, "repeats": (True, True)}
    return Reruns(**{**base, **values})


def test_only_records_count_if_a_rerun_does_not_repeat_its_run(tmp_path):
    explanation = _pair(tmp_path, {}, {"software": {**SOFTWARE, "numpy": "1.26.0"}})
    assert replace(explanation, reruns=_reruns()).verdict.endswith(
        "; first differing tensor: gradient of w at step 150"
    )
    verdict = replace(
        explanation, reruns=_reruns(repeats=(True, False), notes=["a rerun of B does not"])
    ).verdict
    assert verdict.endswith("; the weights differ at step 200, and are equal at step 100")
