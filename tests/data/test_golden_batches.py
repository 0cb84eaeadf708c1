"""The batches of every data source have the digests in `golden/batches.json`.

They depend on integers and exact operations only, so they are the same on every machine. If a
change of the batches is intended: `python -m tests.data.test_golden_batches --update`.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from orbit_runner.data.source_cache import source_cache_scope
from tests.support.batch_digests import CELLS, READ_BOTH_WAYS, WAYS, cases, cell_digests

GOLDEN = Path(__file__).parents[1] / "golden" / "batches.json"
_UPDATE = "python -m tests.data.test_golden_batches --update"
_QUICK = {*WAYS} - {"image_classification-tfrecord"}
_CASES = [
    pytest.param(case, id=case.name, marks=[] if case.name in _QUICK else [pytest.mark.slow])
    for case in cases()
]
# What chooses rows depends on the way to read them, and seldom on the source.
_CASES_OF_EACH_WAY = [
    pytest.param(case, id=case.name, marks=[] if case.name in WAYS else [pytest.mark.wide])
    for case in cases()
]


def golden_digests():
    """Returns the digests by case and cell."""
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


def digests_of(case, cells, folder):
    """Writes the files of a source to an empty directory, and returns the digests of cells."""
    with source_cache_scope():
        section = case.write(folder)
        return {cell: cell_digests(case, section, cell) for cell in cells}


def check(case, cells, folder):
    golden = golden_digests()[case.name]
    assert digests_of(case, cells, folder) == {cell: golden[cell] for cell in cells}, _UPDATE


@pytest.mark.parametrize("case", _CASES)
def test_batches_are_the_golden_ones(case, own_cache, tmp_path):
    check(case, READ_BOTH_WAYS, tmp_path / "data")


@pytest.mark.slow
@pytest.mark.parametrize("case", _CASES_OF_EACH_WAY)
def test_every_setting_that_chooses_rows_gives_the_golden_batches(case, own_cache, tmp_path):
    check(case, {*CELLS} - {*READ_BOTH_WAYS}, tmp_path / "data")


def test_file_has_every_source_and_cell():
    assert {name: [*cells] for name, cells in golden_digests().items()} == {
        case.name: [*CELLS] for case in cases()
    }


def main(arguments):
    """Prints the cells whose digests changed, and writes them to the file if `--update` is set."""
    parser = argparse.ArgumentParser(prog="test_golden_batches", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the changed digests")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of cases")
    flags = parser.parse_args(arguments)
    known = golden_digests() if GOLDEN.exists() else {}
    digests = {case.name: known.get(case.name, {}) for case in cases()}
    for case in cases():
        if flags.only and case.name not in flags.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
            try:
                new = digests_of(case, CELLS, Path(folder) / "data")
            except pytest.skip.Exception as reason:
                print(f"{case.name}: {reason}")
                continue
        for cell, digest in new.items():
            if digest != (before := digests[case.name].get(cell)):
                print(f"{case.name}, {cell}: {digest}, was {before}", flush=True)
        digests[case.name] = dict(new)
        if flags.update:
            GOLDEN.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
