"""Downloads a public dataset, verifies and unpacks it, and moves it into its directory."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from orbit_runner.datasets.download import manifest
from orbit_runner.datasets.download.archives import unpack
from orbit_runner.datasets.download.checksums import copy, has_checksum, sha256
from orbit_runner.datasets.download.directory import (
    check_free,
    directory_lock_scope,
    ensure_writable,
    move_files,
)
from orbit_runner.datasets.download.errors import DownloadError
from orbit_runner.datasets.download.fetch import PAUSES, fetch
from orbit_runner.datasets.download.progress import FileProgress
from orbit_runner.datasets.download.sgm import extract_sentences
from orbit_runner.datasets.download.sources import DownloadSource
from orbit_runner.datasets.download.transfer import forget
from orbit_runner.datasets.public_dataset import Archive, PublicDataset, RemoteFile, format_bytes
from orbit_runner.errors import RunnerError
from orbit_runner.utils.log import note, phase

_ASIDE = ".unpacking"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DownloadOptions:
    """Where and how to download a dataset."""

    folder: Path  # created if needed
    source: DownloadSource = DownloadSource()
    replace: bool = False  # whether to overwrite a different file with the same name
    keep_archives: bool = False  # whether to keep archives after they are unpacked
    pauses: Sequence[float] = PAUSES  # seconds before each retry


def download_dataset(data: PublicDataset, options: DownloadOptions) -> bool:
    """Downloads the missing files of a dataset. Returns whether any file was missing."""
    ensure_writable(options.folder)
    with directory_lock_scope(options.folder):
        missing = [file for file in data.files if not _is_there(file, options)]
        check_free(options.folder, sum(_required_space(file, options.folder) for file in missing))
        for file in missing:
            if file.archive is None:
                os.replace(_fetch_verified(file, options), options.folder / file.name)
                forget(_part(file, options.folder))
            else:
                _install_archive(file, file.archive, options)
    return bool(missing)


def _part(file: RemoteFile, folder: Path) -> Path:
    return folder / f"{file.name}.part"


def _is_there(file: RemoteFile, options: DownloadOptions) -> bool:
    """Returns whether the result of a file exists; raises an error if it is a different file."""
    target = options.folder / file.name
    if file.archive is not None:
        found = bool(manifest.unpacked_files(options.folder, file))
    else:
        found = has_checksum(target, file.size, file.sha256)
        if not found and target.exists() and not options.replace:
            raise RunnerError(
                f"{target} exists, but is not the published file ({file.size:,} bytes, "
                f"SHA-256 {file.sha256})\nmove it, choose another --dir, or pass --replace"
            )
    if found:
        note(f"{file.name}: already present and verified")
    return found


def _required_space(file: RemoteFile, folder: Path) -> int:
    """Returns the maximum number of bytes that a file still needs."""
    part = _part(file, folder)
    have = part.stat().st_size if part.is_file() else 0
    if file.archive is not None and (folder / file.name).is_file():
        have = file.size
    return max(0, file.size - have) + (file.archive.limit if file.archive else 0)


def _fetch_verified(file: RemoteFile, options: DownloadOptions) -> Path:
    """Returns the path of the downloaded and verified file, which has the suffix `.part`."""
    part = _part(file, options.folder)
    resumed = part.is_file() and part.stat().st_size > 0
    phase(f"downloading {file.name} ({format_bytes(file.size)})")
    if resumed:
        note(f"{file.name}: resuming after {format_bytes(part.stat().st_size)}")
    _download_part(file, part, options)
    got = sha256(part)
    if got != file.sha256 and resumed:
        note(f"{file.name}: the resumed download is corrupt; starting over")
        forget(part)
        _download_part(file, part, options)
        got = sha256(part)
    if got != file.sha256:
        size = part.stat().st_size
        forget(part)
        raise DownloadError(
            f"{file.name}: differs from the published file, so it was removed\n"
            f"  got       {size:,} bytes, SHA-256 {got}\n"
            f"  published {file.size:,} bytes, SHA-256 {file.sha256}"
        )
    return part


def _download_part(file: RemoteFile, part: Path, options: DownloadOptions) -> None:
    report = FileProgress(file.size).update
    if options.source.folder is None:
        addresses = options.source.addresses(file)
        fetch(addresses, part, file.size, report, options.pauses)
        return
    origin = options.source.folder / file.name
    try:
        copy(origin, part, report)
    except OSError as error:
        raise DownloadError(f"{origin}: cannot be copied ({error.strerror})") from None


def _install_archive(file: RemoteFile, archive: Archive, options: DownloadOptions) -> None:
    """Downloads an archive, unpacks it in a temporary directory and moves the files into place."""
    kept = options.folder / file.name
    path = kept if has_checksum(kept, file.size, file.sha256) else _fetch_verified(file, options)
    aside = options.folder / _ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    phase(f"unpacking {file.name}")
    try:
        aside.mkdir()
        made = _unpack(path, aside, archive)
        move_files(made, aside, options.folder, replace=options.replace)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    manifest.remember(options.folder, file, made)
    if path != kept and options.keep_archives:
        os.replace(path, kept)
    forget(_part(file, options.folder))


def _unpack(path: Path, aside: Path, archive: Archive) -> list[str]:
    """Returns the extracted files, with the text of SGML files instead of these."""
    members = archive.members
    marked = {
        target: f"{target}.sgm"
        for name, target in (members or {}).items()
        if name.endswith(".sgm") and not target.endswith(".sgm")
    }
    if members is not None:
        members = {name: marked.get(target, target) for name, target in members.items()}
    made = unpack(path, aside, limit=archive.limit, members=members)
    for target, source in marked.items():
        extract_sentences(aside / source, aside / target)
    return [name for name in made if name not in marked.values()] + [*marked]
