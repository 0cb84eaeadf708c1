"""Which steps a run skipped because they were not finite; see `metrics.jsonl`."""

from __future__ import annotations

from pathlib import Path

from orbit_runner.utils.files import parse_json, read_file

SKIPPED = "skipped"


def read_skipped_steps(metrics: Path) -> tuple[int, ...]:
    """Returns the steps that a run skips because they were not finite, in ascending order.

    Each event has all steps that were skipped until then, so the last one counts. The steps of
    `trainer.skip_steps` are not among them.
    """
    try:
        lines = read_file(metrics).splitlines()
    except OSError:
        return ()
    for line in reversed(lines):
        if b'"skipped"' not in line:
            continue
        try:
            return tuple(int(step) for step in parse_json(line)[SKIPPED])
        except (ValueError, KeyError, TypeError, OverflowError):
            continue  # A process was killed while it wrote the line.
    return ()
