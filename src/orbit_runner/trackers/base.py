"""`Tracker`: the base class for services that show the records of runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What a tracker is given about a run when it starts.

    Attributes:
        name: The name of the experiment.
        mode: The mode of the run, such as `train_and_eval`.
        directory: The run directory.
        settings: All settings by dotted path, except for the section `trackers`.
        config: The same settings as YAML.
        step: The global step at which the run starts. It is greater than 0 if the run was resumed.
        previous_id: The id that `start` returned when the run was last started in this mode and run
            directory, or None if this is the first time.
    """

    name: str
    mode: str
    directory: Path
    settings: Mapping[str, Any]
    config: str
    step: int
    previous_id: str | None


class Tracker:
    """Base class of trackers. Its methods do nothing.

    A config names trackers by their class, with arguments for the constructor:

        trackers:
        - my_package.MyTracker
        - class_name: my_package.MyTracker
          arguments: {directory: tracked}

    Only the process that writes the files of a run has trackers. Each has its own thread, which
    creates the object and calls all of its methods, so that a slow tracker does not delay training.
    A tracker must not access the model, and cannot change the run. If a method raises an exception,
    a warning is shown, and the call is repeated after a pause; after an `ImportError`, it is not.
    """

    def start(self, run: RunInfo) -> str | None:
        """Called first, after the run has restored a checkpoint or initialized its weights.

        Args:
            run: The run.

        Returns:
            An id of the run in the service. It is kept in the run directory, and is
            `run.previous_id` when the run is resumed. None if the service needs no id.
        """
        return None

    def log(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Called for each record, in the order in which they were written.

        If the run is resumed or returns to an earlier checkpoint, steps may occur again.

        Args:
            step: The global step at which the record ended.
            split: `train` or `validation`.
            metrics: Numbers by name. Names of several tasks are nested, as in `task/loss`.
        """

    def flush(self) -> None:
        """Called after `log`, when no more records are waiting or many were logged.

        A tracker may collect records in `log`, and send them here.
        """

    def finish(self, status: str, results: Mapping[str, str]) -> None:
        """Called last, unless the process was killed or the service did not answer in time.

        Args:
            status: `finished`, `interrupted` or `failed`.
            results: `step`: the last step. `weights_sha256`: the fingerprint of the weights, if a
                checkpoint of this step was saved. `reason`: why the run did not finish.
        """


class NamedTracker(Tracker):
    """A tracker of this package, which a config names as it is registered in `registry.TRACKERS`.

    A config may set the arguments of its constructor. Their types are `str`, a `Literal` of
    strings, or a sequence of strings; each has a default.

    Attributes:
        modules: The modules that it imports. The extra of the same name as the tracker installs
            them.
        advice: What to do if a call fails.
        directories: The directories that it writes in the run directory.
    """

    modules: ClassVar[tuple[str, ...]] = ()
    advice: ClassVar[str] = ""
    directories: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def argument_problems(cls, arguments: Mapping[str, object]) -> Iterator[str]:
        """Yields what is wrong with arguments whose types are correct."""
        yield from ()


class TensorBoard(NamedTracker):
    """Shows event files, which Orbit's summary managers write, because they may contain images."""
