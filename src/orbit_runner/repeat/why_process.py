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

from orbit_runner import train_lib
from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.determinism.numerics_record import describe_numerics
from orbit_runner.distribute.process_group import local_strategy
from orbit_runner.errors import RunnerError
from orbit_runner.jobs.gin_bindings import bind_gin
from orbit_runner.repeat.plan import read_repetition
from orbit_runner.repeat.rerun import without_side_effects
from orbit_runner.step.examine import KeptState
from orbit_runner.step.examples import TrainingOrder
from orbit_runner.step.tensor_comparison import Examples, digests_of, write_step
from orbit_runner.step.tensors import record_step, slot_values, weight_values
from orbit_runner.train.error_messages import error_message_scope
from orbit_runner.train.loop import quiet_orbit_scope, train_in_loops
from orbit_runner.train.request import RunRequest
from orbit_runner.train.run_builder import build_run


class Side:
    """A run that is trained step by step, in a directory of its own.

    Starts from the checkpoint in `directory`, if it has one, and keeps that state. `original` is
    the run directory of the run.
    """

    def __init__(self, original: Path, directory: Path, imports: tuple[str, ...]) -> None:
        resolved = read_repetition(original, imports).resolved
        self._original = original
        self._directory = directory
        config = without_side_effects(resolved.config)
        self._config = config.replace(callbacks=())
        bind_gin(resolved)
        built, task = train_lib.prepare(self._config, str(directory))
        self.run = build_run(
            RunRequest(
                config=self._config,
                task=task,
                mode="train",
                model_dir=directory,
                strategy=built,
                save_summary=False,
                resume="override",
            )
        )
        self.run.restore_or_initialize()
        self.keep()

    def advance(self, step: int) -> dict[str, object]:
        """Trains to a step, from the kept state if the run is after it; see `report`."""
        assert self.run.trainer is not None
        if step < self.run.step:
            with self.run.strategy.scope():
                self._kept.restore()
            self.run.trainer.rewind()
        for _ in train_in_loops(self.run, step):
            pass
        return self.report()

    def report(self) -> dict[str, object]:
        """Returns the digests of weights and of variables, and what these depend on."""
        state = self.run.state
        return {
            "weights": weights_fingerprint(state.model),
            "tensors": digests_of([*weight_values(state), *slot_values(state)]),
            "numerics": describe_numerics(self._config.runtime),
        }

    def keep(self) -> dict[str, object]:
        """Keeps the state."""
        self._kept = KeptState(self.run)
        return {}

    def record(self, step: int, name: str) -> dict[str, object]:
        """Takes a step, and writes its tensors to a file in the directory."""
        self.advance(step - 1)
        examples = self._examples(step)
        write_step(self._directory / name, step, record_step(self.run), examples)
        return {}

    def _examples(self, step: int) -> Examples:
        with contextlib.suppress(RunnerError):
            order = TrainingOrder(self._config, self._original)
            if order.examples() is not None:
                return [row["example"] for row in order.step(step).chosen]
        return None


def _answers() -> Iterator[dict[str, object]]:
    """Starts a run, and yields the answer to each command of standard input."""
    original, directory, *imports = sys.argv[1:]
    side = Side(Path(original), Path(directory), tuple(imports))
    run = side.run
    errors = error_message_scope(run.config)
    with quiet_orbit_scope(), local_strategy(run.strategy).scope(), errors:
        yield side.report()
        for line in sys.stdin:
            name, arguments = json.loads(line)
            yield getattr(side, name)(**arguments)


def main() -> None:
    """Answers the commands of standard input until it ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # What tasks and TensorFlow print must not be among the answers.
        try:
            for answer in _answers():
                print(json.dumps(answer), file=answers, flush=True)
        except Exception as error:
            is_known = isinstance(error, RunnerError)
            text = str(error) if is_known else f"{type(error).__name__}: {error}"
            print(json.dumps({"error": text}), file=answers, flush=True)
            if not is_known:
                raise
