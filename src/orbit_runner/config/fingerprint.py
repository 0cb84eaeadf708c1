"""Determines which settings can affect the weights, and computes a fingerprint of them.

The weights at a step depend on the settings and on the step. Settings that only determine when to
evaluate, what to keep or how fast the input pipeline runs do not identify a run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from orbit_runner.config.example_ids import EXCLUDE, UNREADABLE, ids_digest
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import flat_settings, plain_value

DATA_DIRECTORIES = (
    "task.train_data.data_dir",
    "task.train_data.tfds_data_dir",
    "task.validation_data.data_dir",
    "task.validation_data.tfds_data_dir",
)
# The devices, and how they work together.
DEVICES = tuple(
    f"runtime.{name}"
    for name in (
        *("distribution_strategy", "num_gpus", "num_virtual_devices", "num_workers"),
        *("all_reduce_alg", "num_packs"),
    )
)
_WITHOUT_EFFECT = frozenset(
    {
        "name",
        "description",
        "trackers",
        # Length of training: the weights at a step do not depend on how many steps follow.
        "trainer.train_steps",
        "trainer.train_epochs",
        # What is saved, and where.
        "trainer.max_to_keep",
        "trainer.keep_checkpoint_interval",
        "trainer.keep_checkpoint_time_interval",
        "trainer.best_checkpoints_to_keep",
        # When to save additional checkpoints, and when to stop until the next start. A run that
        # may roll back saves no additional checkpoints.
        "trainer.checkpoint_time_interval",
        "trainer.max_time",
        "trainer.best_checkpoint_export_subdir",
        "trainer.best_checkpoint_eval_metric",
        "trainer.best_checkpoint_metric_comp",
        "trainer.export_subdir",
        "trainer.export_checkpoint",
        "trainer.export_weights",
        "trainer.export_formats",
        "trainer.validation_summary_subdir",
        # What is measured. Measured steps change the weights as other steps do.
        "trainer.watch_interval",
        "trainer.profile_steps",
        "trainer.system_metrics",
        "trainer.report_interval",
        "trainer.preemption_on_demand_checkpoint",
        "trainer.keep_code_patch",
        "trainer.continuous_eval_timeout",
        # The loop around a step. Whether the step itself is a graph (`eval_tf_function`) does
        # change the last bits of its results.
        "trainer.eval_tf_while_loop",
        # Speed of the input pipeline, with the same order of batches. `deterministic` is not
        # listed because it may change the order, and the cache of training data is not listed
        # because a task may draw random numbers before it.
        "task.train_data.prefetch_buffer_size",
        "task.train_data.ram_budget",
        "task.train_data.autotune_algorithm",
        "task.validation_data.prefetch_buffer_size",
        "task.validation_data.ram_budget",
        "task.validation_data.autotune_algorithm",
        "task.validation_data.cache",
        # Whether unreadable records are an error. Otherwise, any number of them is left out. The
        # same setting for images is not listed: `data.json` records which images are left out.
        "task.train_data.max_bad_records",
        "task.validation_data.max_bad_records",
        # Where batches are produced.
        "task.validation_data.on_device",
        "task.train_data.tf_data_service_address",
        "task.validation_data.enable_tf_data_service",
        "task.validation_data.tf_data_service_address",
        "runtime.dataset_num_private_threads",
        # The addresses of the cluster's members. Their number is not listed.
        "runtime.cluster_source",
        "runtime.cluster.chief",
        "runtime.cluster.worker",
        "runtime.cluster.ps",
        "runtime.cluster.evaluator",
        "runtime.worker_hosts",
        "runtime.task_type",
        "runtime.task_index",
        "runtime.num_evaluators",
        "runtime.remote_cluster",
        "runtime.cluster_start_timeout",
        "runtime.heartbeat_timeout",
        "runtime.grace_period",
        "runtime.preemption.signals",
        "runtime.preemption.file",
        "runtime.preemption.command",
        "runtime.preemption.poll_interval",
        "runtime.tpu",
        "runtime.tpu_zone",
        "runtime.tpu_project",
        # The cache of compiled programs, not the programs.
        "runtime.xla_cache_dir",
        # Threads that launch GPU kernels. The GPU runs them in the order of its stream.
        "runtime.gpu_thread_mode",
        "runtime.per_gpu_thread_count",
    }
)

_LABEL_SETTINGS = ("labels_file", "labels_split", "classes_file", "path_column", "label_column")
# Settings that later versions added. They do not change the fingerprint if empty.
_OMITTED_IF_EMPTY = frozenset(
    {
        "callbacks",
        EXCLUDE,
        "task.class_weights",
        "task.features.text",
        "task.features.exclude",
        "runtime.logical_replicas",
        "task.init_ignore",
        "task.metrics",
        "trainer.fine_tuning",
        "trainer.skip_steps",
        *(
            f"task.{section}.{name}"
            for section in ("train_data", "validation_data")
            for name in ("exclude", "files", "mixture", "class_sampling", *_LABEL_SETTINGS)
        ),
        "task.train_data.batch_shapes",
        "task.validation_data.batch_shapes",
    }
)
# Settings that later versions added, with the values that stand for the earlier behavior.
_OMITTED_IF_EQUAL = MappingProxyType({"runtime.numerics": "native"})


def _rolls_back(config: ExperimentConfig) -> bool:
    return config.trainer.recovery_max_trials > 0


def _skips_nonfinite_steps(config: ExperimentConfig) -> bool:
    return config.trainer.on_nonfinite == "skip"


def _uses_xla(config: ExperimentConfig) -> bool:
    return bool(config.runtime.enable_xla)


def _has_no_logical_replicas(config: ExperimentConfig) -> bool:
    return not config.runtime.logical_replicas


def _compares_no_data(config: ExperimentConfig) -> bool:
    """Returns whether a run cannot detect that another directory holds the same data."""
    return not config.task.compares_data


def _has_callbacks(config: ExperimentConfig) -> bool:
    return bool(config.callbacks)


def _stops_early(config: ExperimentConfig) -> bool:
    return config.trainer.early_stopping is not None or _has_callbacks(config)


_CONDITIONS: MappingProxyType[str, Callable[[ExperimentConfig], bool]] = MappingProxyType(
    {
        # If a run restores a checkpoint after divergence, these determine when divergence is
        # detected and which checkpoint is restored. Otherwise, they only determine when the run
        # ends or reports.
        "trainer.steps_per_loop": _rolls_back,
        "trainer.summary_interval": lambda config: _rolls_back(config) or _has_callbacks(config),
        "trainer.checkpoint_interval": _rolls_back,
        "trainer.loss_upper_bound": _rolls_back,
        "trainer.recovery_begin_steps": _rolls_back,
        # Otherwise, a step that is not finite ends the run, or `recovery_max_trials` decides.
        "trainer.on_nonfinite": _skips_nonfinite_steps,
        "trainer.max_skipped_steps": _skips_nonfinite_steps,
        # Loops of steps end when an evaluation is due.
        "trainer.validation_interval": lambda config: _stops_early(config) or _rolls_back(config),
        "trainer.validation_epochs": lambda config: _stops_early(config) or _rolls_back(config),
        "trainer.validation_steps": _stops_early,
        # Eager evaluation changes the last bits of metrics.
        "trainer.eval_tf_function": _stops_early,
        # With XLA, metrics are compiled together with the step.
        "task.metrics": lambda config: _stops_early(config) or _uses_xla(config),
        # With XLA, steps that create their batches are compiled as a whole. The batches are the
        # same in any case.
        "task.train_data.on_device": _uses_xla,
        "trainer.train_tf_while_loop": _uses_xla,
        "task.train_data.enable_tf_data_service": _uses_xla,
        "runtime.tf_data_service": _uses_xla,
        # With logical replicas, the weights are the same on any number of devices.
        **dict.fromkeys(DEVICES, _has_no_logical_replicas),
        # The location of the data. Its content is recorded in `data.json` and compared on resume.
        **dict.fromkeys(DATA_DIRECTORIES, _compares_no_data),
        # Deterministic ops give the same results in any order. Other ops may race.
        "runtime.inter_op_threads": lambda config: not config.runtime.deterministic,
    }
)


def cannot_affect_weights(path: str) -> bool:
    """Returns whether a setting cannot change the weights, whatever the other settings are."""
    return path in _WITHOUT_EFFECT


def can_affect_weights(path: str, config: ExperimentConfig) -> bool:
    """Returns whether a setting can change the weights at a step, or the step of early stopping.

    `config` matters because some settings have an effect only in combination with others. Unknown
    settings, such as those of a custom task, can change the weights.
    """
    if path in _WITHOUT_EFFECT:
        return False
    condition = _CONDITIONS.get(path)
    return condition is None or condition(config)


def identity_settings(config: ExperimentConfig) -> dict[str, Any]:
    """Returns the values of the settings that can affect the weights, by dotted path.

    For examples to exclude, the value is a digest of the IDs, whether a file lists them or not.
    """
    return {
        path: ids_digest(value) if path == EXCLUDE and value else value
        for path, value in flat_settings(config).items()
        if can_affect_weights(path, config) and not _is_omitted(path, value)
    }


def _is_omitted(path: str, value: Any) -> bool:
    if path in _OMITTED_IF_EQUAL:
        return bool(value == _OMITTED_IF_EQUAL[path])
    return path in _OMITTED_IF_EMPTY and not value


def settings_fingerprint(settings: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of settings from `identity_settings`, as 64 hexadecimal digits."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def config_fingerprint(config: ExperimentConfig) -> str:
    """Returns the SHA-256 of the settings that can affect the weights, as 64 hexadecimal digits.

    It does not change if a run is resumed with more steps, more frequent checkpoints or more
    prefetching. It is the same in any process, and for the `config.yaml` of the run. A version of
    this package that adds a setting changes it; `has_same_settings` also accepts earlier versions.
    """
    return settings_fingerprint(identity_settings(config))


def is_fingerprint_of(fingerprint: str, config: ExperimentConfig) -> bool:
    """Returns whether a fingerprint matches a resolved config.

    It may be from an earlier version, which included the data directories.
    """
    settings = identity_settings(config)
    if fingerprint == settings_fingerprint(settings):
        return True
    all_settings = flat_settings(config)
    earlier = {path: all_settings[path] for path in DATA_DIRECTORIES if path in all_settings}
    return fingerprint == settings_fingerprint(settings | earlier)


def has_same_settings(before: Mapping[str, Any], config: ExperimentConfig) -> bool:
    """Returns whether the settings that can affect the weights are the same as before.

    `before` is a result of `identity_settings`, possibly of an earlier version. A setting that it
    does not contain must have its default now.
    """
    now, all_settings = identity_settings(config), flat_settings(config)
    for path in {*before, *now}:
        if path in before and path in now:
            # A file that is gone is needed to train, but not to read what was trained.
            same = before[path] == now[path] or now[path] == UNREADABLE
        elif path in now:
            same = now[path] == default_of(config, path)
        else:  # This version may know that it cannot affect the weights.
            same = path in all_settings and not can_affect_weights(path, config)
        if not same:
            return False
    return True


def default_of(config: ExperimentConfig, path: str) -> Any:
    """Returns the default of a setting in the form of `flat_settings`, or `...` if it has none."""
    section: Any = config
    *parents, name = path.split(".")
    for parent in parents:
        section = getattr(section, parent)
    field = next(one for one in dataclasses.fields(section) if one.name == name)
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    return ... if default is dataclasses.MISSING else plain_value(default)


def excludes_same_examples(before: ExperimentConfig, now: ExperimentConfig) -> bool:
    """Returns whether two configs exclude the same IDs from training, in a file or in a list."""
    left, right = (flat_settings(config).get(EXCLUDE) or () for config in (before, now))
    return left == right or (ids_digest(left) == ids_digest(right) != UNREADABLE)
