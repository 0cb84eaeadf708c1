"""The measured memory of a step, against sizes known by hand."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from orbit_runner.cli.main import main


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "units"), [(1024, 128), (16, 4096)])
def test_measured_peak_is_that_of_the_tensors_of_a_step(
    batch: int, units: int, capsys: pytest.CaptureFixture[str]
) -> None:
    size = f"--task.train_data.global_batch_size={batch}"
    layers = f"--task.model.hidden_units=[{units},{units}]"

    assert main(["inspect", "digits_mlp", size, layers, "--measure", "--json", "--quiet"]) == 0

    found = json.loads(capsys.readouterr().out)
    memory, measured = found["memory"], found["measured"]
    assert measured["device"] == "CPU:0"
    held = memory["weights"] + memory["optimizer"] + memory["inputs"]
    # The backward pass reads the normalized pixels, and the outputs of both layers before and after
    # dropout.
    activations = batch * (64 + 4 * units) * 4
    most = held + 3 * (activations + memory["gradients"])
    assert held + activations < measured["peak_bytes"] < most


@pytest.mark.parametrize(
    ("program", "exit_code", "message"),
    [
        (
            "echo broken >&2; exit 7",
            7,
            "--measure: the process that measures .* exited with code 7\n.*\nbroken",
        ),
        ("kill -9 $$", 137, "--measure: the process that .* was killed by SIGKILL\ntry a smaller"),
    ],
)
def test_error_of_the_measuring_process_is_shown(
    program: str,
    exit_code: int,
    message: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))

    assert main(["inspect", "digits_mlp", "--measure", "--quiet"]) == exit_code

    assert re.search(message, capfd.readouterr().err)
