"""The differences that explain the first tensor that differs come first."""

import pytest

from orbit_runner.compare.records import Finding, rank_findings

FINDINGS = [
    Finding(kind="versions", name="numpy"),
    Finding(kind="numerics", name="oneDNN"),
    Finding(kind="data", name="train_data: a.npz"),
    Finding(kind="settings", name="trainer.optimizer_config.learning_rate.type"),
    Finding(kind="settings", name="task.loss"),
    Finding(kind="settings", name="task.model.dropout_rate"),
    Finding(kind="settings", name="runtime.seed"),
    Finding(kind="settings", name="name", can_change_weights=False),
]


@pytest.mark.parametrize(
    ("place", "first"),
    [
        ("weights", "runtime.seed"),
        ("batch", "train_data: a.npz"),
        ("output", "task.model.dropout_rate"),
        ("loss", "task.loss"),
        ("gradient", "task.model.dropout_rate"),
        ("update", "trainer.optimizer_config.learning_rate.type"),
    ],
)
def test_cause_depends_on_the_tensor_that_differs(place: str, first: str) -> None:
    found = rank_findings(FINDINGS, place)
    assert found[0].name == first
    assert found[-1].name == "name"
    assert sorted(one.name for one in found) == sorted(one.name for one in FINDINGS)


def test_numerics_explain_a_gradient_better_than_the_learning_rate() -> None:
    rate, numerics = FINDINGS[3], FINDINGS[1]
    assert rank_findings([rate, numerics], "gradient") == [numerics, rate]
    assert rank_findings([numerics, rate], "update") == [rate, numerics]


def test_changed_checkpoint_comes_first() -> None:
    edit = Finding(kind="checkpoint", name="the checkpoint of step 8 of B was changed")
    assert rank_findings([*FINDINGS, edit], "weights")[0] is edit


def test_settings_come_first_if_no_tensor_is_known() -> None:
    assert [one.kind for one in rank_findings(FINDINGS)][:5] == [*["settings"] * 4, "data"]
