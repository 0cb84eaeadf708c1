"""A recorded difference between two runs, and which of them explain a differing tensor."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

# From the most likely cause to the least likely one, if nothing else is known.
KINDS = (
    "checkpoint",
    "settings",
    "data",
    "code",
    "replicas",
    "numerics",
    "versions",
    "resume",
)
_COMPUTATION = ("code:", "numerics:", "versions:", "replicas:")
_NETWORK = (
    r"settings:task\.model\b",
    r"settings:runtime\.(mixed_precision|enable_xla|intra_op|run_eagerly|deterministic)",
    r"settings:task\.(?!train_data|validation_data)",
)
# Where two runs first differ, to patterns of `kind:name` that explain it, the best one first.
_CAUSE_PATTERNS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "weights": (
            r"settings:runtime\.seed$",
            r"settings:task\.model\b",
            r"settings:task\.init",
            r"settings:trainer\.fine_tuning",
            r"settings:task\.(?!train_data|validation_data)",
            "code:",
            "versions:",
        ),
        "batch": (
            "data:train",
            r"settings:task\.train_data\b",
            r"settings:runtime\.seed$",
            r"settings:task\.",
            "data:",
            "code:",
            "replicas:",
        ),
        "output": (*_NETWORK, r"settings:runtime\.seed$", *_COMPUTATION),
        "loss": (
            r"settings:task\.(?!train_data|validation_data|model)",
            *_NETWORK,
            *_COMPUTATION,
        ),
        "gradient": (*_NETWORK, r"settings:trainer\.gradient", *_COMPUTATION),
        "update": (
            r"settings:trainer\.(optimizer_config|fine_tuning)",
            r"settings:trainer\.",
            r"settings:runtime\.",
            *_COMPUTATION,
        ),
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """A difference between the records of two runs.

    Attributes:
        kind: One of `KINDS`.
        name: The setting, the file, the package, or what else differs.
        left: Its value in the first run, as a short text; "" if the name is enough.
        right: Its value in the second run.
        details: Further lines, such as lines of code that differ.
        can_change_weights: Whether the weights can depend on it.
    """

    kind: str
    name: str
    left: str = ""
    right: str = ""
    details: Sequence[str] = ()
    can_change_weights: bool = True

    @property
    def values(self) -> str:
        """Both values, such as `1 and 2`; "" if there are none."""
        return f"{self.left} and {self.right}" if self.left or self.right else ""


def rank_findings(findings: Sequence[Finding], place: str = "") -> list[Finding]:
    """Returns the findings, the one that best explains the first difference first.

    `place` is that of the first tensor that differs (`TensorDifference.place`), "" if it is not
    known.
    """
    patterns = _CAUSE_PATTERNS.get(place, ())

    def rank(finding: Finding) -> tuple[bool, bool, int, int]:
        key = f"{finding.kind}:{finding.name}"
        found = (index for index, pattern in enumerate(patterns) if re.match(pattern, key))
        return (
            finding.kind != "checkpoint",
            not finding.can_change_weights,
            next(found, len(patterns)),
            KINDS.index(finding.kind),
        )

    return sorted(findings, key=rank)
