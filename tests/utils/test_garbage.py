"""Pauses of Python's garbage collection: when they end, and what they leave alone."""

from __future__ import annotations

import gc

import pytest

from orbit_runner.utils import garbage_collection


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    monkeypatch.setattr(garbage_collection, "_freezes_after_pauses", False)
    gc.unfreeze()  # Other tests, and conftest.py, may have frozen objects.
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.parametrize("freezes", [False, True])
def test_collection_is_paused_only_inside_the_block(freezes):
    if freezes:
        garbage_collection.freeze_after_pauses()
    with garbage_collection.paused_collection_scope():
        assert not gc.isenabled()
        with garbage_collection.paused_collection_scope():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    assert (gc.get_freeze_count() > 1000) is freezes


def test_collection_disabled_by_the_program_stays_disabled():
    gc.disable()
    with garbage_collection.paused_collection_scope():
        pass
    assert not gc.isenabled()
