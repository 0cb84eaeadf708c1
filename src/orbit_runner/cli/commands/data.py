"""`runner data`: lists and downloads public datasets."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.cli.command import Command
from orbit_runner.cli.flags.config_flags import PROGRESS_FLAGS, progress_of
from orbit_runner.cli.flags.rows import flag
from orbit_runner.cli.flags.values import DIRECTORY, OUTPUT_DIRECTORY
from orbit_runner.datasets.catalogue import SETS, PublicDataset, find_dataset, format_bytes
from orbit_runner.datasets.download import DownloadError, address_of, download_dataset
from orbit_runner.errors import RunnerError
from orbit_runner.utils.log import note
from orbit_runner.utils.streams import print_message, print_result
from orbit_runner.utils.text_table import described_lines, terminal_width

_DESCRIPTION = """\
List the public datasets that experiments read, or download, verify and unpack one of them."""


def main(flags: argparse.Namespace) -> int:
    """Lists datasets or downloads one. Returns the exit code (130 if interrupted)."""
    if flags.action == "list":
        print_result("\n".join(_list_lines()))
        return 0
    if flags.name is None:
        raise RunnerError(
            "is not set; `runner data list` shows the names", path="NAME", code="not-set"
        )
    return _get(flags)


def _list_lines() -> Iterator[str]:
    width = max(map(len, SETS))
    for data in SETS.values():
        uses = ", ".join(data.experiments) or "none"
        start = f"{data.name:<{width}}  {format_bytes(data.size):>7}"
        for text in (data.help, f"experiments: {uses}", f"terms: {data.terms}"):
            yield from described_lines({start: text}, terminal_width(), width + 9, "")
            start = ""


def _get(flags: argparse.Namespace) -> int:
    """Downloads a dataset. Returns the exit code (130 if interrupted)."""
    data = find_dataset(flags.name)
    for name, value in (("dir", flags.dir), ("from", flags.origin)):
        if value == "":
            raise RunnerError(
                "is empty; set a value, or omit the flag", path=f"--{name}", code="not-set"
            )
    directory = Path(flags.dir or data.folder).expanduser()
    base = address_of(flags.origin)
    note(f"terms: {data.terms}")
    try:
        with progress_of(flags, f"data get {data.name}", str(directory)).shown_scope():
            new = download_dataset(data, directory, base=base)
    except DownloadError as error:
        raise DownloadError(f"{data.name}: {error}\n{_download_advice(data, base)}") from None
    except OSError as error:
        raise DownloadError(f"{data.name}: {error}") from None
    except KeyboardInterrupt:
        print_message("runner: interrupted; complete files are kept")
        return 130
    _print_report(data, directory, new)
    return 0


def _print_report(data: PublicDataset, directory: Path, new: bool) -> None:
    print_result(f"{data.name}: {'complete' if new else 'already complete'}, in {directory}")
    for name in data.results:
        print_result(f"  {name}")
    for name in data.experiments[:1]:
        print_result(f"to use it: runner --experiment={name} --data_dir={directory}")


def _download_advice(data: PublicDataset, base: str) -> str:
    if base.startswith("file:"):
        names = ", ".join(file.name for file in data.files)
        return f"the directory must contain {names}"
    return (
        "without network access, download these files elsewhere, and set --from to a directory or "
        f"an address that has them\n{_file_table(data)}"
    )


def _file_table(data: PublicDataset) -> str:
    rows = [f"  {file.url}\n    {file.size:,} bytes  sha256 {file.sha256}" for file in data.files]
    return "\n".join(rows)


_FLAGS = (
    flag("action", "what to do", choices=("list", "get")),
    flag("name=NAME", "for get: a name that `runner data list` shows", nargs="?"),
    flag(
        "--dir",
        "target directory; by default data/…, where the experiments expect it",
        type=OUTPUT_DIRECTORY,
    ),
    flag(
        "--from",
        "URL of a mirror, or a directory, that has the files under their published names",
        dest="origin",
        type=dataclasses.replace(DIRECTORY, metavar="URL|DIR", kind="any URL"),
    ),
    *PROGRESS_FLAGS,
)
COMMAND = Command(
    "data", _DESCRIPTION, _FLAGS, ["list", "get ml-1m --dir=data/ml-1m"], main, mixes=True
)
