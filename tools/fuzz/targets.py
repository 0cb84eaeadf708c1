"""All targets, by name."""

from __future__ import annotations

from tools.fuzz.config_targets import config_targets
from tools.fuzz.data_targets import data_targets
from tools.fuzz.run_targets import run_targets
from tools.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target for target in (*config_targets(), *data_targets(), *run_targets())
}
