"""What the launcher expects of each role, and which GPUs each member sees."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """What a process does in a job.

    Attributes:
        leads: Training is done when all that lead are done.
        serves: It does not leave by itself: it is ended when those that it serves are gone.
        grouped: It is ended and started again with the others when one of them is lost.
        alone: It is started again by itself when it is lost.
        first: It has to answer before the others are started.
    """

    leads: bool = False
    serves: bool = False
    grouped: bool = False
    alone: bool = False
    first: bool = False


# It reads checkpoints and talks to nobody.
_EVALUATOR = Part(alone=True)
# One that is started again knows nothing of what the members asked it for.
SERVICE = Part(serves=True, grouped=True, first=True)
PARTS: Mapping[str, Mapping[str, Part]] = {
    "multi_worker_mirrored": {
        "worker": Part(leads=True, grouped=True),
        "evaluator": _EVALUATOR,
    },
    "parameter_server": {
        "chief": Part(leads=True, grouped=True),
        "worker": Part(serves=True, grouped=True, alone=True),
        "ps": Part(serves=True, grouped=True),
        "evaluator": _EVALUATOR,
    },
}


def visible_gpus(local: int, each: int, inherited: str | None) -> str:
    """Returns the `CUDA_VISIBLE_DEVICES` of one of several members on a machine.

    Args:
        local: The number of the member among those of this machine that use GPUs.
        each: How many GPUs each uses.
        inherited: The variable as the launcher has it; None where it is not set.
    """
    mine = range(local * each, (local + 1) * each)
    if inherited is None:
        return ",".join(str(number) for number in mine)
    there = [name for name in inherited.split(",") if name]
    return ",".join(there[number] for number in mine if number < len(there))
