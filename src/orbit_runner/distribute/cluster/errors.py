"""The error for a lost member of the cluster."""

from __future__ import annotations

from orbit_runner import exit_codes
from orbit_runner.errors import RunnerError


class MemberLost(RunnerError):
    """Raised if a member of the cluster is lost, so that this one cannot continue.

    The checkpoints are intact. The exit code is that of SIGUSR1. With the restart policy
    `ExitCode`, Kubernetes' Training Operator treats codes from 128 on as retryable, and reserves
    this one for the user's program.
    """

    exit_code = exit_codes.MEMBER_LOST
