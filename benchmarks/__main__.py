"""`python -m benchmarks [NAME …]`: runs benchmarks and writes `RESULTS.md`."""

from __future__ import annotations

import importlib
import os
import sys

NAMES = (
    "loop", "evaluation", "crops", "growth", "start", "exactness", "saving", "resume",
    "partition", "workers", "ncf", "images", "official", "official_start",
)  # fmt: skip


def main(names: list[str]) -> int:
    """Runs the named benchmarks, or all.

    Args:
        names: Modules of this package.

    Returns:
        The exit code.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"benchmarks: unknown {', '.join(unknown)}; there are: {', '.join(NAMES)}")
        return 2
    from benchmarks.harness import RESULTS, machine, report

    parts = ["# Results", "", f"`make bench` on: {machine()}.", ""]
    for name in names or NAMES:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        module = importlib.import_module(f"benchmarks.{name}")
        parts.append(report(module))
        print(parts[-1])
    if not names:
        RESULTS.write_text("\n".join(parts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
