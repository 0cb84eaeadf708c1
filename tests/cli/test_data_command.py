"""`runner data`: its output, its exit codes, and that it imports nothing heavy."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.datasets.catalogue import SETS, PublicDataset, RemoteFile
from tests.support.problems import error_of, output_of
from tests.support.processes import process

CONTENT = b"0123456789" * 50_000


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    def handler(*arguments: object) -> _Quiet:
        return _Quiet(*arguments, directory=os.fspath(folder))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def mirror(here, monkeypatch):
    """A server with the file of a dataset called toy."""
    (here / "mirror").mkdir()
    (here / "mirror/toy.bin").write_bytes(CONTENT)
    file = RemoteFile(
        url="http://nowhere.invalid/toy.bin",
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )
    toy = PublicDataset(
        name="toy", help="a toy", terms="cite us", files=(file,), results=("toy.bin",),
        folder="data/toy", experiments=("digits",),
    )  # fmt: skip
    monkeypatch.setitem(SETS, "toy", toy)
    with serving(here / "mirror") as address:
        yield address


def test_list_shows_every_dataset_with_its_terms():
    text = output_of(["data", "list"])
    for name in SETS:
        assert f"\n{name} " in f"\n{text}"
    assert "11.6 MB  MNIST" in text
    assert "  experiments: resnet_cifar, resnet_cifar_v2\n" in text
    assert text.count("  terms: ") == len(SETS)


def test_get_downloads_a_dataset_and_prints_its_usage(mirror, tmp_path, capsys):
    assert main(["data", "get", f"--from={mirror}", "toy"]) == 0

    captured = capsys.readouterr()
    assert (tmp_path / "data/toy/toy.bin").read_bytes() == CONTENT
    assert captured.out.splitlines() == [
        "toy: complete, in data/toy",
        "  toy.bin",
        "to use it: runner --experiment=digits --data_dir=data/toy",
    ]
    assert "terms: cite us" in captured.err
    assert "downloading toy.bin (500 kB)" in captured.err


def test_get_skips_a_dataset_that_is_already_complete(mirror):
    main(["data", "get", "toy", f"--from={mirror}", "--dir=here"])

    assert "toy: already complete, in here" in output_of(["data", "get", "toy", "--dir=here"])


@pytest.mark.parametrize("name", SETS)
def test_failed_get_lists_urls_and_checksums(name, here):
    text = str(error_of(["data", "get", name, "--from=http://127.0.0.1:9"], exit_code=1))

    assert all(file.sha256 in text and file.url in text for file in SETS[name].files)


def test_commands_without_arrays_import_neither_tensorflow_nor_numpy(tmp_path, without_tensorflow):
    program = (
        "import sys; from orbit_runner.cli.main import main\n"
        "show = ['show', '--experiment=digits']\n"
        "for words in (['data', 'list'], ['list'], ['runs', '.'], show):\n"
        "    assert main(words) == 0\n"
        "assert main(['data', 'get', 'mnist', '--dir=x', '--from=http://127.0.0.1:9']) == 1\n"
        "print('numpy' in sys.modules)"
    )
    completed = process(sys.executable, "-c", program, cwd=tmp_path, env=without_tensorflow)

    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.endswith("False\n")
