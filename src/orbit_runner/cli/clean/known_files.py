"""Distinguishes the files that the runner writes into a run directory from all others."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

from orbit_runner.run_directory.config_values import read_setting
from orbit_runner.run_directory.paths import CHECKPOINTS
from orbit_runner.run_directory.run_summary import tracker_directories
from orbit_runner.serving.formats import saved_model
from orbit_runner.serving.formats.base import network_formats

_FILES = (
    r"branch\.json|config\.yaml|operative_config\.gin|run(\.\w+)?\.json|trackers(\.\w+)?\.json|"
    r"data\.json|code(-\d+)?\.patch|report\.html|report_data/(model|inputs|evaluation)\.json|"
    r"evaluations/\d+-\d+-\d+(-\d+)?\.json|metrics\.jsonl|checkpoint|\.lock|bleu\.json|assets/[^/]+|"
    # Earlier versions wrote these in place of assets.
    r"preprocessing\.json|vocabulary\.model"
)
_CHECKPOINT = r"-\d+\.(index|json|data-\d+-of-\d+)"
_EVENTS = r"/(.+/)?events\.out\.tfevents\.[^/]+"


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """The files in a run directory, with paths relative to it."""

    known: tuple[str, ...]  # Includes empty directories, which end in a slash.
    unknown: tuple[str, ...]


def best_directory(run: Path) -> str:
    """Returns the subdirectory of the best checkpoints; `best` if the config does not name it."""
    return str(read_setting(run, "trainer.best_checkpoint_export_subdir") or "best")


def list_run_files(run: Path) -> RunFiles:
    """Returns the files in a run directory and in the directories below it.

    A link to a directory is a file here: it is not followed, and deleting it deletes only the link.
    """
    pattern, known, unknown = _pattern(run), list[str](), list[str]()
    for above, directories, files in os.walk(run, followlinks=False):
        links = [name for name in directories if Path(above, name).is_symlink()]
        for name in (*links, *files):
            path = Path(above, name).relative_to(run).as_posix()
            (known if pattern.fullmatch(path) else unknown).append(path)
        directory = Path(above).relative_to(run).as_posix()
        if not directories and not files and pattern.fullmatch(f"{directory}/any"):
            known.append(f"{directory}/")
    return RunFiles(tuple(sorted(known)), tuple(sorted(unknown)))


def _pattern(run: Path) -> re.Pattern[str]:
    best = re.escape(best_directory(run))
    summaries = str(read_setting(run, "trainer.validation_summary_subdir") or "validation")
    alternatives = [
        # A file that could not be read was renamed, and a killed process leaves temporary files.
        rf"({_FILES})(\.damaged(-\d+)?)?|\.({_FILES})\.\d+",
        rf"ckpt{_CHECKPOINT}",
        rf"{CHECKPOINTS}/(ckpt{_CHECKPOINT}|checkpoint|fingerprints\.jsonl)",
        rf"{CHECKPOINTS}/(configs|damaged|\.writing-\d+)/.+",
        rf"{best}/(best{_CHECKPOINT}|checkpoint|info\.json(\.damaged(-\d+)?)?|\.writing-\d+/.+)",
        rf"ema_checkpoints/(average_weights{_CHECKPOINT}|checkpoint|\.writing-\d+/.+)",
        rf"(train|{re.escape(summaries)}){_EVENTS}",
        r"train/plugins/profile/[^/]+/([^/]+\.xplane\.pb|steps\.json)",
        r"\.assets-\d+/[^/]+",
        r"logs/(.+/)?[^/]+\.log|\.cluster/.+",
        rf"({'|'.join(map(re.escape, tracker_directories()))})/.+",
    ]
    exported = read_setting(run, "trainer.export_subdir")
    pattern = f"*/{saved_model.FORMAT.file}"
    for model in (run / str(exported)).glob(pattern) if exported else ():
        alternatives.append(rf"{re.escape(model.parent.relative_to(run).as_posix())}/.+")
    if exported:
        known = network_formats()
        models = "|".join({re.escape(kind.file) for kind in known.values()})
        files = rf"{models}|export\.json|config\.yaml|labels(_[^/]+)?\.txt|assets/[^/]+"
        alternatives.append(rf"{re.escape(str(exported))}/\d+-({'|'.join(known)})/({files})")
    return re.compile("|".join(alternatives))
