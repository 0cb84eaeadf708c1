"""Decodes images in a child process, to find those that cannot be decoded.

The child process imports TensorFlow, so that the parent does not: it may be a command that only
checks a config, and TensorFlow reads some settings of a run when it is imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from orbit_runner.data.bad_records.report import check_bad_records
from orbit_runner.data.bad_records.result_cache import key_of, read_result, write_result
from orbit_runner.data.tfrecord.framing import FileIndex
from orbit_runner.errors import DataError
from orbit_runner.utils.log import Progress
from orbit_runner.utils.signals import describe_exit

_KIND = "tfrecord"


def find_bad_records(
    name: str,
    files: Sequence[Path],
    indexes: Sequence[FileIndex],
    keys: tuple[str, str],
    limit: int,
) -> tuple[int, ...]:
    """Returns the numbers of the records to leave out, counted through all files, ascending.

    They are those whose data do not match their checksum, that are not a tf.Example with an image
    and a label, or whose image cannot be decoded. `keys` are the features of the image and of the
    label. All records are read once, and those of a file again if it changes. Raises `DataError` if
    there are more than `limit`.
    """
    parts = _find_problems(files, indexes, keys)
    firsts = np.cumsum([0, *(index.records for index in indexes)]).tolist()
    problems = {
        first + number: problem
        for first, part in zip(firsts, parts, strict=False)
        for number, problem in part.items()
    }
    check_bad_records(name, problems, limit, firsts[-1], "records")
    return tuple(sorted(problems))


def _find_problems(
    files: Sequence[Path], indexes: Sequence[FileIndex], keys: tuple[str, str]
) -> list[dict[int, str]]:
    """Returns the problems of each file by the numbers of its records."""
    cache_keys = [key_of([path], keys) for path in files]
    parts = [read_result(_KIND, key) for key in cache_keys]
    lacking = [number for number, part in enumerate(parts) if part is None]
    if not lacking:
        return [part or {} for part in parts]
    request = {
        "records": [os.fspath(files[number]) for number in lacking],
        "image": keys[0],
        "label": keys[1],
    }
    total = sum(indexes[number].records for number in lacking)
    problems = find_undecodable(request, "records", total)
    first = 0
    for number in lacking:
        last = first + indexes[number].records
        part = {
            place - first: problem for place, problem in problems.items() if first <= place < last
        }
        write_result(_KIND, cache_keys[number], part)
        parts[number] = part
        first = last
    return [part or {} for part in parts]


_CHILD = "orbit_runner.data.bad_records.decoding_process"


def find_undecodable(request: Mapping[str, object], what: str, total: int) -> dict[int, str]:
    """Returns the numbers of the images that cannot be decoded, and the problem of each.

    `request` is the input of the child process: see `decoding_process`. `what` and `total` are
    shown with the progress. Raises `DataError` if the child process fails.
    """
    problems: dict[int, str] = {}
    progress = Progress(f"decoding {what} to find those that cannot be decoded")
    with tempfile.TemporaryFile() as errors, _start_child(errors) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            with child.stdin as file:
                file.write(json.dumps(request).encode())
            for line in child.stdout:
                if not line.endswith(b"\n"):
                    break  # The child was killed while it wrote the line.
                report = json.loads(line)
                problems |= {int(number): str(problem) for number, problem in report["bad"]}
                progress(f"{report['done']:,} of {total:,}")
        except BrokenPipeError:
            pass  # The exit code is checked below.
        except BaseException:
            child.kill()
            raise
        if child.wait():
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
            raise DataError(
                f"{what} cannot be checked: the process that decodes them "
                f"{describe_exit(child.returncode)}\n{''.join(last)}",
                field="max_bad_records",
                code="server-failed",
            )
    return problems


def find_bad_images(paths: Sequence[str]) -> dict[int, str]:
    """Returns the image files that cannot be decoded, by number, and the problem of each.

    All files are decoded once, and again if one changes.
    """
    key = key_of(paths, ["images"])
    bad = read_result("images", key)
    if bad is None:
        bad = find_undecodable({"images": list(paths)}, "images", len(paths))
        write_result("images", key, bad)
    return bad


def _start_child(errors: IO[bytes]) -> subprocess.Popen[bytes]:
    above = os.fspath(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, [above, os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-m", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={
            **os.environ,
            "PYTHONPATH": path,
            "CUDA_VISIBLE_DEVICES": "-1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
    )
