"""The catalog of datasets: complete, consistent, and in agreement with its experiments."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orbit_runner.config.parsing.search_path import experiment_files
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.datasets.catalogue import SETS, format_bytes

ALL = pytest.mark.parametrize("data", SETS.values(), ids=lambda data: data.name)
PAGE = Path(__file__).resolve().parents[3] / "docs/experiments.md"


@ALL
def test_every_file_has_url_size_and_checksum(data):
    assert data.files
    for file in data.files:
        assert file.size > 0
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        assert urlsplit(file.url).scheme == "https"


@ALL
def test_declared_results_are_produced_by_the_files(data):
    plain = {file.name for file in data.files if not file.is_archive}
    named = {name for file in data.files for name in (file.members or {}).values()}
    unpacks_all = any(file.is_archive and file.members is None for file in data.files)

    assert data.results
    assert unpacks_all or {*data.results} == plain | named


def pairs():
    return [(name, use) for name, data in SETS.items() for use in data.experiments]


def test_experiment_data_dir_matches_the_download_directory():
    assert {use for _, use in pairs()} <= {*experiment_files()}
    for experiment in sorted({use for _, use in pairs()}):
        config = resolve(Request(experiment=experiment)).config
        folders = {data.folder for data in SETS.values() if experiment in data.experiments}

        assert config.task.train_data.data_dir in folders, experiment
        assert config.task.validation_data.data_dir in folders, experiment


def test_data_page_lists_every_dataset():
    section = PAGE.read_text(encoding="utf-8").partition("\n## Public datasets\n")[2]
    rows = [line.split(" | ")[:2] for line in section.splitlines() if line.startswith("| `")]

    assert rows == [[f"| `{name}`", format_bytes(data.size)] for name, data in SETS.items()]
