"""Optimizers, with the names, fields and defaults of Model Garden."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orbit_runner.config.errors import Problem, conflict
from orbit_runner.config.schema.base import Config, GardenOnly, OneOf, config_class, field
from orbit_runner.config.schema.schedules import (
    AUTO,
    GardenSection,
    LearningRate,
    Warmup,
    with_name,
)

_CLIPPING_ELSEWHERE = GardenOnly(None, "set clipping in the optimizer's own block", refused=True)


def _momentum(default: float = 0.0) -> Any:
    return field(
        default, ge=0.0, le=1.0, help="momentum: fraction of the last update that is kept; 0: none"
    )


def _nesterov() -> Any:
    return field(False, help="use Nesterov momentum")


def _beta(default: float, which: str) -> Any:
    return field(default, ge=0.0, lt=1.0, help=f"decay rate of the {which} moment")


def _epsilon(default: float) -> Any:
    # Smaller values are 0 in float32.
    return field(default, gt=0.0, ge=1.2e-38, help="small constant for numerical stability")


def _decay_rate() -> Any:
    return field(0.0, ge=0.0, help="weight decay rate; 0: none")


def _variable_patterns(help: str) -> Any:
    return field(None, help=f"regular expressions for variables {help}")


@config_class
class Optimizer(GardenSection):
    """Settings that all optimizers have."""

    clipnorm: float | None = field(None, gt=0.0, help="maximum norm of each gradient")
    clipvalue: float | None = field(
        None, gt=0.0, help="maximum absolute value of each gradient element"
    )
    global_clipnorm: float | None = field(None, gt=0.0, help="maximum global norm of the gradients")

    def problems(self) -> Iterator[Problem]:
        """Yields (field, message) if more than one way of clipping is set."""
        given = [n for n in ("clipnorm", "clipvalue", "global_clipnorm") if getattr(self, n)]
        if len(given) > 1:
            named = "at most one of clipnorm, clipvalue and global_clipnorm can be set"
            yield conflict(given[-1], f"{named}, got {' and '.join(given)}")


@config_class
class Sgd(Optimizer):
    """Stochastic gradient descent."""

    garden_only = with_name("SGD")
    decay: float = field(
        0.0, ge=0.0, help="learning rate decay: the rate is divided by 1 + decay · step"
    )
    nesterov: bool = _nesterov()
    momentum: float = _momentum()


@config_class
class RmsProp(Optimizer):
    """RMSprop: divides gradients by their root mean square."""

    garden_only = with_name("RMSprop")
    rho: float = _beta(0.9, "second")
    momentum: float = _momentum()
    epsilon: float = _epsilon(1e-7)
    centered: bool = field(
        False, help="divide by an estimate of the variance instead of the second moment"
    )


@config_class
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015)."""

    garden_only = with_name("Adam")
    beta_1: float = _beta(0.9, "first")
    beta_2: float = _beta(0.999, "second")
    epsilon: float = _epsilon(1e-7)
    amsgrad: bool = field(False, help="use AMSGrad, the maximum of all second moments so far")


@config_class
class AdamExperimental(Adam):
    """Adam with the newer Keras class."""

    jit_compile: bool = field(False, help="compile the update with XLA")


@config_class
class AdamW(Adam):
    """Adam with decoupled weight decay, as in BERT."""

    garden_only = with_name("AdamWeightDecay")
    weight_decay_rate: float | str = field(
        0.0,
        ge=0.0,
        word=AUTO,
        help="weight decay rate; 0: none; auto: 1250 divided by the number of training examples, "
        "at most 10",
    )
    include_in_weight_decay: list[str] | str | None = _variable_patterns(
        "that always have weight decay"
    )
    exclude_from_weight_decay: list[str] | None = _variable_patterns("without weight decay")
    gradient_clip_norm: float = field(
        1.0, ge=0.0, help="maximum global norm of the gradients; 0: no clipping"
    )


@config_class
class AdamWExperimental(AdamExperimental):
    """Adam with decoupled weight decay, with the newer Keras class."""

    garden_only = with_name("AdamWeightDecayExperimental")
    weight_decay: float = _decay_rate()
    global_clipnorm: float = field(1.0, gt=0.0, help="maximum global norm of the gradients")


@config_class
class Lamb(Optimizer):
    """LAMB (You et al. 2020)."""

    garden_only = with_name("LAMB")
    beta_1: float = _beta(0.9, "first")
    beta_2: float = _beta(0.999, "second")
    epsilon: float = _epsilon(1e-6)
    weight_decay_rate: float = _decay_rate()
    exclude_from_weight_decay: list[str] | None = _variable_patterns("without weight decay")
    exclude_from_layer_adaptation: list[str] | None = _variable_patterns(
        "without layer adaptation; if unset: those without weight decay"
    )


@config_class
class Lars(Optimizer):
    """LARS (You, Gitman and Ginsburg 2017)."""

    garden_only = with_name("LARS")
    momentum: float = _momentum(0.9)
    eeta: float = field(0.001, gt=0.0, help="trust coefficient")
    weight_decay_rate: float = _decay_rate()
    nesterov: bool = _nesterov()
    classic_momentum: bool = field(
        True, help="apply the learning rate to the gradient; false: to the momentum"
    )
    exclude_from_weight_decay: list[str] | None = _variable_patterns("without weight decay")
    exclude_from_layer_adaptation: list[str] | None = _variable_patterns(
        "without layer adaptation; if unset: those without weight decay"
    )


# Optimizers that Model Garden lists, and what to use instead. Its files may contain their blocks.
_UNAVAILABLE = {
    "slide": "Model Garden lists this optimizer but does not include it; use lamb or lars",
    "adafactor": "Model Garden lists this optimizer but does not include it; use adamw",
    "adafactor_keras": "not supported; use adamw",
    "adagrad": "not supported; use adam or rmsprop",
    "sgd_experimental": "not supported; use sgd",
}


@config_class
class OptimizerChoice(OneOf):
    """The optimizer in use."""

    unavailable = _UNAVAILABLE
    sgd: Sgd = field(factory=Sgd, help="stochastic gradient descent (SGD)")
    adam: Adam = field(factory=Adam, help="Adam")
    adam_experimental: AdamExperimental = field(
        factory=AdamExperimental, help="Adam with the newer Keras class"
    )
    adamw: AdamW = field(factory=AdamW, help="Adam with decoupled weight decay")
    adamw_experimental: AdamWExperimental = field(
        factory=AdamWExperimental, help="AdamW with the newer Keras class"
    )
    lamb: Lamb = field(factory=Lamb, help="LAMB")
    rmsprop: RmsProp = field(factory=RmsProp, help="RMSprop")
    lars: Lars = field(factory=Lars, help="LARS")


@config_class
class Ema(GardenSection):
    """A moving average of the weights, used for evaluation and the best checkpoint."""

    garden_only = GardenOnly.settings(
        name=GardenOnly("ExponentialMovingAverage", "the moving average is not an optimizer here"),
        clipnorm=_CLIPPING_ELSEWHERE,
        clipvalue=_CLIPPING_ELSEWHERE,
        global_clipnorm=_CLIPPING_ELSEWHERE,
    )
    trainable_weights_only: bool = field(
        True, help="average trainable weights only, not batch normalization statistics for example"
    )
    average_decay: float = field(0.99, ge=0.0, le=1.0, help="decay rate of the moving average")
    start_step: int = field(
        0, ge=0, help="step at which averaging starts; before it, the average equals the weights"
    )
    dynamic_decay: bool = field(
        True, help="limit the decay rate to (1 + n) / (10 + n), n steps after start_step"
    )


@config_class
class Optimization(Config):
    """The optimizer, its learning rate, and the moving average of the weights."""

    optimizer: OptimizerChoice = field(factory=OptimizerChoice, help="the optimizer")
    ema: Ema | None = field(None, help="moving average of the weights, used for evaluation")
    learning_rate: LearningRate = field(factory=LearningRate, help="learning rate schedule")
    warmup: Warmup = field(factory=Warmup, help="learning rate warmup before the schedule")
