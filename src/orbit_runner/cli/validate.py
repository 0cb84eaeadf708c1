"""`runner validate`: checks files, all errors of all files at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orbit_runner.cli.flags import parse, parser
from orbit_runner.config.locate import experiment_files, find_experiment
from orbit_runner.config.problems import ConfigError, Problem
from orbit_runner.config.resolve import Request, resolve


def main(arguments: Sequence[str]) -> int:
    """Checks experiments and fragments.

    A fragment declares no task, so it is laid over the experiment that `--experiment` names, or
    else over each experiment until it fits one.

    Args:
        arguments: The arguments after `validate`.

    Returns:
        0.

    Raises:
        ConfigError: Any of the files has a problem.
    """
    to = parser("validate", "Check experiments and fragments; print all errors of all files.")
    to.add_argument("files", nargs="+", metavar="FILE", help="a name, a file, or a run")
    to.add_argument("--experiment", metavar="NAME", help="what fragments are laid over")
    to.add_argument("--import", dest="imports", action="append", help="import a module first")
    flags = parse(to, arguments)
    problems: list[Problem] = []
    for name in flags.files:
        found = _problems(name, flags.experiment, tuple(flags.imports or ()))
        problems += found
        if not found:
            print(f"{name}: ok")
    if problems:
        raise ConfigError(problems, shown=len(problems))
    return 0


def _problems(name: str, experiment: str | None, imports: tuple[str, ...]) -> list[Problem]:
    alone = _attempt(Request(experiment=name, imports=imports))
    if not _lacks_task(alone):
        return alone
    layer = (name if Path(name).suffix else str(find_experiment(name)),)
    bases = [experiment] if experiment else [*experiment_files()]
    attempts = (_attempt(Request(experiment=b, imports=imports, config_files=layer)) for b in bases)
    best = alone
    for found in attempts:
        if not found:
            return []
        best = found if best is alone or len(found) < len(best) else best
    return alone if _lacks_task(best) else best


def _lacks_task(problems: Sequence[Problem]) -> bool:
    return any(problem.path == "task.name" for problem in problems)


def _attempt(request: Request) -> list[Problem]:
    try:
        resolve(request)
    except ConfigError as error:
        return [*error.problems]
    return []
