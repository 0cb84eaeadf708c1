"""The table of settings without effect, checked against the installed package."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from orbit_runner.model_garden.unsupported_fields import DEAD, why_dead


@pytest.mark.parametrize("path", DEAD)
def test_dead_settings_are_fields_of_the_installed_class(path: str) -> None:
    module, _, name = f"official.{path}".rpartition(".")
    cls = getattr(importlib.import_module(module), name)

    assert {*DEAD[path]} <= {field.name for field in dataclasses.fields(cls)}
    for field, reason in DEAD[path].items():
        assert why_dead(cls, field) == reason
        assert why_dead(type("Derived", (cls,), {}), field) == reason
    assert why_dead(cls, "no_such_field") == ""
