"""`docs/official_experiments.md`: what became of every experiment, a row each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tools.model_garden_matrix.results import Result, is_whole
from tools.model_garden_matrix.run import ROOT
from tools.model_garden_matrix.stages import OK, STAGES, count_done, first_reason

PAGE = ROOT / "docs" / "official_experiments.md"
_HEAD = """\
# Experiments of Model Garden

{counts}

Written by `make official-matrix`, not by hand, with {versions}. Each experiment is taken through
four stages, in a process of its own, on a CPU: its config *resolves* as it is registered
(`runner --experiment=official/NAME`); then, made small and given data that are made up in the
format it reads, its model *builds*, *trains* two steps and *evaluates* one. Where a stage fails,
Model Garden's own runner is given the same, to tell whose failure it is.
"""
_COLUMNS = ("experiment", *STAGES, "reason")


def table(names: Iterable[str], found: Mapping[str, Result], versions: Mapping[str, str]) -> str:
    """Returns the page.

    Args:
        names: All experiments.
        found: The results there are, by name.
        versions: Of what they depend on.

    Returns:
        Markdown, which differs only where results do.
    """
    ordered = sorted(names)
    rows = [_row(name, found.get(name)) for name in ordered]
    head = _HEAD.format(
        counts=_counts([found[name] for name in ordered if name in found], len(ordered)),
        versions=", ".join(f"{package} {version}" for package, version in versions.items()),
    )
    lines = [_line(_COLUMNS), _line("---" for _ in _COLUMNS), *(_line(row) for row in rows)]
    return "\n".join([head, *lines, ""])


def whose(result: Result) -> str:
    """Says why an experiment fails, and whether it does so in Model Garden's own runner.

    Args:
        result: What became of it.

    Returns:
        One line; "" where it does not fail.
    """
    reason = first_reason(result["outcomes"])
    if not reason:
        return ""
    if not _fails_there(result):
        return f"here only: {reason}"
    return f"in Model Garden itself: {first_reason(result['model_garden'])}"


def _fails_there(result: Result) -> bool:
    there = result["model_garden"]
    return bool(there) and count_done(there) <= count_done(result["outcomes"])


def _counts(found: list[Result], registered: int) -> str:
    done = [count_done(result["outcomes"]) for result in found]
    parts = [
        f"{sum(number > stage for number in done)} {name}"
        for stage, name in enumerate(("resolve", "build", "train", "evaluate"))
    ]
    failing = [result for result in found if not is_whole(result)]
    theirs = sum(_fails_there(result) for result in failing)
    text = f"**{registered} experiments: {', '.join(parts)}.** "
    text += f"{theirs} fail in Model Garden itself, {len(failing) - theirs} here only."
    missing = registered - len(found)
    return f"{text} {missing} not run." if missing else text


def _row(name: str, result: Result | None) -> list[str]:
    if result is None:
        return [f"`{name}`", *("" for _ in STAGES), "not run"]
    words = {OK: "yes", "": ""}
    told = [words.get(result["outcomes"][stage], "no") for stage in STAGES]
    return [f"`{name}`", *told, whose(result).replace("|", "\\|")]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
