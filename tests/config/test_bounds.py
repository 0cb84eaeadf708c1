"""Numbers out of bounds, tried with every numeric field of every config class."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from orbit_runner.config.errors import Origin, Problem
from orbit_runner.config.parsing.builder import Builder, _hints
from orbit_runner.config.parsing.conversion import options_of
from orbit_runner.config.parsing.tree import Leaf, Section
from orbit_runner.config.schema.base import FLOAT_MAX, Config
from orbit_runner.config.schema.trainer import TrainerConfig
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.keras.config import KerasConfig
from orbit_runner.tasks.recommendation.config import RecommendationConfig
from orbit_runner.tasks.tabular.config import TabularConfig
from orbit_runner.tasks.text_classification.config import TextClassificationConfig
from orbit_runner.tasks.translation.config import TranslationConfig
from orbit_runner.train.schedule import make_plan
from tests.support.problems import check, fails, raises

TASKS = (
    ImageClassificationConfig, TranslationConfig, RecommendationConfig, KerasConfig, TabularConfig,
    TextClassificationConfig,
)  # fmt: skip
LARGE = (2**31, 2**32, 2**63, 10**26)
NOT_FINITE = (math.inf, -math.inf, math.nan)
# Integers above INT_MAX, and why.
MORE_THAN_32_BITS = {"seed": "unsigned 32 bits"}
INFINITE = {"loss_upper_bound": "no bound"}
_OFF, _NONE, _SHIFT, _ANY = "turns it off", "none of it", "shifts either way", "any number"
_LEFT = "another setting, TensorFlow or the machine decides"
_RULE = "a rule of the whole section decides"
MINUS_ONE = {
    "seed": "any number is hashed",
    "label_offset": _SHIFT,
    "offset": _SHIFT,
    "step_offset": _SHIFT,
    "power": "a power may be negative",
    "beta_2_decay": "a power may be negative",
    "threshold": "metrics may be negative",
    "loss_upper_bound": "losses may be negative",
    "pre_offset_learning_rate": "a rate of Model Garden without a limit",
    "num_gpus": "all there are",
    "task_index": _LEFT,
    "checkpoint_interval": "after each loop",
    "validation_steps": "all there are",
    "recovery_max_trials": "turns the check off",
    "loss_scale": _RULE,
    "loss_weights": _ANY,
    "depth": _RULE,
    "train_input_partition_dims": _RULE,
    "eval_input_partition_dims": _RULE,
}
ZERO = {
    **dict.fromkeys(MINUS_ONE, _ANY),
    **dict.fromkeys(
        ("intra_op_threads", "inter_op_threads", "num_workers",
         "num_parameter_servers", "train_steps", "train_epochs",
         "validation_epochs", "global_batch_size", "batch_tokens"), _LEFT),
    **dict.fromkeys(
        ("num_evaluators", "recovery_begin_steps", "shuffle_buffer_size",
         "prefetch_buffer_size", "max_bad_images", "max_bad_records", "color_jitter", "se_ratio", "mixup_alpha",
         "cutmix_alpha", "noise_multiplier", "gradient_clip_norm", "decay", "alpha",
         "bleu_examples", "num_eval_negatives", "validation_split", "test_split", "start_step", "report_interval",
         "watch_interval", "keep_checkpoint_interval", "logical_replicas", "min_steps_per_epoch"), _OFF),
    **dict.fromkeys(
        ("augment_padding", "extra_decode_length", "cutout_const", "translate_const", "magnitude",
         "max_one_hot", "min_delta", "initial_accumulator_value", "linear_decay_fraction", "label_smoothing",
         "l2_weight_decay", "mf_regularization", "mlp_regularization", "weight_decay",
         "weight_decay_rate"), _NONE),
    **dict.fromkeys(
        ("learning_rate", "initial_learning_rate", "end_learning_rate", "warmup_learning_rate",
         "values"), "a rate of 0 freezes the weights, as in a warm-up"),
    **dict.fromkeys(
        ("beta_1", "beta_2", "rho", "momentum", "average_decay", "batch_norm_momentum"),
        "nothing of the past is kept"),
    **dict.fromkeys(
        ("dropout_rate", "attention_dropout_rate", "intermediate_dropout", "probability", "prob",
         "prob_to_apply", "switch_prob", "init_stochastic_depth_rate",
         "stochastic_depth_drop_rate"), "never"),
    "weight": "the source is not read",
    "boundaries": "a piece may end at step 0",
    "warmup_steps": _NONE,
    "validation_interval": "only at the end",
    "checkpoint_interval": "only at the end",
    "continuous_eval_timeout": "no limit",
}  # fmt: skip


def _classes(cls: type[Config] = Config) -> Iterator[type[Config]]:
    for below in cls.__subclasses__():
        yield below
        yield from _classes(below)


def _kind(hint: Any) -> tuple[type | None, bool]:
    """Returns int or float, and whether the field is a list of them."""
    for option in options_of(hint):
        if option in (int, float):
            return option, False
        for item in typing.get_args(option):
            if item in (int, float):
                return item, True
    return None, False


def _numeric() -> Iterator[tuple[type[Config], str, type, bool]]:
    for cls in dict.fromkeys(_classes()):
        if not cls.__module__.startswith(("orbit_runner.config", "orbit_runner.tasks")):
            continue
        for field in dataclasses.fields(cls):
            kind, is_list = _kind(_hints(cls)[field.name])
            chosen = any(field.metadata.get(key) for key in ("allowed", "unsupported"))
            if kind is not None and not chosen:
                yield cls, field.name, kind, is_list


FIELDS = [pytest.param(*found, id=f"{found[0].__name__}.{found[1]}") for found in _numeric()]


def _problems(cls: type[Config], name: str, value: Any) -> list[Problem]:
    builder = Builder()
    origin = Origin("a.yaml", 1, 1)
    builder.build(cls(), Section(origin, {name: Leaf(value, origin)}))
    return builder.problems


def test_numeric_fields_of_every_section_are_collected() -> None:
    names = {parameter.id for parameter in FIELDS}

    assert {"TrainerConfig.train_steps", "RuntimeConfig.seed", "CnnConfig.filters", "Adam.beta_1",
            "StackConfig.num_layers", "NeuMFConfig.layers", "DataConfig.seed"} <= names  # fmt: skip
    assert len(names) > 150


@pytest.mark.parametrize(("cls", "name", "kind", "is_list"), FIELDS)
def test_number_out_of_bounds_is_rejected_with_the_allowed_range(
    cls: type[Config], name: str, kind: type, is_list: bool
) -> None:
    for value in (*LARGE, *NOT_FINITE, -1, 0):
        problems = _problems(cls, name, [value] if is_list else value)
        if problems:
            (problem,) = problems
            assert problem.path == name
            assert problem.code in ("out-of-range", "wrong-type")
            assert problem.message.startswith("got ")
            continue
        if value == math.inf and name in INFINITE:
            continue
        assert math.isfinite(value), f"{value} is accepted"
        if value in LARGE and kind is int:
            assert name in MORE_THAN_32_BITS, f"{value} is accepted"
        elif value in LARGE:
            assert value <= FLOAT_MAX
        else:
            reasons = ZERO if value == 0 else MINUS_ONE
            assert name in reasons, f"{value} is accepted, but the table gives no reason"


def _takes_mapping(hint: Any) -> bool:
    options = options_of(hint)
    items = [item for option in options for item in typing.get_args(option)]
    is_mapping = Mapping in map(typing.get_origin, options)
    return is_mapping or (_is_list(hint) and any(map(_takes_mapping, items)))


def _is_list(hint: Any) -> bool:
    return list in map(typing.get_origin, options_of(hint))


def _lists_mappings(hint: Any) -> bool:
    lists = [option for option in options_of(hint) if typing.get_origin(option) is list]
    return any(_takes_mapping(item) for option in lists for item in typing.get_args(option))


FREE_FIELDS = [
    pytest.param(cls, field.name, id=f"{cls.__name__}.{field.name}")
    for cls in dict.fromkeys(_classes())
    if cls.__module__.startswith(("orbit_runner.config", "orbit_runner.tasks"))
    for field in dataclasses.fields(cls)
    if _takes_mapping(_hints(cls)[field.name]) and not field.metadata.get("unsupported")
]


@pytest.mark.parametrize(("cls", "name"), FREE_FIELDS)
@pytest.mark.parametrize("sign", [1, -1])
def test_integer_too_large_for_a_float_is_rejected_in_free_mappings(
    cls: type[Config], name: str, sign: int
) -> None:
    number = sign * 10**400
    for value in ({"a": number}, {"a": {"b": [1, number]}}):
        (problem,) = _problems(cls, name, [value] if _lists_mappings(_hints(cls)[name]) else value)

        assert (problem.code, problem.path) == ("out-of-range", name)
        assert problem.message.startswith(f"got {str(number)[:40]}")


# Bounds that none of the values above crosses, and texts of flags.
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("runtime.seed", 2**32),
        ("runtime.intra_op_threads", 10**6),
        ("runtime.num_gpus", -2),
        ("task.train_data.global_batch_size", 2 * 10**9),
        ("task.model.filters", "[32, 100000]"),
        ("task.model.dropout_rate", 1),
        ("trainer.train_steps", "9" * 4000),
        ("trainer.train_epochs", ".inf"),
        ("trainer.checkpoint_interval", -2),
        ("trainer.optimizer_config.learning_rate.constant.learning_rate", ".nan"),
        ("trainer.optimizer_config.optimizer.adam.epsilon", "1e-60"),
        ("trainer.optimizer_config.optimizer.adam.beta_1", "1.0"),
    ],
)
def test_error_message_states_the_allowed_bound(
    refused: Callable[..., list[Problem]], path: str, text: Any
) -> None:
    for request in (
        {"params_overrides": (f"{path}={text}",)},
        {"flags": (("--x", path, str(text)),)},
    ):
        (problem,) = refused(**request)

        check([problem], ("out-of-range", path))
        assert len(problem.message) < 300


def test_epochs_that_exceed_the_step_limit_are_rejected() -> None:
    trainer = TrainerConfig(train_epochs=1e6)

    with raises("out-of-range", "trainer.train_epochs"):
        make_plan(trainer, 50_000.0)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--train_steps=0"], (0, 0.0)),
        (["--train_epochs=0"], (0, 0.0)),
        (["--train_steps=7"], (7, 0.0)),
        (["--train_epochs=3"], (0, 3.0)),
        (["--params_override=trainer.train_steps=0,trainer.train_epochs=2"], (0, 2.0)),
    ],
)
def test_steps_and_epochs_of_higher_layer_win_even_if_zero(
    over_digits: Callable[..., Any], flags: list[str], expected: tuple[int, float]
) -> None:
    from orbit_runner.cli.command import parse_flags
    from orbit_runner.cli.commands.run import COMMAND
    from orbit_runner.cli.flags.config_flags import build_request

    asked = build_request(parse_flags(COMMAND.parser(), ["--experiment=digits", *flags]))
    trainer = over_digits(flags=asked.flags, params_overrides=asked.params_overrides).trainer

    assert (trainer.train_steps, trainer.train_epochs) == expected


def test_zero_train_steps_is_rejected_and_error_names_the_flag(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    arguments = ["run", "--experiment=digits", "--train_steps=0"]
    fails(arguments, "not-set", "trainer.train_steps", origin="--train_steps")


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["launch", "--workers=100000", "--", "--experiment=digits"], "--workers"),
        (["launch", "--restarts=-1", "--", "--experiment=digits"], "--restarts"),
        (["launch", "--restarts=10000000", "--", "--experiment=digits"], "--restarts"),
        (["predict", "x", "y", "--batch_size=100000000000000000000"], "--batch_size"),
        (["predict", "x", "y", "--top_k=-1"], "--top_k"),
        (["run", "--experiment=digits", "--mode=continuous_train_and_eval", "--pretrain_steps=0"], "--pretrain_steps"),
    ],
)  # fmt: skip
def test_command_flag_out_of_bounds_is_rejected(arguments: list[str], flag: str) -> None:
    fails(arguments, "out-of-range", flag)
