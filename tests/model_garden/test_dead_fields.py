"""The table of settings without effect, checked against the installed package."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from orbit_runner.model_garden.unused_fields import UNUSED_FIELDS, unused_reason


@pytest.mark.parametrize("path", UNUSED_FIELDS)
def test_dead_settings_are_fields_of_the_installed_class(path: str) -> None:
    module, _, name = f"official.{path}".rpartition(".")
    cls = getattr(importlib.import_module(module), name)

    assert {*UNUSED_FIELDS[path]} <= {field.name for field in dataclasses.fields(cls)}
    for field, reason in UNUSED_FIELDS[path].items():
        assert unused_reason(cls, field) == reason
        assert unused_reason(type("Derived", (cls,), {}), field) == reason
    assert unused_reason(cls, "no_such_field") == ""
