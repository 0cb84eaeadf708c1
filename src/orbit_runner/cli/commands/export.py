"""`runner export`: exports a run as a SavedModel that needs only TensorFlow."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.cli.flags.config_flags import (
    add_progress_flags,
    messages_scope,
    parse,
    parser,
    progress_of,
)
from orbit_runner.cli.gin_bindings import bind_gin
from orbit_runner.cli.model_selection import Chosen, add_choice_flags, read_chosen
from orbit_runner.cli.preflight import setting_error_scope
from orbit_runner.cli.remote_runs import local_run_scope
from orbit_runner.errors import RunnerError
from orbit_runner.storage.paths import is_remote, without_file_scheme

_DESCRIPTION = """\
Export a model of a run as a SavedModel with named signatures to DIR/STEP, the layout that
TensorFlow Serving expects. The model is rebuilt in this process and restored from the checkpoint,
whatever strategy it was trained with. The run is not changed, and may still be in progress."""


def main(arguments: Sequence[str]) -> int:
    """Exports a model; raises an error if the export already exists. Returns 0."""
    to = parser("export", _DESCRIPTION)
    to.add_argument("run", metavar="RUN", help="run directory")
    to.add_argument("--to", metavar="DIR", help="directory of the export (default: RUN/export)")
    add_choice_flags(to)
    add_progress_flags(to)
    to.add_argument("--json", action="store_true", help="print a description of the export as JSON")
    flags = parse(to, arguments)
    with messages_scope(flags), local_run_scope(flags.run, "RUN", flags.checkpoint) as run:
        chosen = read_chosen(run, flags)
        place = flags.to or f"{flags.run.rstrip('/')}/export"
        record = _export_to(place, chosen, flags)
    print(json.dumps(record, indent=2) if flags.json else "\n".join(_lines(record)))
    return 0


def _export_to(to: str, chosen: Chosen, flags: argparse.Namespace) -> dict[str, Any]:
    if not is_remote(to):
        folder = Path(without_file_scheme(to))
        _check_free(folder, chosen)
        return _export(chosen, folder, flags)
    from orbit_runner.storage.objects import blame_scope, open_store
    from orbit_runner.storage.upload import upload_scope

    place = f"{to}/{chosen.choice.place.step}"
    with blame_scope("--to"):
        if open_store(place, "--to").list():
            raise RunnerError(_taken_message(place, f"{to}-{chosen.weights}"))
    with upload_scope(to, "--to", last="saved_model.pb") as folder:
        record = _export(chosen, folder, flags)
    return {**record, "path": place}


def _check_free(folder: Path, chosen: Chosen) -> None:
    place = folder / str(chosen.choice.place.step)
    if place.exists():
        other = folder.with_name(f"{folder.name}-{chosen.weights}")
        raise RunnerError(_taken_message(str(place), str(other)))
    if folder.exists() and not folder.is_dir():
        raise RunnerError(f"--to: {folder} is a file, expected a directory")


def _taken_message(place: str, other: str) -> str:
    return (
        f"--to: {place} already exists\n"
        f"use another directory, such as --to={other}, or delete the existing export"
    )


def _export(chosen: Chosen, folder: Path, flags: argparse.Namespace) -> dict[str, Any]:
    from orbit_runner.distribute.tf_environment import prepare_environment
    from orbit_runner.utils.garbage_collection import paused_collection_scope

    progress = progress_of(flags, "export", flags.run)
    config = chosen.resolved.config
    with progress.shown_scope():
        progress.phase("importing tensorflow")
        prepare_environment(config.runtime)
        with paused_collection_scope():
            from orbit_runner.serving.export import export
            from orbit_runner.serving.loader import load_scope, make_task

        bind_gin(chosen.resolved)
        with setting_error_scope(chosen.resolved):
            task = make_task(config, chosen.run)
            with load_scope(config, task, chosen.choice, chosen.weights) as model:
                progress.phase(f"exporting to {folder}")
                return export(model, config, chosen.run, folder)


def _lines(record: Mapping[str, Any]) -> Iterator[str]:
    yield f"{record['path']}: step {record['step']}, {record['weights']} weights"
    yield f"weights sha256 {record['fingerprint']}"
    for name, spec in record["signatures"].items():
        mark = "  (serving_default)" if name == record["default"] else ""
        yield f"{name}{mark}"
        for side in ("inputs", "outputs"):
            for key, text in spec[side].items():
                yield f"  {side[:-1]:<6}  {key}  {text}"
