"""What the launcher expects of each role, and which GPUs each member uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoleTraits:
    """How the launcher treats the processes of a role."""

    leads: bool = False  # training is done when all that lead are done
    serves: bool = False  # runs until the launcher ends it, when its clients are done
    grouped: bool = False  # is ended and restarted with the others when one of them is lost
    alone: bool = False  # if it is lost, only this process is restarted
    first: bool = False  # must respond before the others are started


# The evaluator reads checkpoints and does not communicate.
_EVALUATOR = RoleTraits(alone=True)
# A restarted service does not know the members' requests.
SERVICE = RoleTraits(serves=True, grouped=True, first=True)
ROLE_TRAITS: Mapping[str, Mapping[str, RoleTraits]] = {
    "multi_worker_mirrored": {
        "worker": RoleTraits(leads=True, grouped=True),
        "evaluator": _EVALUATOR,
    },
    "parameter_server": {
        "chief": RoleTraits(leads=True, grouped=True),
        "worker": RoleTraits(serves=True, grouped=True, alone=True),
        "ps": RoleTraits(serves=True, grouped=True),
        "evaluator": _EVALUATOR,
    },
}


def visible_gpus(local: int, each: int, inherited: str | None) -> str:
    """Returns the `CUDA_VISIBLE_DEVICES` of one of several members on a machine.

    `local` is the index of the member among those on this machine that use GPUs, and `each` the
    number of GPUs per member. `inherited` is the launcher's variable, or None if it is not set.
    """
    mine = range(local * each, (local + 1) * each)
    if inherited is None:
        return ",".join(str(number) for number in mine)
    there = [name for name in inherited.split(",") if name]
    return ",".join(there[number] for number in mine if number < len(there))
