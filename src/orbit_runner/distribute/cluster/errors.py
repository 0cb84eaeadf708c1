"""A member of the cluster is gone."""

from __future__ import annotations

from orbit_runner.errors import RunnerError


class MemberLost(RunnerError):
    """A member of the cluster was lost, so this one cannot go on; the checkpoints are whole.

    The exit code is that of SIGUSR1. Kubernetes' Training Operator takes codes from 128 on as worth
    another try under its restart policy `ExitCode`, and leaves this one to the user's program.
    """

    exit_code = 138
