"""One of the two runs that `runner why` runs again: a process that trains to the requested steps.

It reads commands from standard input and writes answers to standard output, a JSON object per line.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner import train_lib
from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.compare.step_records import digest_of, write_step
from orbit_runner.determinism.numerics_record import describe_numerics
from orbit_runner.distribute.process_group import local_strategy
from orbit_runner.errors import RunnerError
from orbit_runner.jobs.gin_bindings import bind_gin
from orbit_runner.jobs.repetition import read_repetition
from orbit_runner.jobs.rerun import without_side_effects
from orbit_runner.step.examine import KeptState
from orbit_runner.step.examples import TrainingOrder
from orbit_runner.step.tensors import record_step, slot_values, weight_values
from orbit_runner.train.controller import quiet_orbit_scope
from orbit_runner.train.error_messages import error_message_scope
from orbit_runner.train.run_builder import build_run

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject


class Side:
    """A run that is trained step by step, in a directory of its own.

    Starts from the checkpoint in `directory`, if it has one. `original` is the run directory of
    the run.
    """

    def __init__(self, original: Path, directory: Path, imports: tuple[str, ...]) -> None:
        resolved = read_repetition(original, imports).resolved
        self._original = original
        config = without_side_effects(resolved.config)
        self._config = config.without("report").replace(callbacks=())
        bind_gin(resolved)
        built, task = train_lib.prepare(self._config, str(directory))
        self.run = build_run(
            self._config,
            task,
            built,
            directory,
            trains=True,
            evaluates=False,
            asynchronous=False,
            save_summary=False,
            resume="override",
        )
        self.run.restore_or_initialize()

    def advance(self, step: int) -> dict[str, object]:
        """Trains to a step and returns the state of the variables."""
        assert self.run.trainer is not None
        while self.run.step < step:
            self.run.trainer.train(tf.constant(step - self.run.step, tf.int32))
        return self.report()

    def report(self) -> dict[str, object]:
        """Returns the fields of a `StepState`."""
        state = self.run.state
        tensors = [*weight_values(state), *slot_values(state)]
        return {
            "step": self.run.step,
            "weights": weights_fingerprint(state.model),
            "tensors": {
                f"{tensor.place}:{tensor.name}": digest_of(tensor.value) for tensor in tensors
            },
            "numerics": describe_numerics(self._config.runtime),
        }

    def keep(self) -> dict[str, object]:
        """Keeps the state."""
        self._kept = KeptState(self.run)
        return {}

    def go_back(self) -> dict[str, object]:
        """Restores the state that was kept last."""
        assert self.run.trainer is not None
        with self.run.strategy.scope():
            self._kept.restore()
        self.run.trainer.rewind()
        return {}

    def record(self, path: str) -> dict[str, object]:
        """Runs the next step, and writes its tensors to a file."""
        step, examples = self.run.step + 1, self._examples()
        write_step(Path(path), step, record_step(self.run), examples)
        return {}

    def _examples(self) -> list[int | None] | None:
        """Returns the examples of the next step; None if they are not known."""
        with contextlib.suppress(RunnerError):
            order = TrainingOrder(self._config, self._original)
            if order.examples() is not None:
                step = order.step(self.run.step + 1)
                return [row["example"] for row in step.chosen]
        return None


def _answers(request: JsonObject) -> Iterator[dict[str, object]]:
    """Starts a run, and yields the answer to each command of standard input."""
    side = Side(Path(request["run"]), Path(request["directory"]), tuple(request["imports"]))
    run = side.run
    errors = error_message_scope(run.config)
    with quiet_orbit_scope(), local_strategy(run.strategy).scope(), errors:
        yield side.report()
        for line in sys.stdin:
            command = json.loads(line)
            yield getattr(side, command.pop("do"))(**command)


def main() -> None:
    """Answers the commands of standard input until it ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # What tasks and TensorFlow print must not be among the answers.
        try:
            for answer in _answers(json.loads(sys.stdin.readline())):
                print(json.dumps(answer), file=answers, flush=True)
        except Exception as error:
            text = (
                str(error) if isinstance(error, RunnerError) else f"{type(error).__name__}: {error}"
            )
            print(json.dumps({"error": text}), file=answers, flush=True)
            if not isinstance(error, RunnerError):
                raise
