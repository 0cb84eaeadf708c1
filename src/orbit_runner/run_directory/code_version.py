"""The code that ran: the git revision and the uncommitted changes of the current directory.

Reading them never fails: what cannot be read becomes a note. Does not import TensorFlow.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import hashlib
import os
import re
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.errors import first_line
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import write_atomically

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_MAX_FILE = 256 * 2**10
_MAX_PATCH = 2**20
_MAX_FILES = 300
_MAX_NAMES = 300  # in each list of the record
_MAX_PATCHES = 20  # in a run directory
# Untracked files with these suffixes are code or config. Notebooks contain outputs.
_SUFFIXES = (".py", ".yaml", ".yml", ".gin", ".json", ".toml", ".cfg", ".ini", ".sh")
# No untracked file below such a directory, or with such a name.
_FOREIGN = (".*", "__pycache__", "node_modules", "site-packages")
_SECRET = re.compile(rb"secret|credential|password|passwd|api_?key", re.IGNORECASE)
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
# Options that the user's configuration of git would otherwise change.
_DIFF = (
    *("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--full-index"),
    *("--unified=3", "--inter-hunk-context=0", "--diff-algorithm=default"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--ignore-submodules=untracked"),
)
# An untracked file is copied as it is, without the filters and line endings of the repository.
_NO_REPOSITORY = ("--git-dir", os.devnull, "-c", "core.autocrlf=false")
_HEAD = re.compile(rb"(.*)\n([0-9a-f]{40,64})\n(\S+)\n", re.DOTALL)
_FILE_HEADER = re.compile(rb"^diff --git (.*)\n", re.MULTILINE)
_SUBMODULE = re.compile(rb"^(index \S+|(new file|deleted file|old|new) mode) 160000$", re.MULTILINE)
_BINARY = re.compile(rb"^Binary files ", re.MULTILINE)
_MAX_SECONDS = 10.0  # for all commands together
_MAX_OUTPUT = 32 * 2**20  # bytes of one command
# Do not write the index, so that git commands of the user do not meet its lock.
_GIT_SETTINGS = ("-c", "core.quotePath=true", "-c", "diff.autoRefreshIndex=false")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeVersion:
    """The git revision and the uncommitted changes of the current directory."""

    revision: str | None = None
    branch: str | None = None  # None if HEAD is detached.
    # A short digest of the changes of each file, "" if they were not read. None if unknown.
    changed: Mapping[str, str] | None = None
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)  # Reasons by file.
    notes: tuple[str, ...] = ()
    patch: bytes = b""  # The changes for `git apply`, except for those left out.

    def as_dict(self) -> JsonObject:
        """Returns the section `code` of `run.json`, without the name of a patch file."""
        return {
            "revision": self.revision,
            "branch": self.branch,
            "patch": None,
            "sha256": hashlib.sha256(self.patch).hexdigest() if self.patch else None,
            "changed": self.changed,
            "left_out": self.left_out,
            "notes": [*self.notes],
        }


def read_code_version(run: Path | None = None) -> CodeVersion:
    """Returns the version of the code in the current directory, without the files in `run`."""
    git = Git()
    changes = _Changes()
    try:
        output = git.output("rev-parse", "--show-toplevel", "--revs-only", "HEAD",
                           "--symbolic-full-name", "HEAD")  # fmt: skip
        head = _HEAD.fullmatch(output)
        if head is None:
            return CodeVersion(notes=("the git repository has no commit",))
        git.root = Path(os.fsdecode(head[1]))
    except (GitError, OSError) as error:
        return CodeVersion(notes=(first_line(error),))
    ref = head[3].decode("utf-8", "backslashreplace")
    code = CodeVersion(
        revision=head[2].decode(), branch=ref.removeprefix("refs/heads/") if ref != "HEAD" else None
    )
    try:
        own = _run_directory_prefix(run, git.root)
        _add_tracked(changes, git, own)
        _add_untracked(changes, git, own)
    except Exception as error:  # Whatever it is, the run must start.
        note = f"the uncommitted changes are unknown: {first_line(error)}"
        return dataclasses.replace(code, notes=(note,))
    title = f"Uncommitted changes to revision {code.revision}, for git apply\n\n".encode()
    return dataclasses.replace(
        code,
        changed=_limit_names(changes.digests, changes.notes, "changed files"),
        left_out=_limit_names(changes.left_out, changes.notes, "files that were left out"),
        notes=tuple(changes.notes),
        patch=title + b"".join(changes.parts) if changes.parts else b"",
    )


def keep_patch(code: CodeVersion, run: Path) -> JsonObject:
    """Writes the patch to the run directory. Returns the section `code` of `run.json`.

    An earlier start may have left a patch. It is kept, and shared if it is equal.
    """
    entry = code.as_dict()
    note = ""
    if code.patch:
        try:
            entry["patch"] = _patch_file(code.patch, run)
            note = "" if entry["patch"] else f"the run directory already has {_MAX_PATCHES} patches"
        except OSError as error:
            note = f"the patch cannot be written: {first_line(error)}"
    entry["notes"] += [note] if note else []
    return entry


def _patch_file(patch: bytes, run: Path) -> str | None:
    for number in range(1, _MAX_PATCHES + 1):
        path = RunDirectory(run).code_patch(number)
        if not os.path.lexists(path):
            write_atomically(path, patch)
            return path.name
        if path.is_file() and path.read_bytes() == patch:
            return path.name
    return None


def code_differences(
    attempts: Sequence[Mapping[str, object]], step: int, now: CodeVersion
) -> Iterator[str]:
    """Yields how the code differs from that of the start that reached a checkpoint.

    `attempts` are the entries of `run.json`, and `step` is that of the checkpoint. Yields nothing
    if they contain no revision.
    """
    before = code_of(attempts, step)
    revision = before.get("revision")
    files = before.get("changed")
    if not isinstance(revision, str):
        return
    if now.revision is None:
        yield f"the code cannot be compared with revision {revision[:7]}: {now.notes[0]}"
        return
    if now.revision != revision:
        yield f"git revision: {revision[:7]} → {now.revision[:7]}"
    if not isinstance(files, dict) or now.changed is None:
        yield "the uncommitted changes of the code cannot be compared"
        return
    names = sorted({*files, *now.changed})
    if different := [name for name in names if files.get(name) != now.changed.get(name)]:
        more = f" and {len(different) - 5} more" if different[5:] else ""
        yield f"uncommitted changes of the code: {', '.join(different[:5])}{more}"


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


class _Changes:
    """Collects the changes of files, up to the limits of a patch."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.digests: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.notes: list[str] = []
        self._size = 0

    def add(self, name: bytes, text: bytes, reason: str = "") -> None:
        """Adds the diff of a file, or leaves it out if there is a reason or no room."""
        shown = name.decode("utf-8", "backslashreplace")
        self.digests[shown] = hashlib.sha256(text).hexdigest()[:16] if text else ""
        if reason := reason or self._reason(name, text):
            self.left_out[shown] = reason
            return
        self.parts.append(text)
        self._size += len(text)

    @property
    def limit_reason(self) -> str:
        """The reason why no file can be added; "" if one can."""
        return f"more than {_MAX_FILES} files" if len(self.digests) > _MAX_FILES else ""

    def _reason(self, name: bytes, text: bytes) -> str:
        if name.rpartition(b"/")[2].startswith(b".env") or _PRIVATE_KEY.search(text):
            return "may contain a secret"
        if len(text) > _MAX_FILE:
            return f"larger than {_MAX_FILE // 2**10} KiB"
        if self._size + len(text) > _MAX_PATCH:
            return f"the patch would be larger than {_MAX_PATCH // 2**20} MiB"
        return self.limit_reason


def _add_tracked(changes: _Changes, git: Git, own: bytes | None) -> None:
    diff = git.output(*_DIFF, "HEAD", "--")
    if len(diff) > _MAX_OUTPUT:
        raise GitError(f"they are larger than {_MAX_OUTPUT // 2**20} MiB")
    for name, text in diffs_by_file(diff).items():
        # The run directory may be the root of the repository.
        if not own or not name.startswith(own):
            changes.add(name, text, _skip_reason(text))


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


def _skip_reason(text: bytes) -> str:
    header = text.partition(b"\n@@ ")[0]
    if _SUBMODULE.search(header):
        return "a submodule"
    return "a binary file" if _BINARY.search(header) else ""


def _run_directory_prefix(run: Path | None, root: Path) -> bytes | None:
    """Returns the prefix of the files of a run directory; None if it is not in the repository."""
    if run is None:
        return None
    # Unlike `Path.resolve`, this accepts links that form a loop.
    path = Path(os.path.realpath(run))
    top = Path(os.path.realpath(root))
    if not path.is_relative_to(top):
        return None
    below = path.relative_to(top)
    return os.fsencode(f"{below}/") if below.parts else b""


def _add_untracked(changes: _Changes, git: Git, own: bytes | None) -> None:
    excluded = [f"--exclude={pattern}" for pattern in _FOREIGN]
    patterns = [f"*{suffix}" for suffix in _SUFFIXES]
    listed = git.output(
        "ls-files", "--others", "--exclude-standard", *excluded, "-z", "--", *patterns
    )
    if len(listed) > _MAX_OUTPUT:
        changes.notes.append("there are too many untracked files; none are in the patch")
        return
    names = listed.split(b"\0")[:-1]
    generated = {_generated_directory(git.root, name) for name in names} | {own}
    if b"" in generated:
        changes.notes.append(
            "untracked files are not in the patch, because the repository is a run directory"
        )
        return
    # Files near the root come first, because those far below it may be data.
    for name in sorted(names, key=lambda name: (name.count(b"/"), name)):
        if generated.isdisjoint(_directories(name)):
            changes.add(name, *_diff_added_file(git, name, changes.limit_reason))


def _directories(name: bytes) -> Iterator[bytes]:
    """Yields `a/` and `a/b/` for `a/b/c`."""
    end = name.find(b"/") + 1
    while end:
        yield name[:end]
        end = name.find(b"/", end) + 1


def _generated_directory(root: Path, name: bytes) -> bytes | None:
    """Returns the prefix of a run directory or virtual environment that a file identifies."""
    above, slash, file = name.rpartition(b"/")
    if (file == b"pyvenv.cfg" and slash) or (file == b"run.json" and _is_run_record(root, name)):
        return above + slash
    return None


def _is_run_record(root: Path, name: bytes) -> bool:
    try:
        path = root / os.fsdecode(name)
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return b'"attempts"' in file.read(64)
    except OSError:
        return False


def _diff_added_file(git: Git, name: bytes, limit_reason: str) -> tuple[bytes, str]:
    """Returns the diff that adds an untracked file, and the reason to leave it out if any."""
    if limit_reason:
        return b"", limit_reason
    if _SECRET.search(name) and not name.endswith((b".py", b".sh")):
        return b"", "may contain a secret"
    path = os.fsdecode(name)
    try:
        info = (git.root / path).lstat()
        if not stat.S_ISREG(info.st_mode):
            return b"", "not a regular file"
        if info.st_size > _MAX_FILE:
            return b"", f"larger than {_MAX_FILE // 2**10} KiB"
        text = git.output(*_NO_REPOSITORY, *_DIFF, "--no-index", "--", os.devnull, path)
    except GitTimeoutError:
        raise
    except (GitError, OSError) as error:  # It was deleted, or it must not be read.
        return b"", first_line(error)
    return text, _skip_reason(text)


def _limit_names(values: Mapping[str, str], notes: list[str], what: str) -> dict[str, str]:
    if len(values) > _MAX_NAMES:
        notes.append(f"{len(values) - _MAX_NAMES} more {what} are not listed")
    return dict([*values.items()][:_MAX_NAMES])


class GitError(Exception):
    """Raised if git gives no result."""


class GitTimeoutError(GitError):
    """Raised if all commands together take longer than `_MAX_SECONDS`."""


class Git:
    """Runs git with a limit for the total time. Runs it in `root` once that is set."""

    root: Path = Path()

    def __init__(self) -> None:
        self._end = time.monotonic() + _MAX_SECONDS
        self._environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}

    def output(self, *arguments: str) -> bytes:
        """Returns the output of a git command, cut after `_MAX_OUTPUT` + 1 bytes."""
        command = ["git", *_GIT_SETTINGS, *arguments]
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    command, cwd=self.root, env=self._environment, stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
                )  # fmt: skip
            except FileNotFoundError:
                raise GitError("git is not installed") from None
            output = self._read_output(process)
            errors.seek(0)
            message = errors.read(1000).decode("utf-8", "backslashreplace").strip()
        # `diff --no-index` exits with 1 if there is a difference.
        is_difference = process.returncode == 1 and output.startswith(b"diff --git ")
        if process.returncode == 0 or is_difference or len(output) > _MAX_OUTPUT:
            return output
        if time.monotonic() >= self._end:
            raise GitTimeoutError(f"git took longer than {_MAX_SECONDS:g} seconds")
        if "not a git repository" in message:
            raise GitError("not in a git repository")
        raise GitError(message.removeprefix("fatal: ") or f"git {arguments[0]} failed")

    def _read_output(self, process: subprocess.Popen[bytes]) -> bytes:
        timer = threading.Timer(max(0.0, self._end - time.monotonic()), _kill, [process])
        timer.start()
        try:
            with process:
                assert process.stdout is not None
                return process.stdout.read(_MAX_OUTPUT + 1)
        finally:
            timer.cancel()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills git and its children, such as filters, which may keep its output open."""
    with contextlib.suppress(OSError):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
