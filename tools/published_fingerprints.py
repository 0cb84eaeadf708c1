"""Compares the published fingerprints with this machine: `python -m tools.published_fingerprints`.

`src/orbit_runner/determinism/published_fingerprints.json` has the weights that every machine gets
with portable numerics, and the versions of the packages for which they hold. `--update` writes
them, after new versions of the packages or a change of an experiment.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.schedule_length import follow_run
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.determinism.numerics_record import describe_numerics
from orbit_runner.determinism.portable import FILE, Published, PublishedRun, read_published
from orbit_runner.repeat.reproduce import portable_experiment

# They need no data, and train in seconds.
NAMES = ("digits", "digits_mlp", "breast_cancer", "diabetes")


def train(name: str, *prefix: str) -> PublishedRun:
    """Trains an experiment in a new process, and returns its fingerprint.

    `prefix` comes before the command, such as `taskset -c 0`.
    """
    with tempfile.TemporaryDirectory() as directory:
        flags = [f"--experiment={name}", "--runtime.numerics=portable", "--mode=train", "--quiet"]
        command = [sys.executable, "-m", "orbit_runner", *flags, f"--model_dir={directory}/run"]
        subprocess.run([*prefix, *command], check=True, stdout=subprocess.DEVNULL)
        lines = Path(directory, "run/checkpoints/fingerprints.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    config = config_fingerprint(follow_run(portable_experiment(name).config, last["step"]))
    return PublishedRun(step=last["step"], weights=last["weights"], config=config)


def write_published(published: Published, path: Path = FILE) -> None:
    """Writes the published fingerprints."""
    runs = {name: dataclasses.asdict(run) for name, run in published.runs.items()}
    values = {"numerics": dict(published.numerics), "experiments": runs}
    path.write_text(f"{json.dumps(values, indent=2)}\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares or updates; returns 1 if a fingerprint differs and is not updated."""
    parser = argparse.ArgumentParser(prog="published_fingerprints", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the file")
    flags = parser.parse_args(arguments)
    known = read_published().runs
    runs = {}
    for name in NAMES:
        start = time.monotonic()
        runs[name] = train(name)
        verdict = "equal" if runs[name] == known.get(name) else "DIFFERS"
        print(f"{name:15} {time.monotonic() - start:3.0f} s  {runs[name].weights} {verdict}")
    if flags.update:
        numerics = describe_numerics(RuntimeConfig(numerics="portable"), packages=())
        write_published(Published(numerics=numerics, runs=runs))
    return int(runs != known and not flags.update)


if __name__ == "__main__":
    sys.exit(main())
