"""Opens the directory of a sweep: creates a new one, or extends an existing one."""

from __future__ import annotations

from collections.abc import Callable

from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.sweep.definition import Sweep, new_sweep, seeds_of
from orbit_runner.sweep.directory import (
    SweepDirectory,
    check_file,
    extend_sweep,
    load_sweep,
    write_file,
)
from orbit_runner.sweep.sweep_file import SweepFile
from orbit_runner.utils.signals import SignalGuard


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
    check_file(directory, file, base)  # Before the lock creates the directory.
    sweep = new_sweep(file, base)

    def load() -> Sweep:
        return load_sweep(directory, sweep)

    claim = directory.acquire_settings_lock(signals)
    if claim is None:
        return load
    with claim:
        check_file(directory, file, base)
        if not directory.file.exists():
            write_file(directory, sweep, base)
        extend_sweep(directory, load(), file, seeds_of(file, base.config))
    return load
