"""Compares the weights of short runs with the golden ones: `python -m tools.golden_weights`.

`tests/golden/weights.json` has an entry for each kind of processor and set of package versions. An
entry contains these conditions and, for each run, the fingerprints of weights and state, and
`since`: the version in which the weights last changed. `--update` writes what differs. If the
weights of a run changed, its `since` becomes the current version, and `CHANGELOG.md` must list the
run in the section "Exactness" of that version.

A new kind of processor is not a change of weights. Each of its runs gets the newest `since` that
another entry has for the run, or the current version if there is none.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TypedDict

from orbit_runner import __version__
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.determinism.numerics_record import describe_changes, describe_numerics
from tools.fingerprints import ROOT, RUNS, fingerprint

GOLDEN = ROOT / "tests" / "golden" / "weights.json"
CHANGELOG = ROOT / "CHANGELOG.md"
UPDATE = "python -m tools.golden_weights --update"
# Every task and both kinds of pipelines; about two minutes in total.
NAMES = (
    "digits",
    "digits_mlp",
    "resnet_cifar",
    "ncf_movielens",
    "transformer_multi30k",
    "tfrecord",
    "mirrored",
)


class GoldenWeights(TypedDict):
    """The fingerprint of the weights of a run, and the version in which they last changed."""

    weights: str
    since: str


class GoldenRun(GoldenWeights, total=False):
    """The fingerprints of a run.

    That of the state is missing if the state has changed since, and the run has not been repeated
    on this kind of processor.
    """

    state: str


class Entry(TypedDict):
    """The golden runs for one kind of processor and one set of packages."""

    conditions: dict[str, str]
    runs: dict[str, GoldenRun]


def read_entries() -> list[Entry]:
    """Returns the entries of the file; none if there is no file."""
    if not GOLDEN.exists():
        return []
    entries: list[Entry] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return entries


def current_conditions() -> dict[str, str]:
    """Returns what the weights of a run with one thread per op depend on, on this machine."""
    return describe_numerics(RuntimeConfig(intra_op_threads=1))


def find_entry(entries: Sequence[Entry], conditions: Mapping[str, str]) -> Entry | None:
    """Returns the entry with these conditions. They are compared as when a run is resumed."""
    return next(
        (entry for entry in entries if not describe_changes(entry["conditions"], conditions)), None
    )


def explain_missing_entry(entries: Sequence[Entry], conditions: Mapping[str, str]) -> str:
    """Returns why no entry has these conditions: the differences from the closest entry."""
    differences = sorted(
        (describe_changes(entry["conditions"], conditions) for entry in entries), key=len
    )
    nearest = "; ".join(differences[0] if differences else ())
    reason = "no golden weights for this kind of processor and these versions of the packages"
    return f"{reason} (closest entry: {nearest})" if nearest else reason


def difference(golden: GoldenRun | None, run: Mapping[str, str]) -> str:
    """Returns `equal`, `new`, or a description of the change."""
    if golden is None:
        return "new"
    if golden["weights"] != run["weights"]:
        return "CHANGED"
    return "equal" if golden.get("state") == run["state"] else "CHANGED: state, not weights"


def update_run(
    entries: Sequence[Entry], name: str, golden: GoldenRun | None, fingerprints: Mapping[str, str]
) -> GoldenRun:
    """Returns the golden run to write.

    Args:
        entries: All entries.
        name: The name of the run.
        golden: The golden run of this machine's entry, if any.
        fingerprints: The current fingerprints.
    """
    if golden is None:
        known = [entry["runs"][name]["since"] for entry in entries if name in entry["runs"]]
        since = max(known, key=version_key, default=__version__)
    else:
        since = golden["since"] if golden["weights"] == fingerprints["weights"] else __version__
    return {"weights": fingerprints["weights"], "state": fingerprints["state"], "since": since}


def version_key(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version as a sort key."""
    return tuple(int(number) for number in version.split("."))


def missing_in_changelog(entries: Sequence[Entry], changelog: str) -> list[str]:
    """Returns one line for each run that is missing in the changelog section of its `since`."""
    pairs = {(run["since"], name) for entry in entries for name, run in entry["runs"].items()}
    return [
        f"{CHANGELOG.name}, version {version}, section Exactness: `{name}` is missing"
        for version, name in sorted(pairs)
        if name not in _listed_names(changelog, version)
    ]


def _listed_names(changelog: str, version: str) -> set[str]:
    """Returns the names in backticks in the section "Exactness" of a version."""
    text = _section(_section(changelog, rf"## \[{re.escape(version)}\].*"), "### Exactness")
    return set(re.findall(r"`([^`\n]+)`", text))


def _section(text: str, heading: str) -> str:
    """Returns the text after a heading, up to the next heading of the same level."""
    level = heading.partition(" ")[0]
    parts = re.split(rf"^{heading}$", text, maxsplit=1, flags=re.M)
    return re.split(rf"^{level} ", parts[1], maxsplit=1, flags=re.M)[0] if len(parts) > 1 else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares or updates; returns 1 if a run failed, or if it changed without `--update`."""
    parser = argparse.ArgumentParser(
        prog="golden_weights", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--update", action="store_true", help=f"write {GOLDEN.relative_to(ROOT)}")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    flags = parser.parse_args(arguments)
    entries, conditions = read_entries(), current_conditions()
    entry = find_entry(entries, conditions)
    if entry is None:
        print(explain_missing_entry(entries, conditions))
        entry = Entry(conditions=conditions, runs={})
        entries.append(entry)
    rows = {name: _compare(entries, entry, name, flags.update) for name in flags.only}
    if flags.update and entry["runs"]:
        entry["conditions"] = conditions  # They may have more items than in the file.
        GOLDEN.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", "utf-8")
        for line in missing_in_changelog([entry], CHANGELOG.read_text(encoding="utf-8")):
            print(line)
    elif any(row != "equal" and row != "FAILED" for row in rows.values()):
        print(f"to record these weights: {UPDATE}")
    failing = ("FAILED",) if flags.update else ("FAILED", "CHANGED")
    return int(any(row.startswith(failing) for row in rows.values()))


def _compare(entries: Sequence[Entry], entry: Entry, name: str, update: bool) -> str:
    """Trains a run, prints its row, updates the entry if requested, and returns the verdict."""
    start, golden = time.monotonic(), entry["runs"].get(name)
    try:
        fingerprints = fingerprint(RUNS[name])
    except (RuntimeError, subprocess.SubprocessError) as error:
        verdict, details = "FAILED", str(error)
    else:
        verdict = difference(golden, fingerprints)
        run = update_run(entries, name, golden, fingerprints)
        since = f"since {run['since']}" if update or verdict == "equal" else ""
        details = f"{fingerprints['weights'][:16]} {since}"
        if update:
            entry["runs"][name] = run
    row = f"{name:22} {time.monotonic() - start:5.0f} s  {verdict:7} {details}"
    print(row.rstrip(), flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
