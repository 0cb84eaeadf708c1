"""`branch.json`: which run and step a run continues from, and the settings that were changed.

A run that `runner branch` made has this file. Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.parsing.yaml_files import parse_value
from orbit_runner.config.serialize import ABSENT, Difference
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import read_json_object, to_jsonable, write_atomically

NAME = "branch.json"
_FORMAT = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Branch:
    """Where a run branched off from another run."""

    parent: Path  # The directory of the other run. In the file, it is relative to the run.
    step: int  # The last step that both have in common.
    weights: str  # SHA-256 of the weights at that step.
    state: str  # SHA-256 of the whole checkpoint of that step.
    # Fingerprints of the configs that trained the steps up to then: that of the parent, then those
    # before its own branches.
    configs: tuple[str, ...]
    changes: tuple[Difference, ...] = ()  # The settings that the branch changed.

    def values(self) -> dict[str, object]:
        """Returns the values of the settings that the branch changed, by dotted path."""
        set_now = [change for change in self.changes if change.right != ABSENT]
        return {change.path: parse_value(change.right, NAME) for change in set_now}

    def as_dict(self) -> dict[str, object]:
        """Returns the values in a form that JSON supports."""
        return {
            "format": _FORMAT,
            "parent": str(self.parent),
            "step": self.step,
            "weights": self.weights,
            "state": self.state,
            "configs": list(self.configs),
            "changes": [
                {"path": change.path, "from": change.left, "to": change.right}
                for change in self.changes
            ],
        }


def write_branch(run: Path, branch: Branch) -> None:
    """Writes `branch.json` of a run."""
    path = os.path.relpath(branch.parent.resolve(), run.resolve())
    values = to_jsonable({**branch.as_dict(), "parent": path})
    write_atomically(RunDirectory(run).branch, json.dumps(values, indent=1) + "\n")


def read_branch(run: Path) -> Branch | None:
    """Returns where a run branched off; None if it is no branch, or the file cannot be read."""
    try:
        values = read_json_object(RunDirectory(run).branch)
        if values["format"] != _FORMAT:
            return None
        branch = Branch(
            parent=Path(os.path.normpath(run / str(values["parent"]))),
            step=int(values["step"]),
            weights=str(values["weights"]),
            state=str(values["state"]),
            configs=tuple(map(str, values["configs"])),
            changes=tuple(
                Difference(str(change["path"]), str(change["from"]), str(change["to"]))
                for change in values["changes"]
            ),
        )
        branch.values()  # Raises an error if a value cannot be read.
    except (OSError, ValueError, KeyError, TypeError, OverflowError, ConfigError):
        return None
    return branch
