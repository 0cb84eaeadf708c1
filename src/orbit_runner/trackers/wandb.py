"""Sends the records of a run to Weights & Biases, or writes its files for `wandb sync`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from orbit_runner.trackers.base import NamedTracker, RunInfo

_EXIT_CODES = {"finished": 0, "interrupted": 130, "failed": 1}
# In seconds. The call is repeated.
_TIMEOUT = 30


class WandbTracker(NamedTracker):
    """Keeps settings as the config, records as history, and results as the summary of a W&B run.

    A resumed run continues the W&B run with the same id.
    """

    modules = ("wandb",)
    advice = "check the network and WANDB_API_KEY, or pass the argument mode: offline"
    directories = ("wandb",)

    def __init__(
        self,
        project: str | None = None,
        entity: str | None = None,
        group: str | None = None,
        name: str | None = None,
        tags: Sequence[str] = (),
        mode: Literal["online", "offline"] | None = None,
        directory: str | None = None,
    ) -> None:
        self._given: dict[str, Any] = {"entity": entity, "group": group, "mode": mode}
        self._project = project
        self._name = name
        self._tags = list(tags)
        self._directory = directory
        self._id = secrets.token_hex(4)
        self._last = -1

    def start(self, run: RunInfo) -> str:
        """Creates the W&B run, or continues the earlier one. Returns its id."""
        import wandb

        # Without a key, `init` would ask for it on the terminal.
        mode = self._given["mode"] or os.environ.get("WANDB_MODE", "online")
        if mode == "online" and not wandb.login(prompt=False, verify=False):
            raise RuntimeError("found no API key")
        self._id = run.previous_id or self._id
        trains = run.mode.startswith("train")
        self._run: Any = wandb.init(
            id=self._id,
            resume="allow",
            project=self._project or run.name,
            name=self._name or (run.directory.name if trains else f"{run.directory.name} eval"),
            job_type=run.mode,
            tags=self._tags or None,
            dir=self._directory or str(run.directory),
            config={**run.settings, "run_directory": str(run.directory)},
            allow_val_change=True,
            # Only settings and records leave the machine, not the code and the console.
            save_code=False,
            settings=wandb.Settings(
                console="off", silent=True, disable_git=True, init_timeout=_TIMEOUT
            ),
            **self._given,
        )
        # The steps that W&B has from earlier starts are not sent again.
        self._last = int(self._run.step or 0) - 1 if self._run.resumed else -1
        return self._id

    def log(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Logs the metrics, with the names `split/name`."""
        if step <= self._last:
            return
        self._run.log({f"{split}/{name}": value for name, value in metrics.items()}, step=step)

    def finish(self, status: str, results: Mapping[str, str]) -> None:
        """Adds the results to the summary, and ends the W&B run."""
        self._run.summary.update({"status": status, **results})
        self._run.finish(exit_code=_EXIT_CODES[status])
