"""The published fingerprints: the weights that every machine gets with portable numerics.

`python -m tools.published_fingerprints --update` writes them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("published_fingerprints.json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """The weights at the end of a shipped experiment."""

    step: int
    weights: str  # SHA-256
    config: str  # fingerprint of the config


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """The published fingerprints, and what they hold for."""

    numerics: Mapping[str, str]  # a record of `describe_numerics`
    runs: Mapping[str, PublishedRun]  # by the name of the experiment

    def versions(self) -> str:
        """Returns the versions that the fingerprints hold for, as a text."""
        names = ("tensorflow", "tf_keras", "tf-models-official", "numpy", "C library")
        versions = ((name, self.numerics[name]) for name in names if name in self.numerics)
        return ", ".join(
            text if name == "C library" else f"{name} {text}" for name, text in versions
        )


def read_published(path: Path = FILE) -> Published:
    """Returns the published fingerprints."""
    content = json.loads(path.read_text(encoding="utf-8"))
    runs = {name: PublishedRun(**run) for name, run in content["experiments"].items()}
    return Published(numerics=content["numerics"], runs=runs)


def write_published(published: Published, path: Path = FILE) -> None:
    """Writes the published fingerprints."""
    runs = {name: dataclasses.asdict(run) for name, run in published.runs.items()}
    values = {"numerics": dict(published.numerics), "experiments": runs}
    path.write_text(f"{json.dumps(values, indent=2)}\n", encoding="utf-8")
