"""Optimizers, with the names, fields and defaults of Model Garden."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from orbit_runner.config.schema.base import Config, OneOf, field
from orbit_runner.config.schema.schedules import LearningRate, Warmup


def _name(default: str) -> Any:
    return field(default, help="name of the optimizer")


def _momentum(default: float = 0.0) -> Any:
    return field(default, ge=0.0, le=1.0, help="share of the last update kept")


def _nesterov() -> Any:
    return field(False, help="look ahead along the momentum")


def _beta(default: float, which: str) -> Any:
    return field(default, ge=0.0, lt=1.0, help=f"decay of the {which} moment")


def _epsilon(default: float) -> Any:
    # Smaller values are 0 in float32.
    return field(default, gt=0.0, ge=1.2e-38, help="keeps the denominator away from 0")


def _decay_rate() -> Any:
    return field(0.0, ge=0.0, help="weight decay, decoupled from the gradient")


def _names(help: str) -> Any:
    return field(None, help=f"patterns of variable names {help}")


def _jit_compile_setting() -> Any:
    return field(False, help="compile the update with XLA")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer(Config):
    """Settings that all optimizers have."""

    clipnorm: float | None = field(None, gt=0.0, help="largest norm of each gradient")
    clipvalue: float | None = field(None, gt=0.0, help="largest absolute value in a gradient")
    global_clipnorm: float | None = field(None, gt=0.0, help="largest norm of all gradients")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) if more than one way of clipping is set."""
        given = [n for n in ("clipnorm", "clipvalue", "global_clipnorm") if getattr(self, n)]
        if len(given) > 1:
            yield given[-1], f"only one way of clipping can be set, got {' and '.join(given)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sgd(Optimizer):
    """Stochastic gradient descent."""

    name: str = _name("SGD")
    decay: float = field(0.0, ge=0.0, help="rate / (1 + decay · step)")
    nesterov: bool = _nesterov()
    momentum: float = _momentum()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SgdExperimental(Optimizer):
    """Stochastic gradient descent with the newer Keras class."""

    name: str = _name("SGD")
    nesterov: bool = _nesterov()
    momentum: float = _momentum()
    jit_compile: bool = _jit_compile_setting()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RmsProp(Optimizer):
    """RMSprop: divides gradients by their root mean square."""

    name: str = _name("RMSprop")
    rho: float = _beta(0.9, "second")
    momentum: float = _momentum()
    epsilon: float = _epsilon(1e-7)
    centered: bool = field(False, help="use the variance in place of the second moment")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adagrad(Optimizer):
    """Adagrad: divides gradients by the square root of the sum of their squares."""

    name: str = _name("Adagrad")
    initial_accumulator_value: float = field(0.1, ge=0.0, help="start of the sum")
    epsilon: float = _epsilon(1e-7)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015)."""

    name: str = _name("Adam")
    beta_1: float = _beta(0.9, "first")
    beta_2: float = _beta(0.999, "second")
    epsilon: float = _epsilon(1e-7)
    amsgrad: bool = field(False, help="keep the largest second moment")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamExperimental(Adam):
    """Adam with the newer Keras class."""

    jit_compile: bool = _jit_compile_setting()


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay, as in BERT."""

    name: str = _name("AdamWeightDecay")
    weight_decay_rate: float = _decay_rate()
    include_in_weight_decay: list[str] | str | None = _names("that decay in any case")
    exclude_from_weight_decay: list[str] | None = _names("that do not decay")
    gradient_clip_norm: float = field(1.0, ge=0.0, help="largest norm of all gradients")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamWExperimental(AdamExperimental):
    """Adam with decoupled weight decay, with the newer Keras class."""

    name: str = _name("AdamWeightDecayExperimental")
    weight_decay: float = _decay_rate()
    global_clipnorm: float = field(1.0, gt=0.0, help="largest norm of all gradients")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lamb(Optimizer):
    """LAMB (You et al. 2020)."""

    name: str = _name("LAMB")
    beta_1: float = _beta(0.9, "first")
    beta_2: float = _beta(0.999, "second")
    epsilon: float = _epsilon(1e-6)
    weight_decay_rate: float = _decay_rate()
    exclude_from_weight_decay: list[str] | None = _names("that do not decay")
    exclude_from_layer_adaptation: list[str] | None = _names("whose rate is not adapted")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lars(Optimizer):
    """LARS (You, Gitman and Ginsburg 2017)."""

    name: str = _name("LARS")
    momentum: float = _momentum(0.9)
    eeta: float = field(0.001, gt=0.0, help="trust coefficient")
    weight_decay_rate: float = _decay_rate()
    nesterov: bool = _nesterov()
    classic_momentum: bool = field(True, help="apply the rate before the momentum")
    exclude_from_weight_decay: list[str] | None = _names("that do not decay")
    exclude_from_layer_adaptation: list[str] | None = _names("whose rate is not adapted")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slide(Optimizer):
    """SLIDE, which Model Garden lists but does not include."""

    name: str = _name("SLIDE")
    beta_1: float = _beta(0.9, "first")
    beta_2: float = _beta(0.999, "second")
    epsilon: float = _epsilon(1e-6)
    weight_decay_rate: float = _decay_rate()
    weight_decay_type: str = field("inner", help="where the decay is applied")
    exclude_from_weight_decay: list[str] | None = _names("that do not decay")
    exclude_from_layer_adaptation: list[str] | None = _names("whose rate is not adapted")
    include_in_sparse_layer_adaptation: list[str] | None = _names("adapted sparsely")
    sparse_layer_learning_rate: float = field(0.1, help="rate of sparse layers")
    do_gradient_rescaling: bool = field(True, help="rescale gradients")
    norm_type: str = field("layer", help="kind of norm")
    ratio_clip_norm: float = field(1e5, help="largest ratio")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adafactor(Optimizer):
    """Adafactor, which Model Garden lists but does not include."""

    name: str = _name("Adafactor")
    factored: bool = field(True, help="factor second moments")
    multiply_by_parameter_scale: bool = field(True, help="scale updates by the weights")
    beta1: float | None = field(None, help="decay of the first moment")
    decay_rate: float = field(0.8, help="decay of the second moment")
    step_offset: int = field(0, help="steps by which the decay is shifted")
    clipping_threshold: float = field(1.0, help="largest root mean square of an update")
    min_dim_size_to_factor: int = field(128, help="smallest dimension that is factored")
    epsilon1: float = field(1e-30, help="keeps the second moment from 0")
    epsilon2: float = field(1e-3, help="keeps the scale from 0")
    weight_decay: float | None = field(None, help="weight decay")
    include_in_weight_decay: str | None = field(None, help="pattern of names that decay")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdafactorKeras(Optimizer):
    """Adafactor (Shazeer and Stern 2018) with the Keras class."""

    name: str = _name("Adafactor")
    learning_rate: float = field(
        0.001,
        help="learning rate",
        ignored="the schedule in trainer.optimizer_config.learning_rate gives the rate",
    )
    beta_2_decay: float = field(-0.8, help="power of the step in the second moment's decay")
    epsilon_1: float = _epsilon(1e-30)
    epsilon_2: float = _epsilon(1e-3)
    clip_threshold: float = field(1.0, gt=0.0, help="largest root mean square of an update")
    relative_step: bool = field(True, help="bound the rate by the inverse root of the step")


_NOT_SHIPPED = {
    "slide": "Model Garden names this optimizer and does not ship it; use lamb or lars",
    "adafactor": "Model Garden names this optimizer and does not ship it; use adafactor_keras",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerChoice(OneOf):
    """The optimizer in use."""

    required = True
    unavailable = _NOT_SHIPPED
    sgd: Sgd = field(factory=Sgd, help="stochastic gradient descent")
    sgd_experimental: SgdExperimental = field(factory=SgdExperimental, help="Keras' newer SGD")
    adam: Adam = field(factory=Adam, help="Adam")
    adam_experimental: AdamExperimental = field(factory=AdamExperimental, help="newer Adam")
    adamw: AdamW = field(factory=AdamW, help="Adam with weight decay")
    adamw_experimental: AdamWExperimental = field(factory=AdamWExperimental, help="newer AdamW")
    lamb: Lamb = field(factory=Lamb, help="LAMB")
    rmsprop: RmsProp = field(factory=RmsProp, help="RMSprop")
    lars: Lars = field(factory=Lars, help="LARS")
    adagrad: Adagrad = field(factory=Adagrad, help="Adagrad")
    slide: Slide = field(factory=Slide, help="not shipped")
    adafactor: Adafactor = field(factory=Adafactor, help="not shipped")
    adafactor_keras: AdafactorKeras = field(factory=AdafactorKeras, help="Adafactor")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ema(Optimizer):
    """A moving average of the weights, used for evaluation and the best checkpoint."""

    name: str = field(
        "ExponentialMovingAverage", help="name", ignored="the average is no optimizer here"
    )
    clipnorm: float | None = field(None, help="", unsupported="clip in the optimizer's own block")
    clipvalue: float | None = field(None, help="", unsupported="clip in the optimizer's own block")
    global_clipnorm: float | None = field(
        None, help="", unsupported="clip in the optimizer's own block"
    )
    trainable_weights_only: bool = field(
        True, help="leave out batch norm's moving averages and the like"
    )
    average_decay: float = field(0.99, ge=0.0, le=1.0, help="share of the old average")
    start_step: int = field(0, ge=0, help="step up to which the average follows the weights")
    dynamic_decay: bool = field(True, help="cap the decay at (1 + n) / (10 + n) after n steps")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimization(Config):
    """The optimizer, its learning rate, and the moving average of the weights."""

    optimizer: OptimizerChoice = field(factory=OptimizerChoice, help="the optimizer")
    ema: Ema | None = field(None, help="moving average of the weights")
    learning_rate: LearningRate = field(factory=LearningRate, help="the learning rate")
    warmup: Warmup = field(factory=Warmup, help="what comes before the learning rate's schedule")
