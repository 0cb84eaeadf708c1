"""Determines which settings can affect the weights, and computes a fingerprint of them.

The weights at a step depend on the settings and on the step. Settings that only determine when to
evaluate, what to keep or how fast the input pipeline runs do not identify a run.
"""

from __future__ import annotations

import hashlib
import json

from orbit_runner.config.declarations import known_weights, weights_of
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.weights import DATA_LOCATION
from orbit_runner.config.serialize import flat_settings


def cannot_affect_weights(path: str) -> bool:
    """Returns whether a setting cannot change the weights, whatever the other settings are."""
    weights = known_weights(path)
    return weights is not None and not weights.conditions


def can_affect_weights(path: str, config: ExperimentConfig) -> bool:
    """Returns whether a setting can change the weights at a step, or the step of early stopping.

    `config` matters because some settings have an effect only in combination with others. Unknown
    settings, such as those of a custom task, can change the weights.
    """
    return any(condition(config) for condition in weights_of(path, config).conditions)


def is_data_location(path: str, config: ExperimentConfig) -> bool:
    """Returns whether a setting is the directory of a dataset."""
    return weights_of(path, config) == DATA_LOCATION


def config_fingerprint(config: ExperimentConfig) -> str:
    """Returns the SHA-256 of the settings that can affect the weights, as 64 hexadecimal digits.

    It does not change if a run is resumed with more steps, more frequent checkpoints or more
    prefetching. It is the same in any process, and for the `config.yaml` of the run.
    """
    settings = {
        path: value
        for path, value in flat_settings(config).items()
        if can_affect_weights(path, config)
    }
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
