"""Why the results of a run may not be what they seem, as far as its config and data tell."""

from __future__ import annotations

from orbit_runner.config.schedule_length import describe_early_end
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.tasks.shared_examples import find_shared_examples
from orbit_runner.train.schedule import Plan


def run_warnings(config: ExperimentConfig, plan: Plan | None) -> list[str]:
    """Returns the warnings that a run shows at its start, and `runner inspect`.

    `config` has local paths, and a schedule with a number of steps. `plan` is None if the length of
    the run is unknown.
    """
    found = find_shared_examples(config)
    early_end = describe_early_end(config, plan.train_steps) if plan is not None else ""
    return [text for text in (early_end, str(found) if found else "") if text]
