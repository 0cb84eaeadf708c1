"""The directory of a sweep: its files, and the check that it belongs to this sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from orbit_runner.config.fingerprint import can_affect_weights
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.serialize import differences, inline_yaml, to_yaml
from orbit_runner.errors import RunnerError, first_line, format_list
from orbit_runner.run_directory.config import flat_values
from orbit_runner.run_directory.paths import RunDirectory, unsuitable_directory_reason
from orbit_runner.sweep.definition import Sweep, new_sweep
from orbit_runner.sweep.results import RESULTS_FILE, SweepResults
from orbit_runner.sweep.sharing import Claims
from orbit_runner.sweep.sweep_file import SweepFile
from orbit_runner.utils.files import read_file, write_atomically, write_if_changed
from orbit_runner.utils.signals import SignalGuard
from orbit_runner.utils.streams import line_text

# Keys that may change after a sweep began.
_MAY_CHANGE = ("description", "search.trials")
_ADVICE = "use another --model_dir, or the original sweep file: {}"


@dataclasses.dataclass(frozen=True)
class SweepDirectory:
    """The paths of a sweep's files."""

    path: Path

    @property
    def file(self) -> Path:
        """The sweep file that created the directory, and how the sweep was extended."""
        return self.path / "sweep.yaml"

    @property
    def base(self) -> Path:
        """The resolved config of the experiment, without the settings that vary."""
        return self.path / "base.yaml"

    @property
    def results(self) -> Path:
        """The results, in the order of trial numbers."""
        return self.path / RESULTS_FILE

    @property
    def page(self) -> Path:
        """The results as a page."""
        return self.path / "sweep.html"

    @property
    def best(self) -> Path:
        """The config of the best trial."""
        return self.path / "best.yaml"

    @property
    def claims(self) -> Claims:
        """The locks of trials."""
        return Claims(self.path / "claims")

    def log(self, name: str) -> Path:
        """Returns the log of a run's processes."""
        return self.path / "logs" / f"{name}.log"

    def failure(self, name: str) -> Path:
        """Returns the file with the reason why the sweep gave up a run."""
        return self.path / "failures" / f"{name}.json"


def open_sweep(
    directory: SweepDirectory,
    file: SweepFile,
    base: ResolvedConfig,
    signals: SignalGuard,
) -> Callable[[], Sweep]:
    """Creates the directory, or checks that it belongs to this sweep and extends it.

    Returns a function that returns the sweep as any process has extended it. If a signal arrives
    before the lock is acquired, nothing is written. Raises RunnerError if the directory belongs to
    another sweep, or cannot be extended in this way.
    """
    _check_file(directory, file, base)  # Before the lock creates the directory.
    sweep = new_sweep(file, base)

    def load() -> Sweep:
        return _load_sweep(directory, sweep)

    claim = directory.claims.acquire("sweep", signals)
    if claim is None:
        return load
    with claim:
        _check_file(directory, file, base)
        if not directory.file.exists():
            _write_new(directory, sweep, base)
        _extend_sweep(directory, load(), file)
    return load


def _check_file(directory: SweepDirectory, file: SweepFile, base: ResolvedConfig) -> None:
    """Raises RunnerError with the differences if the directory belongs to another sweep."""
    if not directory.file.exists():
        _check_new(directory)
        return
    try:
        before = dict(flat_values(_read(directory)["sweep"]))
    except (TypeError, LookupError, AttributeError) as error:
        raise _unreadable(directory.file, error) from None
    now = dict(flat_values(file.values))
    lines = [
        f"{path}: {_format_entry(before, path)} → {_format_entry(now, path)}"
        for path in {**before, **now}
        if before.get(path, ...) != now.get(path, ...) and path not in _MAY_CHANGE
    ]
    lines += _changed_settings(directory, base)
    if lines:
        raise RunnerError(
            f"{directory.path} contains another sweep:\n{format_list(lines)}\n"
            "finished trials would not match the file\n" + _ADVICE.format(directory.file),
            path="--model_dir",
            code="other-config",
        )


def _write_new(directory: SweepDirectory, sweep: Sweep, base: ResolvedConfig) -> None:
    """Writes the files that identify a new sweep. The lock must be held."""
    write_atomically(directory.base, to_yaml(base.config))
    _write(directory, sweep)


def _write(directory: SweepDirectory, sweep: Sweep) -> None:
    content = {"sweep": sweep.file.values, "budgets": [*sweep.budgets]}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    head = f"# Made from {line_text(sweep.file.label)} by `runner sweep`.\n"
    write_atomically(directory.file, head + text)


def _read(directory: SweepDirectory) -> Any:
    """Returns the content of `sweep.yaml`."""
    try:
        return yaml.safe_load(read_file(directory.file).decode())
    # The others than OSError and YAMLError are for values such as `!!int ""`.
    except (OSError, ValueError, LookupError, AttributeError, yaml.YAMLError) as error:
        raise _unreadable(directory.file, error) from None


def _unreadable(path: Path, error: Exception) -> RunnerError:
    return RunnerError(
        f"{path} cannot be read: {first_line(error)}\nrestore it, or use another --model_dir",
        code="unreadable-file",
    )


def _check_new(directory: SweepDirectory) -> None:
    """Raises RunnerError if the directory has files that no sweep writes."""
    try:
        names = [path.name for path in directory.path.iterdir()]
    except FileNotFoundError:
        return
    reason = unsuitable_directory_reason(directory.path)
    if reason and not {"claims", "base.yaml"} & {*names}:
        raise RunnerError(reason, path="--model_dir", code="bad-path")
    others = [name for name in names if name not in ("claims", "base.yaml")]
    others = [name for name in others if not name.startswith(".")]
    if others:
        raise RunnerError(
            f"{directory.path} contains {others[0]}, but no sweep.yaml\n"
            "use a new directory for a new sweep",
            path="--model_dir",
            code="other-config",
        )


def _changed_settings(directory: SweepDirectory, base: ResolvedConfig) -> Iterator[str]:
    """Yields the settings of the experiment that changed since the sweep began."""
    try:
        if not read_file(directory.base).strip():
            raise RunnerError("it is empty", code="empty-data")
        before = resolve(Request(experiment=str(directory.base))).config
    except (OSError, RunnerError) as error:
        raise RunnerError(
            f"{directory.base}: cannot be read: {error}\n"
            "it is the config with which the sweep began; restore it, or use another --model_dir",
            code="unreadable-file",
        ) from None
    for difference in differences(before, base.config):
        if can_affect_weights(difference.path, before) or can_affect_weights(
            difference.path, base.config
        ):
            yield f"{difference.path}: {difference.left} → {difference.right}"


def _format_entry(values: Mapping[str, object], path: str) -> str:
    return inline_yaml(values[path]) if path in values else "not set"


def _load_sweep(directory: SweepDirectory, sweep: Sweep) -> Sweep:
    """Returns a new sweep as it was extended so far."""
    began = _read(directory)
    try:
        return dataclasses.replace(sweep, budgets=tuple(map(int, began["budgets"])))
    except (TypeError, ValueError, LookupError) as error:
        raise _unreadable(directory.file, error) from None


def _extend_sweep(directory: SweepDirectory, sweep: Sweep, file: SweepFile) -> None:
    """Records a larger number of trials of the file. The lock must be held.

    Raises RunnerError if the file has fewer trials than the sweep.
    """
    trials = file.search.trials
    if trials < sweep.trials:
        raise RunnerError(
            f"search.trials — {file.origin('search.trials')}\n"
            f"  got {trials}, but the sweep in {directory.path} has {sweep.trials} trials\n"
            f"set at least {sweep.trials}",
            code="other-config",
        )
    if trials > sweep.trials:
        _write(directory, dataclasses.replace(sweep, budgets=(*sweep.budgets, trials)))


def write_best(directory: SweepDirectory, results: SweepResults) -> None:
    """Writes the config of the best trial to `best.yaml`; removes it if there is no best trial."""
    best = results.best
    if best is None:
        directory.best.unlink(missing_ok=True)
        return
    run = RunDirectory(directory.path / best.runs[0].directory)
    text = read_file(run.config).decode("utf-8", "backslashreplace")
    name = line_text(directory.path.name)
    head = (
        f"# Trial {best.number} of {name}, the best of {len(results.trials)}: "
        f"{results.objective_name} {best.objective:.6g}.\n"
    )
    write_if_changed(directory.best, head + text)
