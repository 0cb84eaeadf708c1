"""Which settings can touch the weights, and the fingerprint of those that can.

The weights at a step depend on the settings and on the step, so what only says when to look, what
to keep or how fast data is made ready is no part of what a run is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import flat, plain

DATA_DIRECTORIES = (
    "task.train_data.data_dir",
    "task.train_data.tfds_data_dir",
    "task.validation_data.data_dir",
    "task.validation_data.tfds_data_dir",
)
_NEVER = frozenset(
    {
        "name",
        "description",
        # How far: the weights at a step are the same on the way to any later one.
        "trainer.train_steps",
        "trainer.train_epochs",
        # What is kept, and where.
        "trainer.max_to_keep",
        "trainer.best_checkpoint_export_subdir",
        "trainer.best_checkpoint_eval_metric",
        "trainer.best_checkpoint_metric_comp",
        "trainer.export_subdir",
        "trainer.export_checkpoint",
        "trainer.export_weights",
        "trainer.validation_summary_subdir",
        "trainer.preemption_on_demand_checkpoint",
        "trainer.continuous_eval_timeout",
        # The loop around a step. Whether the step itself is a graph (`eval_tf_function`) does
        # change its bits.
        "trainer.eval_tf_while_loop",
        # How fast batches come, in the same order. `deterministic` is not here: it may change the
        # order. Nor is the cache of training data: a task may draw random numbers before it.
        "task.train_data.prefetch_buffer_size",
        "task.train_data.ram_budget",
        "task.train_data.autotune_algorithm",
        "task.validation_data.prefetch_buffer_size",
        "task.validation_data.ram_budget",
        "task.validation_data.autotune_algorithm",
        "task.validation_data.cache",
        # Who makes them.
        "task.validation_data.on_device",
        "task.train_data.tf_data_service_address",
        "task.validation_data.enable_tf_data_service",
        "task.validation_data.tf_data_service_address",
        "runtime.dataset_num_private_threads",
        # Where members are, not how many they are.
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
        "runtime.tpu",
        "runtime.tpu_zone",
        "runtime.tpu_project",
        # Where programs are kept, not which.
        "runtime.xla_cache_dir",
        # Threads that hand kernels to a GPU, which runs them in the order of its stream.
        "runtime.gpu_thread_mode",
        "runtime.per_gpu_thread_count",
    }
)

# Settings that came later: without them, a config keeps the fingerprint that it had before.
_LEFT_OUT_IF_EMPTY = frozenset({"callbacks"})


def _goes_back(config: ExperimentConfig) -> bool:
    return config.trainer.recovery_max_trials > 0


def _compiles(config: ExperimentConfig) -> bool:
    return config.runtime.enable_xla


def _compares_no_data(config: ExperimentConfig) -> bool:
    """Returns whether a run does not know if data in another directory is the same data."""
    return not config.task.compares_data


def _has_callbacks(config: ExperimentConfig) -> bool:
    return bool(config.callbacks)


def _stops_early(config: ExperimentConfig) -> bool:
    return config.trainer.early_stopping is not None or _has_callbacks(config)


_ONLY_IF: MappingProxyType[str, Callable[[ExperimentConfig], bool]] = MappingProxyType(
    {
        # A run that goes back after it diverged: these decide when that is seen, and where it
        # goes back to. Else they decide no more than when it ends or reports.
        "trainer.steps_per_loop": _goes_back,
        "trainer.summary_interval": lambda config: _goes_back(config) or _has_callbacks(config),
        "trainer.checkpoint_interval": _goes_back,
        "trainer.loss_upper_bound": _goes_back,
        "trainer.recovery_begin_steps": _goes_back,
        # Loops end where an evaluation is due.
        "trainer.validation_interval": lambda config: _stops_early(config) or _goes_back(config),
        "trainer.validation_epochs": lambda config: _stops_early(config) or _goes_back(config),
        "trainer.validation_steps": _stops_early,
        # Eager evaluation gives metrics with other last bits.
        "trainer.eval_tf_function": _stops_early,
        # Steps that make their batches are compiled as a whole; else the batches are the same.
        "task.train_data.on_device": _compiles,
        "trainer.train_tf_while_loop": _compiles,
        "task.train_data.enable_tf_data_service": _compiles,
        "runtime.tf_data_service": _compiles,
        # Where the data is: `data.json` says what it is, and a resume compares that.
        **dict.fromkeys(DATA_DIRECTORIES, _compares_no_data),
        # Deterministic ops give the same bits in whatever order they run; others may race.
        "runtime.inter_op_threads": lambda config: not config.runtime.deterministic,
    }
)


def touches_weights(path: str, config: ExperimentConfig) -> bool:
    """Returns whether a setting can change the weights at a step, or where training ends by itself.

    Args:
        path: The dotted path of the setting.
        config: The config it stands in: some settings matter only beside others.

    Returns:
        False where it certainly cannot. What is not known, such as a setting of one's own task,
        can.
    """
    if path in _NEVER:
        return False
    condition = _ONLY_IF.get(path)
    return condition is None or condition(config)


def identity_settings(config: ExperimentConfig) -> dict[str, Any]:
    """Returns dotted path to value of the settings that can touch the weights.

    Args:
        config: A resolved config.
    """
    return {
        path: value
        for path, value in flat(config).items()
        if touches_weights(path, config) and (value or path not in _LEFT_OUT_IF_EMPTY)
    }


def settings_fingerprint(settings: Mapping[str, Any]) -> str:
    """Returns the SHA-256 over settings, as 64 hexadecimal digits.

    Args:
        settings: What `identity_settings` returned, or a part of it.
    """
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def config_fingerprint(config: ExperimentConfig) -> str:
    """Returns the SHA-256 of what a config says about the weights.

    Settings that cannot touch the weights are left out: a run that goes on with more steps, saves
    more often or prefetches more is the same run, and keeps its fingerprint.

    Args:
        config: A resolved config.

    Returns:
        64 hexadecimal digits. The same for the `config.yaml` that is written of the config, in any
        process. A version of this package that adds a setting gives another one;
        `same_settings` compares with those of earlier versions.
    """
    return settings_fingerprint(identity_settings(config))


def is_fingerprint_of(fingerprint: str, config: ExperimentConfig) -> bool:
    """Returns whether a fingerprint is that of a config, by this version or an earlier one.

    Earlier versions counted the directory of the data as a setting that can touch the weights.

    Args:
        fingerprint: What was recorded.
        config: A resolved config.
    """
    settings = identity_settings(config)
    if fingerprint == settings_fingerprint(settings):
        return True
    everything = flat(config)
    earlier = {path: everything[path] for path in DATA_DIRECTORIES if path in everything}
    return fingerprint == settings_fingerprint(settings | earlier)


def same_settings(before: Mapping[str, Any], config: ExperimentConfig) -> bool:
    """Returns whether a config says the same about the weights as the settings of an earlier one.

    A setting that the earlier one did not have counts as equal at its default: what a new version
    adds does not change what an old run is.

    Args:
        before: What `identity_settings` returned then, perhaps in an earlier version.
        config: A resolved config.
    """
    now, everything = identity_settings(config), flat(config)
    for path in {*before, *now}:
        if path in before and path in now:
            same = before[path] == now[path]
        elif path in now:
            same = now[path] == default_of(config, path)
        else:  # It may be known by now that it cannot touch the weights.
            same = path in everything and not touches_weights(path, config)
        if not same:
            return False
    return True


def default_of(config: ExperimentConfig, path: str) -> Any:
    """Returns the default of a setting, as `flat` has values; `...` where it has none.

    Args:
        config: A config with the section that the setting is in.
        path: Its dotted path.
    """
    section: Any = config
    *parents, name = path.split(".")
    for parent in parents:
        section = getattr(section, parent)
    field = next(one for one in dataclasses.fields(section) if one.name == name)
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    return ... if default is dataclasses.MISSING else plain(default)
