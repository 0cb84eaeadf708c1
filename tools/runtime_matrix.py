"""Trains every experiment with every fragment of the runtime: `python -m tools.runtime_matrix`.

A cell is an experiment of `experiments/` and a fragment. It takes three steps and one evaluation on
small synthetic inputs. It either completes, or the runner refuses its config before TensorFlow is
imported. Results are lines of JSON in a file. A second start runs the cells that have none.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.parsing.search_path import shipped_root
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.errors import unknown_name_message
from orbit_runner.jobs.preflight import check_before_start
from tests.support.small_experiments import overrides
from tools.model_garden_matrix.results import versions
from tools.model_garden_matrix.stages import reason_of, strip_paths

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "runtime_matrix.md"
RESULTS = Path("runs/runtime_matrix/results.jsonl")
PASSES, REFUSED, FAILS = "passes", "refused", "fails"
EXPERIMENTS = tuple(sorted(path.stem for path in (shipped_root() / "experiments").iterdir()))
_MODE, _STEPS = "train_and_eval", 3
# All cells of a process have the same number of threads, because it cannot be changed.
_ALWAYS = ("runtime.intra_op_threads=1",)

Result = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Fragment:
    """Settings that are combined with each experiment: files of `configs/`, and overrides."""

    description: str
    files: tuple[str, ...] = ("runtime/cpu.yaml",)
    overrides: tuple[str, ...] = ()

    def resolve(self, experiment: str) -> ResolvedConfig:
        """Returns the config of a cell."""
        files = ("trainer/smoke.yaml", *self.files)
        return resolve(
            Request(
                experiment=experiment,
                config_files=tuple(str(shipped_root() / "configs" / name) for name in files),
                params_overrides=(*overrides(experiment), *_ALWAYS, *self.overrides),
            )
        )


def _settings(description: str, *settings: str) -> Fragment:
    return Fragment(description, overrides=settings)


def _file(description: str, name: str) -> Fragment:
    return Fragment(description, files=("runtime/cpu.yaml", name))


FRAGMENTS: Mapping[str, Fragment] = {
    "cpu": Fragment("one replica on the CPU, in float32"),
    "bfloat16": _file("activations in bfloat16", "runtime/bfloat16.yaml"),
    "float16": _file("activations in float16, with a dynamic loss scale", "runtime/float16.yaml"),
    "xla": _settings("compiled with XLA", "runtime.enable_xla=true"),
    "xla_nondeterministic": _settings(
        "compiled with XLA, without deterministic ops",
        "runtime.enable_xla=true",
        "runtime.deterministic=false",
    ),
    "mirrored": Fragment("two replicas", files=("runtime/mirrored_2cpu.yaml",)),
    "logical_replicas": _settings("each batch in two parts", "runtime.logical_replicas=2"),
    "accumulation": _settings(
        "gradients of two parts of each batch", "trainer.gradient_accumulation_steps=2"
    ),
    "ema": _file("a moving average of the weights", "trainer/ema.yaml"),
    "watch": _settings("norms of each layer", "trainer.watch_interval=3"),
    "portable": _settings("portable numerics", "runtime.numerics=portable"),
    "eager": _settings("without graphs", "runtime.run_eagerly=true"),
}

# One cell of each task, and of each kind of network.
SAMPLE = (
    ("transformer_wmt_ende", "bfloat16"),
    ("transformer_wmt_ende", "float16"),
    ("digits", "xla"),
    ("vit_base_imagenet", "accumulation"),
    ("ncf_movielens", "logical_replicas"),
    ("breast_cancer", "watch"),
)


def check_cell(experiment: str, fragment: str, model_dir: Path) -> ResolvedConfig | str:
    """Returns the config of a cell, or why the runner refuses it. Does not import TensorFlow."""
    try:
        resolved = FRAGMENTS[fragment].resolve(experiment)
        check_before_start(resolved, _MODE, model_dir)
    except ConfigError as error:
        problem = error.problems[0]
        return f"`{problem.path}`: {'; '.join(problem.message.splitlines())}"
    return resolved


def train_cell(resolved: ResolvedConfig, model_dir: Path) -> None:
    """Trains and evaluates a cell.

    Raises:
        ValueError: A result is not finite, or a weight is not float32.
    """
    import tensorflow as tf

    from orbit_runner import train_lib

    strategy, task = train_lib.prepare(resolved.config, str(model_dir), mode=_MODE)
    model, logs = train_lib.run_experiment(strategy, task, _MODE, resolved.config, str(model_dir))
    if not any(model_dir.glob(f"checkpoints/ckpt-{_STEPS}.*")):
        raise ValueError(f"got no checkpoint of step {_STEPS}")
    wrong = [name for name, value in logs.items() if not _is_finite(value)]
    if wrong:
        raise ValueError(f"got {wrong[0]} = {logs[wrong[0]]}, expected a finite number")
    dtypes = {variable.dtype.name for variable in model.trainable_variables}
    if dtypes != {tf.float32.name}:
        raise ValueError(f"got weights of {', '.join(sorted(dtypes))}, expected float32")


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def run_cells(fragment: str, experiments: Sequence[str], path: Path) -> None:
    """Runs the cells of a fragment in this process, and writes each result at once."""
    with tempfile.TemporaryDirectory(prefix="runtime_matrix_") as directory:
        accepted = {}
        for experiment in experiments:
            outcome = check_cell(experiment, fragment, Path(directory, experiment))
            if isinstance(outcome, str):
                _append(path, experiment, fragment, REFUSED, outcome)
            else:
                accepted[experiment] = outcome
        if "tensorflow" in sys.modules:
            raise RuntimeError("a check imported TensorFlow")
        for experiment, resolved in accepted.items():
            start = time.monotonic()
            _mark_start(path, experiment)
            outcome, reason = PASSES, ""
            try:
                train_cell(resolved, Path(directory, experiment))
            except Exception as error:
                traceback.print_exc()
                outcome, reason = FAILS, strip_paths(reason_of(error), Path(directory))
            _append(path, experiment, fragment, outcome, reason, time.monotonic() - start)


def _mark_start(path: Path, experiment: str) -> None:
    path.with_suffix(".started").write_text(experiment, encoding="utf-8")


def _append(
    path: Path, experiment: str, fragment: str, outcome: str, reason: str = "", seconds: float = 0
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "experiment": experiment,
        "fragment": fragment,
        "outcome": outcome,
        "reason": reason,
        "seconds": round(seconds, 1),
        "versions": versions(),
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    print(f"{fragment} {experiment}: {outcome} {reason} ({seconds:.0f} s)", file=sys.stderr)


def read_results(path: Path) -> dict[tuple[str, str], Result]:
    """Returns the last result of each cell for the installed versions."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    # A line is incomplete if the process was killed.
    results = [json.loads(line) for line in lines if line.endswith("}")]
    here = versions()
    return {(r["experiment"], r["fragment"]): r for r in results if r["versions"] == here}


def run_fragment(fragment: str, experiments: Sequence[str], path: Path, seconds: float) -> None:
    """Runs cells in one process. If it ends early, runs the rest in another."""
    left = list(experiments)
    log = path.parent / "logs" / f"{fragment}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    while left:
        print(f"{fragment}: {len(left)} experiments …", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "tools.runtime_matrix", "--worker", fragment]
        done = {name for name, column in read_results(path) if column == fragment}
        with log.open("ab") as file:
            try:
                code = subprocess.run(
                    [*command, f"--results={path.resolve()}", *left],
                    cwd=ROOT,
                    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    timeout=seconds * len(left),
                    check=False,
                ).returncode
                ending = f"the process was killed by signal {-code}" if code < 0 else f"exit {code}"
            except subprocess.TimeoutExpired:
                ending = f"the process took more than {seconds * len(left):g} s"
        done = {name for name, column in read_results(path) if column == fragment} - done
        left = [name for name in left if name not in done]
        if left:
            started = path.with_suffix(".started")
            current = started.read_text(encoding="utf-8") if started.exists() else left[0]
            current = current if current in left else left[0]
            _append(path, current, fragment, FAILS, f"{ending}; see {log.name}")
            left.remove(current)


def make_page(results: Mapping[tuple[str, str], Result]) -> str:
    """Returns the page with the table of results, as Markdown."""
    counts = {
        outcome: sum(result["outcome"] == outcome for result in results.values())
        for outcome in (PASSES, REFUSED, FAILS)
    }
    total = len(EXPERIMENTS) * len(FRAGMENTS)
    missing = total - sum(counts.values())
    summary = f"**{total} cells: {counts[PASSES]} pass, {counts[REFUSED]} are refused before "
    summary += f"TensorFlow is imported, {counts[FAILS]} fail"
    summary += f", {missing} not run.**" if missing else ".**"
    here = ", ".join(f"{package} {version}" for package, version in versions().items())
    reasons: dict[tuple[str, str], list[str]] = {}
    for (experiment, fragment), result in sorted(results.items()):
        if result["outcome"] != PASSES:
            cell = f"`{experiment}` with `{fragment}`"
            reasons.setdefault((result["outcome"], result["reason"]), []).append(cell)
    columns = ["experiment", *(f"`{name}`" for name in FRAGMENTS)]
    rows = [[f"`{name}`", *_row(name, results)] for name in EXPERIMENTS]
    return "\n".join(
        [
            "# Experiments and runtimes",
            "",
            summary,
            "",
            f"Generated by `make matrix` with {here}. Each experiment of the package is combined",
            "with each of the following fragments, and trains three steps and evaluates once, on",
            "small synthetic inputs on a CPU. Refused means that the runner reports a problem in",
            "the config and exits with code 2.",
            "",
            *_table(
                ["fragment", "runtime", "settings"],
                [
                    [f"`{name}`", fragment.description, _format_settings(fragment)]
                    for name, fragment in FRAGMENTS.items()
                ],
            ),
            "",
            *_table(columns, rows),
            *(["", "## Reasons", ""] if reasons else []),
            *(
                f"- {outcome}: {reason}: {', '.join(cells)}"
                for (outcome, reason), cells in reasons.items()
            ),
            "",
        ]
    )


def _format_settings(fragment: Fragment) -> str:
    files = [f"`configs/{name}`" for name in fragment.files if name != "runtime/cpu.yaml"]
    settings = [f"`--{setting}`" for setting in fragment.overrides]
    return ", ".join([*files, *settings]) or "`configs/runtime/cpu.yaml`"


def _row(experiment: str, results: Mapping[tuple[str, str], Result]) -> list[str]:
    cells = [results.get((experiment, fragment)) for fragment in FRAGMENTS]
    return ["not run" if cell is None else cell["outcome"] for cell in cells]


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cells that have no result yet, or writes the page.

    Returns:
        0; 1 if a cell failed; 2 if a name is unknown; 130 if interrupted.
    """
    flags = _parser().parse_args(arguments)
    if flags.worker:
        run_cells(flags.worker, flags.experiments, flags.results)
        return 0
    if flags.page:
        PAGE.write_text(make_page(read_results(flags.results)), encoding="utf-8")
        print(PAGE)
        return 0
    chosen = {"experiment": flags.experiments, "fragment": flags.fragments}
    for kind, allowed in (("experiment", EXPERIMENTS), ("fragment", tuple(FRAGMENTS))):
        for name in chosen[kind]:
            if name not in allowed:
                message = unknown_name_message(kind, name, allowed)
                print(f"runtime_matrix: {message}", file=sys.stderr)
                return 2
    done = {} if flags.anew else read_results(flags.results)
    if flags.again:
        done = {cell: result for cell, result in done.items() if result["outcome"] != FAILS}
    try:
        for fragment in flags.fragments or FRAGMENTS:
            experiments = flags.experiments or EXPERIMENTS
            left = [name for name in experiments if (name, fragment) not in done]
            run_fragment(fragment, left, flags.results, flags.seconds)
    except KeyboardInterrupt:
        print("\nstopped; run the same command again to continue", file=sys.stderr)
        return 130
    return int(any(r["outcome"] == FAILS for r in read_results(flags.results).values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.runtime_matrix", description=__doc__)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help="by default all")
    parser.add_argument(
        "--fragments", nargs="+", default=[], metavar="NAME", help=", ".join(FRAGMENTS)
    )
    parser.add_argument("--again", action="store_true", help="run failed cells again")
    parser.add_argument("--anew", action="store_true", help="ignore earlier results")
    parser.add_argument("--page", action="store_true", help="only write the page of results")
    parser.add_argument("--seconds", type=float, default=600, help="time limit of a cell")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
