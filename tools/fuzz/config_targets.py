"""Targets that parse and resolve configs: YAML, gin, overrides, and what `show` prints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from orbit_runner.config.parsing.gin_files import gin_text
from orbit_runner.config.parsing.search_path import experiment_files, fragment_files
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import flat_settings, inline_yaml, to_yaml
from tools.fuzz.guard import CANARY
from tools.fuzz.target import Seeds, Target

# Small, because PyYAML is slow.
_SMALL = """\
task:
  name: image_classification
  model: {name: cnn, filters: [4], dense_units: 8}
  train_data: {source: synthetic, global_batch_size: 4}
  validation_data: {source: synthetic, global_batch_size: 4}
trainer:
  train_steps: 4
  optimizer_config:
    optimizer: {type: sgd}
    learning_rate: {type: constant, constant: {learning_rate: 0.1}}
"""
_GIN = """\
STEPS = 20
A = [1, (2, 'x'), {'y': %STEPS}]
trainer.train_steps = %STEPS
trainer.optimizer_config.optimizer.type = 'adam'
task.model.filters = [4, 8]
runtime.seed = 0x10
scope/some_function.parameter = @other_function()
experiment.description = '''two
lines'''
"""
_YAML = (
    _SMALL,
    "trainer: &t {train_steps: &n 20, checkpoint_interval: *n}\n",
    "task:\n  model:\n    filters: [1, 2, 3]\n    dropout_rate: 1e-1\nruntime: {seed: 0x11}\n",
    "base: digits\ntrainer:\n  train_steps: 5\n  validation_interval: 2\n",
    "task:\n  name: tabular\n  targets: [y]\n  features: {numeric: [a], categorical: [b]}\n"
    "  split: {fractions: {train: 0.5, validation: 0.5}}\n  model: {name: mlp}\n"
    "  train_data: {source: csv, data_dir: x}\n  validation_data: {source: csv, data_dir: x}\n",
    "callbacks:\n- class_name: a.b:C\n  arguments: {x: [1, {y: 2}]}\n",
    '{"trainer": {"train_steps": 7, "optimizer_config": {"optimizer": {"type": "sgd"}}}}\n',
    "trainer:\n  early_stopping: {metric: loss, patience: 3}\n  max_time: 1h\n",
)
_OVERRIDES = (
    "trainer.train_steps=20,runtime.seed=3",
    "task.model.filters=[1, 2],task.model.dropout_rate=.5",
    "task.train_data.input_path[0]=a,task.train_data.input_path[1]=b",
    "{trainer: {train_steps: 7}, task: {model: {dense_units: 9}}}",
    "trainer:\n  train_steps: 3\n",
)


def config_targets() -> list[Target]:
    """Returns the targets that parse and resolve configs."""
    return [
        _target("yaml", "over.yaml", _encode_texts(_YAML), _read_yaml),
        _target("experiment", "experiment.yaml", _shipped_configs, _read_experiment),
        _target("gin", "over.gin", _encode_texts((_GIN, f"import {CANARY}\n{_GIN}")), _read_gin),
        _target("override", "override.txt", _encode_texts(_OVERRIDES), _read_override),
        _target("dump", "dumped.yaml", _shipped_configs, _check_dump),
        _target("dump_gin", "over.yaml", _encode_texts(_YAML), _check_gin),
    ]


def _target(name: str, file: str, seeds: Seeds, read: Callable[[Path], object]) -> Target:
    # A problem such as a missing setting belongs to no file.
    return Target(name, file, seeds, read, names_file=False, words=setting_words)


def _encode_texts(texts: Sequence[str]) -> Seeds:
    def seeds(folder: Path) -> list[bytes]:
        (folder / "small.yaml").write_text(_SMALL)
        (folder / f"{CANARY}.py").write_text("")
        sys.path.append(str(folder))
        return [text.encode() for text in texts]

    return seeds


def _shipped_configs(folder: Path) -> list[bytes]:
    (folder / "small.yaml").write_text(_SMALL)
    files = [*experiment_files().values(), *fragment_files().values()]
    return [path.read_bytes() for path in files if path.suffix != ".gin"]


def setting_words() -> list[bytes]:
    """Returns the paths of settings, their last names, and lines that set them."""
    words = []
    for path, value in flat_settings(resolve(Request(experiment="digits")).config).items():
        words += [path, path.rpartition(".")[2], f"{path}={inline_yaml(value)}"]
        words.append(f"{path} = {value!r}\n")
    return [word.encode() for word in dict.fromkeys(words)]


def _small_config(path: Path) -> str:
    return str(path.with_name("small.yaml"))


def _read_yaml(path: Path) -> object:
    return resolve(Request(experiment=_small_config(path), config_files=(str(path),)))


def _read_experiment(path: Path) -> object:
    return resolve(Request(experiment=str(path)))


def _read_gin(path: Path) -> object:
    return resolve(Request(experiment=_small_config(path), gin_files=(str(path),)))


def _read_override(path: Path) -> object:
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return resolve(Request(experiment=_small_config(path), params_overrides=(text,)))


def _check_dump(path: Path) -> None:
    """Compares a config with the one that its text in YAML loads to."""
    config = resolve(Request(experiment=str(path))).config
    again = path.with_name("again.yaml")
    again.write_text(to_yaml(config), encoding="utf-8")
    name = f"name={inline_yaml(config.name)}"
    found = resolve(Request(experiment=str(again), params_overrides=(name,))).config
    if repr(found) != repr(config):  # Not `==`, by which NaN is not NaN.
        raise AssertionError("the config loads to another one after it was written")


def _check_gin(path: Path) -> None:
    """Compares the settings that a file changes with the same settings as gin bindings."""
    resolved = resolve(Request(experiment=_small_config(path), config_files=(str(path),)))
    lines = [
        f"{_gin_name(name)} = {gin_text(value)}"
        for name, value in resolved.changes().items()
        if name not in ("imports", "gin_bindings")
    ]
    other = path.with_name("other.gin")
    other.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = resolve(Request(experiment=_small_config(path), gin_files=(str(other),))).config
    if repr(found) != repr(resolved.config):
        raise AssertionError("the same settings in gin give another config")


def _gin_name(path: str) -> str:
    """Returns the name of a setting in gin."""
    root = path.partition(".")[0]
    return path if root in ("task", "trainer", "runtime") else f"experiment.{path}"
