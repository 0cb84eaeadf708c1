"""Flags that are paths: expands `~`, checks URLs of object stores and files to write."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orbit_runner.errors import RunnerError
from orbit_runner.storage.paths import is_remote, path_problem, strip_file_scheme
from orbit_runner.utils.files import is_special, output_target, special_file_problem

_LOCAL_ADVICE = "use a local path"
SHARED = (
    "the processes of a cluster share one directory: use one that all of them mount, such as "
    "/gcs/BUCKET/… with Cloud Storage FUSE"
)
_CLUSTER_COMMANDS = ("launch", "server", "manifest")

# Name of a parsed flag to its name in messages.
_NAMES = {
    "model_dir": "--model_dir",
    "experiment": "--experiment",
    "config_file": "--config_file",
    "gin_file": "--gin_file",
    "params_override": "--params_override",
    "checkpoint": "--checkpoint",
    "run": "RUN",
    "runs": "RUN",
    "directories": "DIR",
    "html": "--html",
    "images": "--images",
    "inspected": "EXPERIMENT",
    "profiled": "RUN|EXPERIMENT",
    "keep": "--keep",
    "trained": "RUN|EXPERIMENT",
    "where": "WHERE",
    "files": "FILE",
    "sweep_file": "FILE",
    "a": "A",
    "b": "B",
    "left": "the first argument",
    "right": "the second argument",
    "to": "--to",
    "out": "--out",
    "dir": "--dir",
    "project": "DIR",
    "origin": "--from",
    "logs": "--logs",
}
# Flags that name a file or a directory to write.
_OUTPUT_FILES = ("html", "images", "out")
_OUTPUTS = (*_OUTPUT_FILES, "keep", "to", "dir", "logs")
# A mirror of datasets may be any URL.
_ANY_URL_FLAGS = ("origin",)
# Command to the flags that accept the URL of an object store.
_CONFIG_FLAGS = ("experiment", "config_file", "gin_file", "params_override")
_REMOTE_FLAGS: Mapping[str, tuple[str, ...]] = {
    "run": ("model_dir", *_CONFIG_FLAGS),
    "launch": _CONFIG_FLAGS,
    "server": _CONFIG_FLAGS,
    "show": _CONFIG_FLAGS,
    "inspect": ("inspected", *_CONFIG_FLAGS),
    "profile": ("profiled", *_CONFIG_FLAGS),
    "batch": _CONFIG_FLAGS,
    "seen": _CONFIG_FLAGS,
    "list": _CONFIG_FLAGS,
    "validate": ("files", "experiment"),
    "diff": ("left", "right"),
    "compare": ("runs",),
    "report": ("run",),
    "verify": ("run",),
    "reproduce": ("run",),
    "replay": ("run",),
    "why": ("a", "b"),
    "evaluate": ("run",),
    "export": ("run", "to"),
    "predict": ("where",),
    "manifest": _CONFIG_FLAGS,
}


def resolve_path_flags(command: str, flags: argparse.Namespace) -> None:
    """Expands `~`, turns `file://` URLs into paths, and rejects paths that cannot be used.

    Changes `flags` in place. The shell does not expand `~` in `--model_dir=~/a`. Raises
    `RunnerError` if a URL is not supported, `~` names an unknown user, or an output file cannot be
    written: before the work begins whose result it is for.
    """
    problems = []
    for name, shown in _NAMES.items():
        given: Any = getattr(flags, name, None)
        if given == "" and name in _OUTPUTS:
            problems.append(f"{shown}: is empty; specify a path, or omit it")
        if not given:
            continue
        texts = [
            _expand_user(text, shown) for text in ([given] if isinstance(given, str) else given)
        ]
        if name not in _ANY_URL_FLAGS:
            found = [_find_problem(command, name, text) for text in texts]
            problems += [f"{shown}: {problem}" for problem in found if problem]
            texts = [strip_file_scheme(text) for text in texts]
            if name in _OUTPUTS and not any(found):
                found = [_find_output_problem(name, text) for text in texts]
                problems += [f"{shown}: {problem}" for problem in found if problem]
            # The directory of a manifest is on other machines.
            elif name == "model_dir" and not command.startswith("manifest"):
                problems += [f"{shown}: {text}" for text in map(_directory_problem, texts) if text]
        setattr(flags, name, texts[0] if isinstance(given, str) else texts)
    if problems:
        raise RunnerError("\n".join(problems))


def _expand_user(text: str, shown: str) -> str:
    found = os.path.expanduser(text)
    if found.startswith("~"):
        user = found.partition("/")[0]
        raise RunnerError(
            f"{shown}: got {text!r}, but {user} is not a home directory on this machine\n"
            f"use the full path, or ./{text} for a name that begins with ~"
        )
    return found


def _find_problem(command: str, name: str, text: str) -> str:
    use = SHARED if command.startswith(_CLUSTER_COMMANDS) else _LOCAL_ADVICE
    accepted = _REMOTE_FLAGS.get(command.partition(" ")[0], ())
    return path_problem(text, remote=name in accepted, use=use)


def _find_output_problem(name: str, text: str) -> str:
    if is_remote(text):
        return ""
    if name in _OUTPUT_FILES:
        try:
            target = output_target(Path(text))
        except OSError as error:
            return f"cannot write {text}: {error.strerror}"
        if isinstance(target, int) or is_special(target):
            problem = "" if isinstance(target, int) else special_file_problem(target)
            return f"{text} {problem}" if problem else ""
        if _is_redirected_to(target):
            return (
                f"{text} is the file that standard output or standard error is redirected to\n"
                "use another file, or /dev/stdout"
            )
        text = str(target)
    # `os.path`, because methods of `Path` raise an error if the name is too long.
    elif problem := _directory_problem(text):
        return problem
    # Missing directories are created.
    parent = next(one for one in Path(text).absolute().parents if os.path.lexists(one))
    if not os.path.isdir(parent):
        return f"cannot write {text}: {parent} is not a directory"
    if not os.access(parent, os.W_OK):
        return f"cannot write {text}: {parent} is not writable"
    return ""


def _directory_problem(text: str) -> str:
    if is_remote(text) or not os.path.lexists(text) or os.path.isdir(text):
        return ""
    kind = "a file" if os.path.isfile(text) else "no directory"
    return f"{text} is {kind}, expected a directory"


def _is_redirected_to(path: Path) -> bool:
    """Returns whether a stream is redirected to a file, which writing would replace."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return True
    return False
