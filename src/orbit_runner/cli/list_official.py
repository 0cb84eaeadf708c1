"""`runner list --official`: the experiments that Model Garden registers."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_runner.official import catalogue, loading


def official_experiments() -> dict[str, dict[str, str]]:
    """Imports every module that registers experiments.

    Returns:
        A kind to name and module; those that cannot be imported are a kind of their own, with
        the reason in place of the module. Those that modules given by `--import` register are
        told apart from the package's own.
    """
    entries = catalogue.experiments()
    reasons = dict(_reasons(sorted({entry.module for entry in entries.values()})))
    whole = {name: entry.module for name, entry in entries.items() if not reasons[entry.module]}
    broken = {
        name: f"{entry.module}: {reasons[entry.module]}"
        for name, entry in entries.items()
        if reasons[entry.module]
    }
    own = {name: factory.__module__ for name, factory in loading.registered()}
    kinds = {
        "experiments of Model Garden": whole,
        "registered elsewhere": {n: module for n, module in own.items() if n not in entries},
        "not importable in this installation": broken,
    }
    return {kind: _named(found) for kind, found in kinds.items() if found}


def _reasons(modules: list[str]) -> Iterator[tuple[str, str]]:
    from orbit_runner.reporting.progress import make_progress

    progress = make_progress("auto", brief=True)
    with progress.shown():
        progress.phase(f"importing {len(modules)} modules of Model Garden")
        for module in modules:
            yield module, loading.import_failure(module)


def _named(found: dict[str, str]) -> dict[str, str]:
    return {f"{loading.PREFIX}{name}": text for name, text in sorted(found.items())}
