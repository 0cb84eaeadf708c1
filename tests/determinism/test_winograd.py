"""cuDNN's Winograd convolutions: the variable is set before TensorFlow reads it, or left alone."""

from __future__ import annotations

import mmap
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.tf_environment import prepare_environment

NAME = "TF_ENABLE_WINOGRAD_NONFUSED"


@pytest.mark.parametrize(("setting", "value"), [(None, "1"), (True, "1"), (False, "0")])
def test_winograd_variable_is_overwritten_only_if_configured(
    setting: bool | None, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv(NAME, "1")

    prepare_environment(RuntimeConfig(enable_winograd_nonfused=setting))

    assert os.environ[NAME] == value


def test_installed_tensorflow_reads_the_winograd_variable() -> None:
    spec = find_spec("tensorflow")
    assert spec is not None
    assert spec.origin is not None
    library = next(Path(spec.origin).parent.glob("libtensorflow_framework.so.*"))

    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as found:
        assert found.find(NAME.encode()) > 0
