"""Runs benchmarks: `python -m benchmarks [NAME …]`. Without names, it writes `RESULTS.md`.

With `BENCHMARKS=short`, each has one short round and writes nothing; this shows only that it runs.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

NAMES = ("loop", "fit", "configured", "evaluation", "start", "exactness")


def main(names: list[str]) -> int:
    """Runs the named benchmarks, or all, and returns the exit code: 1 if one fails.

    A single benchmark runs in this process; several run in a separate process each.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"benchmarks: unknown {', '.join(unknown)}; allowed: {', '.join(NAMES)}")
        return 2
    from benchmarks.harness import RESULTS, SHORT, machine, report

    if len(names) == 1:
        print(report(importlib.import_module(f"benchmarks.{names[0]}")))
        return 0
    parts = ["# Results", "", f"`make bench` on: {machine()}.", ""]
    failed = []
    for name in names or NAMES:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        completed = subprocess.run(
            [sys.executable, "-m", "benchmarks", name], stdout=subprocess.PIPE, text=True
        )
        if completed.returncode:
            failed.append(name)
        parts.append(completed.stdout)
        print(parts[-1], flush=True)
    if not names and not SHORT:
        RESULTS.write_text("\n".join(parts), encoding="utf-8")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
