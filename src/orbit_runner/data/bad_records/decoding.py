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
from typing import Any

from orbit_runner.data.bad_records.result_cache import key_of, read_result, write_result
from orbit_runner.errors import DataError
from orbit_runner.utils.log import Progress

_CHILD = "orbit_runner.data.bad_records.decoding_process"


def find_undecodable(request: Mapping[str, Any], what: str, total: int) -> dict[int, str]:
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
                f"{what} cannot be checked: the process that decodes them ended with code "
                f"{child.returncode}\n{''.join(last)}",
                field="max_bad_records",
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


def _start_child(errors: Any) -> subprocess.Popen[bytes]:
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
