"""Short runs have the weights in `golden/weights.json`, and the changelog lists each change."""

from __future__ import annotations

import re

import pytest

from orbit_runner import __version__
from tools import golden_weights
from tools.fingerprints import RUNS, fingerprint
from tools.golden_weights import (
    CHANGELOG,
    NAMES,
    UPDATE,
    Entry,
    GoldenRun,
    current_conditions,
    difference,
    explain_missing_entry,
    find_entry,
    missing_in_changelog,
    read_entries,
    update_run,
    version_key,
)

TEXT = """\
# Changelog

## [0.2.0] - 2030-01-01

### Added

- `tfrecord` reads faster.

### Exactness

- **A sum in another order**: the weights of `digits` and `mirrored` change.

## [0.1.0] - 2029-01-01

### Exactness

- First recorded: `digits`, `tfrecord`.

### Added

- `ncf_movielens`.
"""


def entry(processor: str = "a", **since: str) -> Entry:
    runs = {
        name: GoldenRun(weights="w", state="s", since=version) for name, version in since.items()
    }
    return Entry(conditions={"processor": processor}, runs=runs)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_weights_are_the_golden_ones(name):
    entries, conditions = read_entries(), current_conditions()
    entry = find_entry(entries, conditions)
    if entry is None:
        pytest.skip(f"{explain_missing_entry(entries, conditions)}; to add them: {UPDATE}")
    golden, now = entry["runs"][name], fingerprint(RUNS[name])
    assert now["weights"] == golden["weights"], f"the weights changed; on purpose: {UPDATE}"
    state = golden.get("state", now["state"])
    assert now["state"] == state, f"the state changed; on purpose: {UPDATE}"


def test_the_file_is_well_formed():
    entries = read_entries()
    assert entries
    for entry in entries:
        assert {*entry} == {"conditions", "runs"}
        assert entry["conditions"]["intra-op threads"] == "1"
        assert find_entry(entries, entry["conditions"]) is entry, (
            "another entry has these conditions"
        )
        assert {*entry["runs"]} == {*NAMES}
        for run in entry["runs"].values():
            assert {*run, "state"} == {"weights", "state", "since"}
            assert re.fullmatch("[0-9a-f]{64}", run["weights"])
            assert re.fullmatch("[0-9a-f]{64}", run.get("state", run["weights"]))
            assert version_key(run["since"]) <= version_key(__version__)


def test_the_changelog_lists_every_golden_run():
    assert missing_in_changelog(read_entries(), CHANGELOG.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("since", "missing"),
    [
        ({"digits": "0.1.0", "tfrecord": "0.1.0"}, []),
        ({"digits": "0.2.0", "mirrored": "0.2.0"}, []),
        # Named in another section, in another version, in a version without a heading.
        ({"tfrecord": "0.2.0"}, [("0.2.0", "tfrecord")]),
        ({"ncf_movielens": "0.1.0"}, [("0.1.0", "ncf_movielens")]),
        ({"mirrored": "0.1.0"}, [("0.1.0", "mirrored")]),
        ({"digits": "0.3.0"}, [("0.3.0", "digits")]),
        # A prefix of a name, and a version in which a dot is another character.
        ({"digit": "0.2.0"}, [("0.2.0", "digit")]),
        ({"digits": "0.1.00"}, [("0.1.00", "digits")]),
    ],
)
def test_a_change_that_the_changelog_lacks(since, missing):
    expected = [
        f"CHANGELOG.md, version {version}, section Exactness: `{name}` is missing"
        for version, name in missing
    ]
    assert missing_in_changelog([entry(**since)], TEXT) == expected


def test_what_changed():
    golden = entry(digits="0.1.0")["runs"]["digits"]
    assert difference(None, {"weights": "w", "state": "s"}) == "new"
    assert difference(golden, {"weights": "w", "state": "s"}) == "equal"
    assert difference(golden, {"weights": "x", "state": "s"}) == "CHANGED"
    assert difference(golden, {"weights": "w", "state": "t"}).startswith("CHANGED: state")


def test_since_when_the_weights_are_these(monkeypatch):
    monkeypatch.setattr(golden_weights, "__version__", "0.12.0")
    entries = [entry("a", digits="0.10.0"), entry("b", digits="0.9.0")]
    golden = entries[1]["runs"]["digits"]

    def since(weights: str, state: str = "s", name: str = "digits", known: bool = True) -> str:
        fingerprints = {"weights": weights, "state": state}
        return update_run(entries, name, golden if known else None, fingerprints)["since"]

    assert since("w") == since("w", "t") == "0.9.0"
    assert since("x") == "0.12.0"
    # A new kind of processor: the last change that another one has, if it has the run.
    assert since("x", known=False) == "0.10.0"
    assert since("x", name="tfrecord", known=False) == "0.12.0"
