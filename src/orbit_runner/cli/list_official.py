"""`runner list --official`: lists the experiments that Model Garden registers."""

from __future__ import annotations

import sys

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.tf_environment import prepare_environment, redirect_native_output
from orbit_runner.model_garden import catalogue, loading


def official_experiments() -> dict[str, dict[str, str]]:
    """Returns the experiments, grouped by kind, as name to module.

    Imports every module that registers an experiment if the result is not cached. Experiments that
    cannot be imported are a separate kind, with the reason after the module. So are those that
    modules given by `--import` register.
    """
    known = catalogue.read_cache()
    entries = catalogue.check_imports(_find_import_failures) if known is None else known
    own = _registered_names()
    kinds = {
        "experiments of Model Garden": {
            name: module for name, (module, reason) in entries.items() if not reason
        },
        "registered elsewhere": {n: module for n, module in own.items() if n not in entries},
        "not importable in this installation": {
            name: f"{module}: {reason}" for name, (module, reason) in entries.items() if reason
        },
    }
    return {kind: _add_prefix(found) for kind, found in kinds.items() if found}


def _registered_names() -> dict[str, str]:
    if "official.core.exp_factory" not in sys.modules:
        return {}  # Nothing is registered, and a lookup would import TensorFlow.
    return {name: factory.__module__ for name, factory in loading.registered_factories()}


def _find_import_failures(modules: list[str]) -> dict[str, str]:
    from orbit_runner.reporting.progress.factory import make_progress

    prepare_environment(RuntimeConfig())
    redirect_native_output(None)
    progress = make_progress("auto", brief=True)
    with progress.shown_scope():
        progress.phase(f"importing {len(modules)} modules of Model Garden (first time only)")
        return {module: loading.try_import(module) for module in modules}


def _add_prefix(found: dict[str, str]) -> dict[str, str]:
    return {f"{catalogue.PREFIX}{name}": text for name, text in sorted(found.items())}
