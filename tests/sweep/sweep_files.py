"""Sweep files and made-up states of runs, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orbit_runner.config.parsing.yaml_files import load_text
from orbit_runner.sweep.definition import Sweep, new_sweep, resolve_base
from orbit_runner.sweep.run_state import RunState
from orbit_runner.sweep.sweep_file import SweepFile, parse_sweep

RATE = "trainer.optimizer_config.learning_rate.constant.learning_rate"
TEXT = f"""\
experiment: digits_mlp
overrides:
  trainer: {{train_steps: 60, validation_interval: 20, checkpoint_interval: 20}}
  task.model: {{hidden_units: [16]}}
space:
  {RATE}: {{log_uniform: [1.0e-4, 1.0e-2]}}
  task.model.dropout_rate: [0.0, 0.3]
objective: {{metric: accuracy, mode: max}}
search: {{type: random, trials: 8, seed: 1, halving: {{rungs: [20, 40], keep: 0.5}}}}
"""


def parsed(text: str = TEXT) -> SweepFile:
    return parse_sweep(load_text(text, "s.yaml", 0), "s.yaml")


def sweep_of(text: str = TEXT) -> Sweep:
    file = parsed(text)
    return new_sweep(file, resolve_base(file))


def write(folder: Path, text: str = TEXT, name: str = "s.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def state(values: Mapping[int, float], *, end: int = 0) -> RunState:
    """Returns the state of a run that was evaluated and saved at steps."""
    return RunState(
        metrics={step: {"accuracy": value} for step, value in values.items()},
        weights={step: f"weights-{step}" for step in values},
        end=end or None,
    )
