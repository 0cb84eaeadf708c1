"""`python -m benchmarks [NAME …]`: runs benchmarks and writes `RESULTS.md`."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

NAMES = (
    "loop", "configured", "evaluation", "crops", "growth", "mirrored", "start", "exactness",
    "saving", "resume", "partition", "workers", "ncf", "images", "official", "official_start",
)  # fmt: skip


def main(names: list[str]) -> int:
    """Runs the named benchmarks, or all; several in a process each.

    Args:
        names: Modules of this package.

    Returns:
        The exit code: 1 where one failed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"benchmarks: unknown {', '.join(unknown)}; there are: {', '.join(NAMES)}")
        return 2
    from benchmarks.harness import RESULTS, machine, report

    if len(names) == 1:
        print(report(importlib.import_module(f"benchmarks.{names[0]}")))
        return 0
    parts = ["# Results", "", f"`make bench` on: {machine()}.", ""]
    failed = []
    for name in names or NAMES:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks", name], stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            failed.append(name)
        parts.append(done.stdout)
        print(parts[-1], flush=True)
    if not names:
        RESULTS.write_text("\n".join(parts), encoding="utf-8")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
