"""The config of the best trial, ready to run."""

from __future__ import annotations

from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.sweep.directory import SweepDirectory
from orbit_runner.sweep.results import SweepResults
from orbit_runner.utils.files import read_file, write_if_changed


def write_best(directory: SweepDirectory, results: SweepResults) -> None:
    """Writes the config of the best trial to `best.yaml`; removes it if there is no best trial."""
    best = results.best
    if best is None:
        directory.best.unlink(missing_ok=True)
        return
    run = RunDirectory(directory.path / best.runs[0].directory)
    text = read_file(run.config).decode("utf-8", "backslashreplace")
    head = (
        f"# Trial {best.number} of {directory.path.name}, the best of {len(results.trials)}: "
        f"{results.objective_name} {best.objective:.6g}.\n"
    )
    write_if_changed(directory.best, head + text)
