from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_runner.data.tables.dataset import TableReader
from orbit_runner.errors import nearest_name_hint
from orbit_runner.registration import Registry
from orbit_runner.registry import ARRAY_SOURCES, IMAGE_MODELS, RATING_SOURCES, SOURCES, TASKS
from tests.support import processes
from tests.support.problems import raises


def test_registry_entry_is_imported_only_when_used(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lazy_entry.py").write_text("class Settings: pass\nclass Thing: pass\n")
    registry = Registry("thing")

    registry.register("a", config="lazy_entry:Settings", target="lazy_entry:Thing", help="one line")

    assert [entry.help for entry in registry.entries()] == ["one line"]
    assert "lazy_entry" not in sys.modules
    assert registry.get("a").load_config().__name__ == "Settings"
    assert registry.get("a").load().__name__ == "Thing"
    del sys.modules["lazy_entry"]


def test_identical_registration_may_be_repeated():
    registry = Registry("thing")
    registry.register("a", config="m:C", target="m:T")
    registry.register("a", config="m:C", target="m:T", help="said now")

    assert [(entry.name, entry.help) for entry in registry.entries()] == [("a", "said now")]


@pytest.mark.parametrize(("config", "target"), [("m:C", "m:U"), ("m:D", "m:T")])
def test_registering_a_taken_name_is_rejected(config, target):
    registry = Registry("thing")
    registry.register("a", config="m:C", target="m:T")

    with raises("set-twice"):
        registry.register("a", config=config, target=target)

    assert registry.get("a").target == "m:T"


def test_unknown_name_error_suggests_the_nearest_and_lists_all():
    registry = Registry("thing")
    for name in ("right", "left"):
        registry.register(name, config=int, target=int)

    with pytest.raises(KeyError) as caught:
        registry.get("rihgt")

    assert caught.value.args == (
        "unknown thing 'rihgt'; did you mean 'right'?\nallowed: left, right",
    )


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("num_epochs", "train_epochs"),
        ("checkpoint_freq", "checkpoint_interval"),
        ("dropout_prob", "dropout_rate"),
    ],
)
def test_hint_for_a_name_with_another_word_is_the_most_similar_name(name, known):
    hint = nearest_name_hint(name, ["train_epochs", "checkpoint_interval", "dropout_rate"])

    assert repr(known) in hint


@pytest.mark.parametrize("reference", ["no_such_module:X", "json:NoSuchName", "json"])
def test_import_failure_error_names_the_registry_entry(reference):
    registry = Registry("thing")
    registry.register("a", config=reference, target=reference)

    for load in (registry.get("a").load_config, registry.get("a").load):
        with raises("import-failed"):
            load()


@pytest.mark.parametrize("registry", [TASKS, IMAGE_MODELS, SOURCES], ids=lambda r: r.kind)
def test_every_entry_of_the_package_can_be_imported(registry):
    # Other tests of the same process register tasks of their own.
    own = [entry for entry in registry.entries() if str(entry.target).startswith("orbit_runner.")]
    assert own
    for entry in own:
        assert entry.help
        assert isinstance(entry.load_config(), type)
        loaded = entry.load()
        assert callable(loaded)


@pytest.mark.parametrize("registry", [SOURCES, RATING_SOURCES, ARRAY_SOURCES])
def test_loaders_read_the_settings_that_their_sources_declare(registry):
    for entry in registry.registered():
        traits = entry.traits
        if traits.is_generated:
            continue
        loaded = entry.load()
        is_table = isinstance(loaded, TableReader)  # Tables get their settings as options.
        read = {*inspect.signature(loaded.load if is_table else loaded).parameters}
        declared = {*traits.settings} - {"max_bad_images"}
        unread = {name for name, _ in traits.instead}
        others = {"data_dir", "input_path", "split"}
        assert is_table or declared <= read, entry.name
        assert read & {*entry.load_config().__dataclass_fields__} <= declared | others, entry.name
        assert read & others - {"split"} == others - {"split"} - unread, entry.name
        assert is_table or ("split" in read) == bool(traits.splits), entry.name


def plugin(folder: Path, entry_point: str, module: str) -> None:
    """Installs a package by hand: a module, and a dist-info that names an entry point."""
    (folder / "plug.py").write_text(module)
    info = folder / "plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[orbit_runner.tasks]\nmine = {entry_point}\n")


MODULE = """
import dataclasses
from orbit_runner.config.schema.base import field
from orbit_runner.config.schema.experiment import TaskConfig
from orbit_runner.registry import TASKS

@dataclasses.dataclass(frozen=True, kw_only=True)
class MineConfig(TaskConfig):
    width: int = field(3, help="how wide")

def register():
    TASKS.register("mine", config=MineConfig, target="plug:Missing", help="a task of my own")
"""
CONFIG = """
task: {name: mine, width: 5}
trainer:
  train_steps: 1
  optimizer_config: {optimizer: {type: sgd}, learning_rate: {type: constant}}
"""


def runner(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return processes.runner(
        *arguments,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("entry_point", "module"),
    [("plug:register", MODULE), ("plug", MODULE + "register()\n")],
    ids=["function", "module"],
)
def test_installed_package_registers_tasks_by_entry_point(tmp_path, entry_point, module):
    plugin(tmp_path, entry_point, module)
    (tmp_path / "mine.yaml").write_text(CONFIG)

    completed = runner(tmp_path, "show", "--experiment=mine.yaml")
    listed = runner(tmp_path, "list")

    assert (completed.returncode, completed.stderr) == (0, "")
    assert "  width: 5\n" in completed.stdout
    assert "  mine " in listed.stdout
    assert "a task of my own" in listed.stdout


def test_known_name_loads_no_entry_point(tmp_path):
    plugin(tmp_path, "plug:register", "raise SystemExit('loaded')\n")

    assert runner(tmp_path, "show", "--experiment=digits").returncode == 0
    assert "loaded" in runner(tmp_path, "list").stderr


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("entry_point", "module", "message"),
    [
        ("plug:missing", MODULE, "cannot load entry point 'mine' of orbit_runner.tasks: "),
        ("plug:register", "import no_such_module\n", "No module named 'no_such_module'"),
    ],
)
def test_failing_entry_point_is_reported(tmp_path, entry_point, module, message):
    plugin(tmp_path, entry_point, module)

    completed = runner(tmp_path, "list")

    assert (completed.returncode, completed.stdout) == (2, "")
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


def test_import_flag_registers_a_task(tmp_path):
    (tmp_path / "own.py").write_text(MODULE + "register()\n")
    (tmp_path / "mine.yaml").write_text(CONFIG)

    without = runner(tmp_path, "show", "--experiment=mine.yaml")
    completed = runner(tmp_path, "show", "--experiment=mine.yaml", "--import=own")

    assert (without.returncode, without.stdout) == (2, "")
    assert "unknown task 'mine'" in without.stderr
    assert "imports: [own]\n" in completed.stdout
    (tmp_path / "again.yaml").write_text(completed.stdout)
    assert runner(tmp_path, "show", "--experiment=again.yaml").stdout == completed.stdout
