"""Tests the tests: `python -m tools.mutate --count=100 --seed=0` breaks the source in 100 places.

Each change is made in a copy of the repository. The tests nearest to it run there, the quick ones
first, until one fails.
A change that no test notices is either without effect or shows that a test is missing.

Results are written after each change, so you can stop it and start it again. `--retry` runs the
changes that survived again, after tests were added or with more tests. An `explanation` that
somebody added to a result stays.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import importlib
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import pytest

from tools.mutate.nearest_tests import NearestTests
from tools.mutate.places import Place, choose_places, names_that_reach

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "mutations.json"
PACKAGE = "orbit_runner"
NOTICED, SURVIVED, NOT_REACHED = "noticed", "survived", "not reached"
OUT_OF_TIME = "out of time"
# A quick test takes seconds, or a minute on a busy machine. One that takes longer waits forever.
_HANGS_AFTER = 240.0


class Result(TypedDict):
    """What happened to one change.

    `test` is the test that noticed it. `files` is how many test files ran, `seconds` how long, and
    `explanation` why it is right that no test notices it.
    """

    place: str
    function: str
    kind: str
    before: str
    after: str
    outcome: str
    test: str
    files: int
    seconds: float
    explanation: str


class Results(TypedDict):
    """The results for one seed and one version of the source.

    `failing` are the tests that fail without a change. They are left out.
    """

    seed: int
    count: int
    source: str
    failing: list[str]
    mutations: dict[str, Result]


@dataclasses.dataclass(frozen=True)
class Limits:
    """Which tests run for a change.

    Attributes:
        files: How many test files run at most.
        seconds: How long the quick ones run at most, and how long the slow ones.
        left_out: Tests that fail without a change.
    """

    files: int
    seconds: float
    left_out: tuple[str, ...] = ()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the changes that have no result and prints a table of all; returns 1 if one survived."""
    flags = _parser().parse_args(argv)
    results = read_results(flags.results, flags.count, flags.seed, source_digest(ROOT))
    places = choose_places(ROOT / "src" / PACKAGE, flags.count, flags.seed)
    left = [place for place in places if is_left(results, place, retry=flags.retry)]
    if left and not flags.table:
        with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
            preload()
            copy = copy_repository(ROOT, Path(folder) / "repository")
            tests = NearestTests(copy, PACKAGE)
            for place in left:
                limits = Limits(flags.files, flags.seconds, (*results["failing"],))
                result = try_place(copy, place, tests, limits)
                if before := results["mutations"].get(place.key):
                    result["explanation"] = before["explanation"]
                results["mutations"][place.key] = result
                write_results(flags.results, results)
                print(_row(result), flush=True)
            for name in tests_that_fail_anyway(copy, noticing_tests(results)):
                print(f"fails without a change: {name}; start again without it")
                forget_test(results, name)
                write_results(flags.results, results)
    print(table(results))
    unexplained = [each for each in results["mutations"].values() if needs_test(each)]
    return int(bool(unexplained) or len(results["mutations"]) < flags.count)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many places")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other places")
    parser.add_argument("--files", type=int, default=8, help="how many test files run at most")
    parser.add_argument("--seconds", type=float, default=300, help="how long they run at most")
    parser.add_argument("--retry", action="store_true", help="run those that survived again")
    parser.add_argument("--table", action="store_true", help="print the results, run nothing")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    return parser


def source_digest(root: Path) -> str:
    """Returns a digest of the modules, from which the places are drawn."""
    digest = hashlib.sha256()
    for path in sorted((root / "src" / PACKAGE).rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def read_results(path: Path, count: int, seed: int, source: str) -> Results:
    """Returns the results of a file; none if they are of another seed or of another source."""
    fresh = Results(seed=seed, count=count, source=source, failing=[], mutations={})
    if not path.exists():
        return fresh
    results: Results = json.loads(path.read_text(encoding="utf-8"))
    if (results["seed"], results["count"], results["source"]) != (seed, count, source):
        return fresh
    return results


def write_results(path: Path, results: Results) -> None:
    """Replaces the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(path)


def is_left(results: Results, place: Place, *, retry: bool) -> bool:
    """Returns whether a change has to run."""
    result = results["mutations"].get(place.key)
    return result is None or (retry and needs_test(result))


def needs_test(result: Result) -> bool:
    """Returns whether no test noticed a change, and nobody explained why."""
    return result["outcome"] != NOTICED and not result["explanation"]


def copy_repository(root: Path, target: Path) -> Path:
    """Copies the files that git tracks or would add, as they are in the work tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)
    return target


def try_place(root: Path, place: Place, tests: NearestTests, limits: Limits) -> Result:
    """Makes a change in a copy of the repository, runs the nearest tests, and undoes it."""
    path = root / "src" / PACKAGE / place.path
    module = ".".join([PACKAGE, *Path(place.path).with_suffix("").parts])
    source = path.read_bytes()
    names = names_that_reach(source, place.function)
    nearest = tests.nearest(module, names)[: limits.files]
    start, mark = time.monotonic(), root.parent / "reached"
    mark.unlink(missing_ok=True)
    path.write_bytes(place.apply(source, mark))
    try:
        test = run_tests(root, nearest, limits, names, "--quick") if nearest else ""
        if test == "" and nearest:
            test = run_tests(root, nearest, limits, names, "--slow")
    finally:
        path.write_bytes(source)
    missed = SURVIVED if mark.exists() else NOT_REACHED
    if test is None:
        missed = OUT_OF_TIME
    return Result(
        place=f"{place.path}:{place.line}",
        function=place.function,
        kind=place.kind,
        before=place.before,
        after=" ".join(place.after.split()),
        outcome=NOTICED if test else missed,
        test=test or "",
        files=len(nearest),
        seconds=round(time.monotonic() - start, 1),
        explanation="",
    )


def run_tests(
    root: Path,
    files: Sequence[str],
    limits: Limits,
    names: Sequence[str] = (),
    which: str = "",
) -> str | None:
    """Runs tests in a copy of the repository until one fails.

    A test that hangs fails. Those that contain `names` run first in each file. `which` is the
    option of pytest that chooses quick or slow tests; all run without it.

    Returns:
        The name of the test; "" if none failed, None if the time was over before all had run.
    """
    scratch = root.parent / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    output = root.parent / "output.txt"
    arguments = ["-x", "-vv", *filter(None, [which]), "--tb=no", "-p", "no:cacheprovider", *files]
    arguments += [f"--basetemp={scratch / 'pytest'}"]
    arguments += [f"--deselect={name}" for name in limits.left_out]
    process = _Pytest(arguments, root, scratch, output, _NamesFirst(names))
    hangs = not _wait(process, lambda: output.stat().st_mtime, limits.seconds)
    text = output.read_text(encoding="utf-8", errors="replace")
    code = process.wait()
    if code in (0, 5):  # 5: there is no such test.
        return ""
    if failed := re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.M):
        return failed[1]
    if hangs and (last := re.findall(r"^(tests/\S+::.+?) *$", text, re.M)):
        return f"{last[-1]} (hangs)"
    if code is None or code < 0:
        return None
    return f"{files[0]} (exit code {code})"


def _environment(root: Path, scratch: Path) -> Mapping[str, str]:
    paths = (str(root / "src"), str(root), os.environ.get("PYTHONPATH"))
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "TMPDIR": str(scratch),
    }


class _NamesFirst:
    """Runs tests that contain certain names first, within each file."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        files = {path: index for index, path in enumerate(dict.fromkeys(i.path for i in items))}
        items.sort(key=lambda item: (files[item.path], -self._similarity(item)))

    def _similarity(self, item: pytest.Item) -> int:
        """Returns how many of the names a test uses, and how many of their words its name has."""
        function = getattr(item, "function", None)
        used = {*re.findall(r"\w+", inspect.getsource(function))} if function else set[str]()
        words = {word for name in self._names for word in name.lower().split("_") if word}
        return 3 * len(used & {*self._names}) + len(words & {*item.name.split("_")})


class _Pytest:
    """pytest in a fork of this process, which need not import TensorFlow again."""

    def __init__(
        self,
        arguments: Sequence[str],
        root: Path,
        scratch: Path,
        output: Path,
        plugin: _NamesFirst,
    ) -> None:
        self.returncode: int | None = None
        output.write_bytes(b"")
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.setsid()
                for number, name in enumerate((os.devnull, str(output), str(output))):
                    os.dup2(os.open(name, os.O_RDWR | os.O_APPEND), number)
                sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
                sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
                os.chdir(root)
                os.environ.update(_environment(root, scratch))
                tempfile.tempdir = None
                code = _run_pytest(arguments, root, plugin)
            finally:
                os._exit(code)

    def poll(self) -> int | None:
        """Returns the exit code; None if it is running."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int | None:
        """Waits for its end and returns the exit code."""
        return self._wait(0)

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def _run_pytest(arguments: Sequence[str], root: Path, plugin: _NamesFirst) -> int:
    """Runs pytest with the modules of the copy instead of those of the repository."""
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("tests", "tools", PACKAGE):
            del sys.modules[name]
    others = [path for path in sys.path if Path(path or ".").resolve() not in (ROOT, ROOT / "src")]
    sys.path[:] = [str(root / "src"), str(root), *others]
    sys.argv[:] = ["pytest", *arguments]
    code = int(pytest.main([*arguments], plugins=[plugin]))
    sys.stdout.flush()
    return code


def preload() -> None:
    """Imports what takes longest. No op may run, because forks of TensorFlow's threads hang."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in ("tensorflow", "tf_keras", "official.core.base_task", "orbit", "sklearn", "pandas"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _wait(process: _Pytest, last_sign: Callable[[], float], seconds: float) -> bool:
    """Waits for tests, and ends them after `seconds`. Returns False if one of them hangs."""
    end = time.monotonic() + seconds
    alive = True
    while process.poll() is None and alive and time.monotonic() < end:
        time.sleep(0.2)
        alive = time.time() - last_sign() < _HANGS_AFTER
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # What they started, too.
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)  # It had no group of its own yet.
    process.wait()
    return alive


def noticing_tests(results: Results) -> list[str]:
    """Returns the tests that noticed a change, each once."""
    names = {each["test"] for each in results["mutations"].values()}
    return sorted(name for name in names if "::" in name and not name.endswith(")"))


def tests_that_fail_anyway(root: Path, names: Sequence[str]) -> list[str]:
    """Returns the tests that fail in a copy that is not changed."""
    left, failing = [*names], list[str]()
    while left and (name := run_tests(root, left, Limits(len(left), 3600))):
        failing.append(name)
        if name not in left:
            break
        left.remove(name)
    return [name for name in failing if name in names]


def forget_test(results: Results, name: str) -> None:
    """Removes the results of a test that fails without a change, and leaves it out from now on."""
    results["failing"].append(name)
    kept = {key: each for key, each in results["mutations"].items() if each["test"] != name}
    results["mutations"] = kept


def table(results: Results) -> str:
    """Returns a row for each change, and the sums."""
    rows = [_row(each) for each in results["mutations"].values()]
    outcomes = Counter(each["outcome"] for each in results["mutations"].values())
    missed = sum(outcomes.values()) - outcomes[NOTICED]
    explained = missed - sum(map(needs_test, results["mutations"].values()))
    summary = (
        f"{sum(outcomes.values())} of {results['count']} changes, seed {results['seed']}: "
        f"{outcomes[NOTICED]} noticed, {outcomes[SURVIVED]} survived, "
        f"{outcomes[NOT_REACHED]} not reached, {outcomes[OUT_OF_TIME]} out of time; "
        f"{explained} of {missed} explained"
    )
    return "\n".join([*rows, summary])


def _row(result: Result) -> str:
    change = result["before"] or "nothing"
    after = result["after"] or "nothing"
    reason = result["test"] or result["explanation"] or f"{result['files']} files ran"
    head = f"{result['outcome']:12}{result['place']}  {result['function']}"
    return f"{head}\n{'':12}{_short(change)} → {_short(after)}\n{'':12}{reason}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


if __name__ == "__main__":
    sys.exit(main())
