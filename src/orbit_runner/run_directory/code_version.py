"""The code that ran: the git revision and the uncommitted changes of the current directory.

Reading them never fails: what cannot be read becomes a note. Does not import TensorFlow.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_runner.errors import first_line
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import write_atomically
from orbit_runner.utils.user_code import format_names

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

REVISION = "git revision"
_MAX_SECONDS = 10.0
_GIT = (
    # Do not write the index, so that git commands of the user do not meet its lock.
    *("git", "-c", "core.quotePath=true", "-c", "diff.autoRefreshIndex=false"),
    # Report a large file like a binary one: its content would take minutes.
    *("-c", "core.bigFileThreshold=256k"),
)
# Options that the user's configuration of git would otherwise change.
_DIFF = (
    *("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--full-index"),
    *("--unified=3", "--inter-hunk-context=0", "--diff-algorithm=default", "--no-relative"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--ignore-submodules=all"),
)
_HEAD = re.compile(rb"(.*)\n([0-9a-f]{40,64})\n", re.DOTALL)
# What a part of a diff must not contain, by what it is called: git's line on a binary file, and
# what may be a secret.
_LEFT_OUT = {
    "a binary or large file": re.compile(rb"^Binary files ", re.MULTILINE),
    "a possible secret": re.compile(
        rb"\Adiff --git a/(\S*/)?\.env|-----BEGIN [A-Z ]*PRIVATE KEY-----", re.MULTILINE
    ),
}
_FILE_HEADER = re.compile(rb"^diff --git (.*)\n", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeVersion:
    """The git revision and the uncommitted changes of the current directory."""

    revision: str | None = None
    # A short digest of the changes of each tracked file. None if they are unknown.
    changed: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()
    patch: bytes = b""  # the changes for `git apply`

    def as_dict(self) -> JsonObject:
        """Returns the section `code` of `run.json`, without the name of a patch file."""
        return {
            "revision": self.revision,
            "patch": None,
            "changed": self.changed,
            "notes": [*self.notes],
        }


def read_code_version(run: Path | None = None) -> CodeVersion:
    """Returns the version of the code in the current directory, without the files in `run`."""
    try:
        head = _HEAD.fullmatch(_git("rev-parse", "--show-toplevel", "--revs-only", "HEAD"))
    except GitError as error:
        return CodeVersion(notes=(first_line(error),))
    if head is None:
        return CodeVersion(notes=("the git repository has no commit",))
    revision = head[2].decode()
    try:
        parts = diffs_by_file(_git(*_DIFF, "HEAD", "--"))
        if run is not None:
            root, own = (Path(os.path.realpath(path)) for path in (os.fsdecode(head[1]), run))
            parts = {
                name: text
                for name, text in parts.items()
                if own == root or own not in (root / os.fsdecode(name)).parents
            }
    except Exception as error:  # Whatever it is, the run must start.
        note = f"the uncommitted changes are unknown: {first_line(error)}"
        return CodeVersion(revision=revision, notes=(note,))
    changed = {_shown(name): hashlib.sha256(text).hexdigest()[:16] for name, text in parts.items()}
    left_out = {
        name: reason
        for name, text in parts.items()
        for reason, pattern in _LEFT_OUT.items()
        if pattern.search(text)
    }
    notes = tuple(f"not in the patch: {_shown(n)}, {reason}" for n, reason in left_out.items())
    patch = b"".join(text for name, text in parts.items() if name not in left_out)
    title = f"Uncommitted changes to revision {revision}, for git apply\n\n".encode()
    return CodeVersion(
        revision=revision, changed=changed, notes=notes, patch=title + patch if patch else b""
    )


def diffs_by_file(diff: bytes) -> dict[bytes, bytes]:
    """Returns the parts of a diff by file. A file that became a link has two, which are joined."""
    parts: dict[bytes, bytes] = {}
    headers = [*_FILE_HEADER.finditer(diff)]
    ends = [*(header.start() for header in headers), len(diff)][1:]
    for header, end in zip(headers, ends, strict=True):
        # Without renames, both names are equal: `a/NAME b/NAME`.
        name = header[1][: (len(header[1]) - 1) // 2]
        if name.startswith(b'"'):
            name = ast.literal_eval(f"b{name.decode()}")
        name = name.removeprefix(b"a/")
        parts[name] = parts.get(name, b"") + diff[header.start() : end]
    return parts


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


class GitError(Exception):
    """Raised if git gives no result."""


def _git(*arguments: str) -> bytes:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        completed = subprocess.run(
            [*_GIT, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_MAX_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise GitError("git is not installed") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git took longer than {_MAX_SECONDS:g} seconds") from None
    except OSError as error:
        raise GitError(str(error)) from None
    if completed.returncode:
        message = completed.stderr.decode("utf-8", "backslashreplace").strip()
        if "not a git repository" in message:
            raise GitError("not in a git repository")
        raise GitError(message.removeprefix("fatal: ") or f"git {arguments[0]} failed")
    return completed.stdout


def keep_patch(code: CodeVersion, run: Path) -> JsonObject:
    """Writes the patch to the run directory, in place of that of an earlier start.

    Returns the section `code` of `run.json`.
    """
    entry = code.as_dict()
    path = RunDirectory(run).code_patch
    if code.patch:
        try:
            write_atomically(path, code.patch)
            entry["patch"] = path.name
        except OSError as error:
            entry["notes"].append(f"the patch cannot be written: {first_line(error)}")
    return entry


def code_differences(
    attempts: Sequence[Mapping[str, object]], step: int, now: CodeVersion
) -> Iterator[str]:
    """Yields how the code differs from that of the start that reached a checkpoint.

    `attempts` are the entries of `run.json`, and `step` is that of the checkpoint. Yields nothing
    if they contain no revision.
    """
    before = code_of(attempts, step)
    revision = before.get("revision")
    if not isinstance(revision, str):
        return
    if now.revision is None:
        yield f"the code cannot be compared with revision {revision[:7]}: {now.notes[0]}"
        return
    different = {name: pair for name, *pair in compare_code(before, now.as_dict())}
    if pair := different.pop(REVISION, None):
        yield f"{REVISION}: {pair[0][:7]} → {pair[1][:7]}"
    if not isinstance(before.get("changed"), dict) or now.changed is None:
        yield "the uncommitted changes of the code cannot be compared"
    if different:
        yield f"uncommitted changes of the code: {format_names([*different])}"


def compare_code(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Yields what differs between two sections `code` of `run.json`: its name, and both values.

    That is `REVISION`, and each file with other uncommitted changes, whose value is their digest,
    or "" without any. What is not known of both is not compared.
    """
    revisions = [code.get("revision") for code in (before, now)]
    if all(revisions) and revisions[0] != revisions[1]:
        yield REVISION, str(revisions[0]), str(revisions[1])
    left, right = (code.get("changed") for code in (before, now))
    if isinstance(left, dict) and isinstance(right, dict):
        for name in sorted({*left, *right}):
            if left.get(name) != right.get(name):
                yield name, left.get(name, ""), right.get(name, "")


def code_of(attempts: Sequence[Mapping[str, object]], step: int) -> Mapping[str, object]:
    """Returns the section `code` of the last start that trained, which reached `step`."""
    trained = [attempt for attempt in attempts if attempt.get("train_steps")]
    # Later starts of a finished run train no further.
    ended = (
        attempt
        for attempt in trained
        if (attempt.get("outcome"), attempt.get("step")) == ("done", step)
    )
    code = next(ended, trained[-1] if trained else {}).get("code")
    return code if isinstance(code, dict) else {}
