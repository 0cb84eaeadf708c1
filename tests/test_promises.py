"""Each promise of the page of promises is one that a test is marked with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import promises_page

ROOT = Path(__file__).resolve().parents[1]


def marked_promises() -> list[tuple[str, str, str]]:
    return [
        promise
        for path in promises_page.test_files()
        for promise in promises_page.promises_of(path)
    ]


def test_every_mark_is_a_promise_of_a_topic():
    marks = sum(
        path.read_text(encoding="utf-8").count("@pytest.mark.promise(")
        for path in (ROOT / "tests").rglob("*.py")
        if path != Path(__file__)
    )

    assert len(marked_promises()) == marks
    assert {topic for topic, _, _ in marked_promises()} == {*promises_page.TOPICS}


def test_page_has_each_promise_once():
    page = promises_page.page()
    promises = {promise for _, promise, _ in marked_promises()}

    assert len(promises) > 40
    assert [page.count(f"\n| {promise} | ") for promise in promises] == [1] * len(promises)
    assert all(test in page for _, _, test in marked_promises())


@pytest.mark.parametrize(
    ("test", "suites"),
    [
        ("test_fault_at_a_writing_call_loses_nothing", " (`make soak SUITE=faults`)"),
        ("test_lost_worker_is_detected_and_the_run_resumes", " (`make soak SUITE=clusters`)"),
        ("test_yaml_and_gin_give_the_same_config", ""),
    ],
)
def test_suites_that_run_a_test_are_named(test, suites):
    (text,) = {text for _, _, text in marked_promises() if f"::{test}`" in text}

    assert text.endswith(f"::{test}`{suites}")
