"""Which settings can affect the weights, and the fingerprint of a config."""

import dataclasses
import functools
import json
from typing import Any

import pytest

from orbit_runner.config.fingerprint import (
    can_affect_weights,
    cannot_affect_weights,
    config_fingerprint,
)
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.base import Config, field
from orbit_runner.config.schema.data import DataConfig
from orbit_runner.config.schema.experiment import ExperimentConfig, TaskConfig
from orbit_runner.config.schema.plugins import CallbackConfig
from orbit_runner.config.schema.weights import NEVER
from orbit_runner.config.serialize import flat_settings, to_yaml
from orbit_runner.registry import TASKS
from tests.support.processes import printed_by

STOPPING = "trainer.early_stopping={patience: 3}"
RECOVERY = "trainer.recovery_max_trials=2"

HARMLESS = {
    "name": "other",
    "description": "other",
    "trackers": (),
    "trainer.train_steps": 7,
    "trainer.train_epochs": 7.0,
    "trainer.steps_per_loop": 7,
    "trainer.summary_interval": 7,
    "trainer.checkpoint_interval": 7,
    "trainer.validation_interval": 7,
    "trainer.validation_epochs": 7.0,
    "trainer.min_steps_per_epoch": 7,
    "trainer.validation_steps": 7,
    "trainer.max_to_keep": 7,
    "trainer.keep_checkpoint_interval": 7,
    "trainer.best_checkpoints_to_keep": 7,
    "trainer.continuous_eval_timeout": 7,
    "trainer.preemption_on_demand_checkpoint": False,
    "trainer.keep_code_patch": False,
    "trainer.report_interval": 7.0,
    "trainer.export_subdir": "other",
    "trainer.export_formats": ("keras",),
    "trainer.best_checkpoint_export_subdir": "other",
    "trainer.best_checkpoint_eval_metric": "validation_loss",
    "trainer.best_checkpoint_metric_comp": "lower",
    "trainer.profile_steps": [7, 8],
    "trainer.system_metrics": False,
    "trainer.loss_upper_bound": 7.0,
    "trainer.recovery_begin_steps": 7,
    "task.metrics": ("auc",),
    "task.train_data.data_dir": "other",
    "task.train_data.tfds_data_dir": "other",
    "task.validation_data.data_dir": "other",
    "task.validation_data.tfds_data_dir": "other",
    "task.train_data.prefetch_buffer_size": 7,
    "task.train_data.ram_budget": 7,
    "task.train_data.autotune_algorithm": "DEFAULT",
    "task.validation_data.prefetch_buffer_size": 7,
    "task.validation_data.ram_budget": 7,
    "task.validation_data.autotune_algorithm": "DEFAULT",
    "task.validation_data.cache": True,
    "task.train_data.on_device": True,
    "task.validation_data.on_device": True,
    "task.train_data.enable_tf_data_service": True,
    "task.train_data.tf_data_service_address": "grpc://a:1",
    "task.validation_data.enable_tf_data_service": True,
    "task.validation_data.tf_data_service_address": "grpc://a:1",
    "runtime.dataset_num_private_threads": 7,
    "runtime.worker_hosts": "a:1",
    "runtime.task_index": 7,
    "runtime.num_evaluators": 1,
    "runtime.remote_cluster": "worker=a:1;ps=b:1",
    "runtime.cluster_start_timeout": 7,
    "runtime.heartbeat_timeout": 7,
    "runtime.grace_period": 7.0,
    "runtime.tf_data_service": "grpc://a:1",
    "runtime.tpu": "local",
    "runtime.inter_op_threads": 7,
}
EARLY = (
    "trainer.validation_interval",
    "trainer.validation_epochs",
    "trainer.min_steps_per_epoch",
    "trainer.validation_steps",
    "task.metrics",
)
COMPILED = (
    "task.metrics",
    "task.train_data.on_device",
    "task.train_data.enable_tf_data_service",
    "runtime.tf_data_service",
)
GOING_BACK = (
    "trainer.steps_per_loop",
    "trainer.summary_interval",
    "trainer.checkpoint_interval",
    "trainer.validation_interval",
    "trainer.validation_epochs",
    "trainer.min_steps_per_epoch",
    "trainer.loss_upper_bound",
    "trainer.recovery_begin_steps",
)


def _with(config: Any, path: str, value: Any) -> Any:
    name, _, rest = path.partition(".")
    below = _with(getattr(config, name), rest, value) if rest else value
    return config.replace(**{name: below})


def test_list_of_harmless_settings_is_complete(over_digits):
    config = over_digits()
    assert {path for path in flat_settings(config) if not can_affect_weights(path, config)} == {
        *HARMLESS
    }


def test_a_harmless_change_keeps_the_fingerprint(over_digits):
    config = over_digits()
    for path, value in HARMLESS.items():
        changed = _with(config, path, value)
        assert changed != config, path
        assert config_fingerprint(changed) == config_fingerprint(config), path


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("task.model.dropout_rate", 0.1),
        ("task.top_k", 3),
        ("task.init_checkpoint", "other"),
        ("task.train_data.global_batch_size", 32),
        ("task.train_data.deterministic", False),
        ("task.train_data.cache", True),
        ("task.train_data.seed", 0),
        ("task.validation_data.split", "all"),
        ("trainer.gradient_accumulation_steps", 2),
        ("trainer.recovery_max_trials", 1),
        ("trainer.optimizer_config.optimizer.adam.beta_1", 0.8),
        ("runtime.seed", 18),
        ("runtime.deterministic", False),
        ("runtime.intra_op_threads", 2),
        ("runtime.enable_xla", True),
        ("runtime.num_gpus", -1),
        ("runtime.num_workers", 2),
        ("runtime.logical_replicas", 2),
        ("runtime.num_parameter_servers", 2),
        ("runtime.run_eagerly", True),
        ("imports", ("other",)),
        ("callbacks", (CallbackConfig(class_name="my_package.MyCallback"),)),
        ("gin_bindings", ("f.x = 1",)),
    ],
)
def test_change_that_can_affect_weights_changes_the_fingerprint(over_digits, path, value):
    config = over_digits()
    assert can_affect_weights(path, config)
    assert config_fingerprint(_with(config, path, value)) != config_fingerprint(config)


@pytest.mark.parametrize(
    ("override", "paths"),
    [
        (STOPPING, EARLY),
        (RECOVERY, GOING_BACK),
        ("callbacks=[my_package.MyCallback]", (*EARLY, "trainer.summary_interval")),
        ("runtime.enable_xla=true", COMPILED),
        ("runtime.deterministic=false", ()),
    ],
    ids=["early stopping", "recovery", "callbacks", "XLA", "no determinism"],
)
def test_setting_can_affect_weights_depending_on_another_setting(over_digits, override, paths):
    config = over_digits(params_overrides=(override,))
    expected = {*(paths or ("runtime.inter_op_threads",))}
    affecting = {path for path in HARMLESS if can_affect_weights(path, config)}
    assert affecting == expected
    for path in expected:
        changed = _with(config, path, HARMLESS[path])
        assert config_fingerprint(changed) != config_fingerprint(config)


def test_setting_of_a_custom_task_can_affect_the_weights(over_digits):
    assert can_affect_weights("task.of_ones_own", over_digits())
    assert can_affect_weights("task.name", over_digits())


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Logging(Config):
    level: int = field(0, help="a setting of a section that cannot change the weights")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _CustomData(DataConfig):
    data_dir: str = field("elsewhere", help="declared again, with another default")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _CustomTask(TaskConfig):
    train_data: _CustomData = field(factory=_CustomData, help="data")
    verbose: bool = field(False, weights=NEVER, help="cannot change the weights")
    logging: _Logging = field(factory=_Logging, weights=NEVER, help="a section that cannot")
    metrics: list[str] = field((), help="has the name of a setting of another task")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OtherTask(TaskConfig):
    verbose: bool = field(False, help="a setting of the same name that can change the weights")


@pytest.fixture
def registered():
    """Registers the config class of a task; afterwards, the registry is as before."""
    before = dict(TASKS._entries)
    yield functools.partial(TASKS.register, target="none:None")
    TASKS._entries.clear()
    TASKS._entries.update(before)


def test_custom_task_declares_what_can_affect_the_weights():
    config = ExperimentConfig(task=_CustomTask())
    harmless = {path for path in flat_settings(config) if not can_affect_weights(path, config)}

    assert {"task.verbose", "task.logging.level"} <= harmless
    assert "task.metrics" not in harmless
    assert config_fingerprint(config) == config_fingerprint(
        config.replace(task=_CustomTask(verbose=True, logging=_Logging(level=3)))
    )
    assert config_fingerprint(config) != config_fingerprint(
        config.replace(task=_CustomTask(metrics=("a",)))
    )


def test_setting_that_is_declared_again_keeps_its_effect_on_the_weights(registered):
    config = ExperimentConfig(task=_CustomTask())
    assert can_affect_weights("task.train_data.data_dir", config)
    # A task that declares its data detects that they have changed.
    registered("custom", config=_CustomTask, data="none:None")
    assert not can_affect_weights("task.train_data.data_dir", config)


def test_path_alone_is_harmless_only_if_it_is_for_every_task(registered):
    assert cannot_affect_weights("task.validation_data.cache")
    assert not cannot_affect_weights("task.train_data.cache")
    assert not cannot_affect_weights("task.verbose")
    registered("custom", config=_CustomTask)
    assert cannot_affect_weights("task.verbose")
    assert cannot_affect_weights("task.logging.level")
    registered("other", config=_OtherTask)
    assert not cannot_affect_weights("task.verbose")
    assert cannot_affect_weights("task.logging.level")


@pytest.mark.parametrize(
    "request_",
    [
        {"experiment": "digits"},
        {"experiment": "digits_mlp", "gin_params": ("BATCH = 32", "f.x = %RATE")},
        {"params_overrides": (STOPPING, "runtime={mixed_precision_dtype: float16, loss_scale: 9}")},
        {
            "params_overrides": (
                "callbacks=[{class_name: a.B, arguments: {image: {shape: [8, 8, 1], dtype: uint8, "
                "high: 9}, label: {shape: [], dtype: int32, high: 1e1}}}]",
            )
        },
        # Defaults of Model Garden's that are integers in settings of floating-point numbers.
        {"experiment": "efficientnet_imagenet"},
        {"experiment": "vit_base_imagenet"},
    ],
    ids=["yaml", "gin", "optional", "nested", "integer_defaults", "integer_defaults_of_policies"],
)
def test_config_keeps_its_fingerprint_when_written_and_reloaded(request_, write):
    config = resolve(Request(**{"experiment": "digits"} | request_)).config
    reloaded = resolve(Request(experiment=write("config.yaml", to_yaml(config)))).config
    assert config_fingerprint(reloaded) == config_fingerprint(config)


def test_key_order_does_not_change_the_fingerprint(over_digits):
    spec = {"image": {"shape": [8, 8, 1], "high": 9}, "label": {"shape": [], "high": 10}}
    turned = {name: dict(reversed(leaf.items())) for name, leaf in reversed(spec.items())}
    one, other = (
        over_digits(
            params_overrides=(
                f"callbacks=[{{class_name: a.B, arguments: {json.dumps(arguments)}}}]",
            )
        )
        for arguments in (spec, turned)
    )
    assert config_fingerprint(one) == config_fingerprint(other)


def test_fingerprint_is_equal_in_another_process():
    code = (
        "from orbit_runner.config.fingerprint import config_fingerprint\n"
        "from orbit_runner.config.resolve import Request, resolve\n"
        "print(config_fingerprint(resolve(Request(experiment='digits')).config))\n"
    )
    own = config_fingerprint(resolve(Request(experiment="digits")).config)
    assert printed_by(code, PYTHONHASHSEED="1") == [own]
