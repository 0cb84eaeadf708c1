"""Settings that follow the run and its data, `auto`, and schedules that end earlier."""

from __future__ import annotations

from typing import Any

from orbit_runner.config.schema.base import OneOf
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.schedules import AUTO, CosineLr, PolynomialLr, Schedule
from orbit_runner.config.serialize import inline_yaml

PATH = "trainer.optimizer_config.learning_rate"
# The setting with the length of each schedule that has one.
LENGTHS = {
    "exponential": "decay_steps",
    "polynomial": "decay_steps",
    "cosine": "decay_steps",
    "power_linear": "total_decay_steps",
}
# The weight decay `auto` of n examples is the first divided by n: less data need a simpler model.
# With a learning rate of 0.1, a decay of more than 20 would diverge.
_DECAY_OF_ONE_EXAMPLE = 1250.0
_MOST_DECAY = 10.0


def schedule_steps(config: ExperimentConfig) -> int | str | None:
    """Returns the length of the schedule, a number of steps or `auto`; None if it has none."""
    block, setting = _block(config)
    return getattr(block, setting) if setting else None


def follows_run(config: ExperimentConfig) -> bool:
    """Returns whether the length of the schedule or of records, or the weight decay, is `auto`."""
    return AUTO in (schedule_steps(config), config.trainer.summary_interval, weight_decay(config))


def follow_run(
    config: ExperimentConfig, train_steps: int, num_examples: int | None = None
) -> ExperimentConfig:
    """Returns the config with the numbers that `auto` stands for.

    The schedule then ends with the run, after `train_steps`, and the weight decay is that for
    `num_examples` training examples. If their number is not known (None), a weight decay of `auto`
    stays. Both are 0 if nothing is trained; the rates are then meaningless.
    """
    if not follows_run(config):
        return config
    if num_examples is not None:
        decay = min(_MOST_DECAY, _DECAY_OF_ONE_EXAMPLE / num_examples) if num_examples else 0.0
        config = _with_weight_decay(config, decay)
    config = with_interval(config, config.trainer.summary_steps(train_steps))
    if schedule_steps(config) != AUTO:
        return config
    block, setting = _block(config)
    steps = max(1, train_steps - block.offset)
    return _replace_block(config, block.replace(**{setting: steps}))


def weight_decay(config: ExperimentConfig) -> object:
    """Returns the weight decay rate, a number or `auto`; None if the optimizer has none."""
    # Experiments of Model Garden may have optimizers of other classes.
    optimizer: Any = getattr(config.trainer.optimizer_config, "optimizer", None)
    block = optimizer.get() if isinstance(optimizer, OneOf) else None
    return getattr(block, "weight_decay_rate", None)


def _with_weight_decay(config: ExperimentConfig, rate: object) -> ExperimentConfig:
    """Returns the config with a weight decay rate, where it is `auto`."""
    if weight_decay(config) != AUTO or not isinstance(rate, float):
        return config
    optimization = config.trainer.optimizer_config
    optimizer = optimization.optimizer
    block = optimizer.get().replace(weight_decay_rate=rate)
    optimizer = optimizer.replace(**{str(optimizer.type): block})
    optimization = optimization.replace(optimizer=optimizer)
    return config.replace(trainer=config.trainer.replace(optimizer_config=optimization))


def with_interval(config: ExperimentConfig, steps: object) -> ExperimentConfig:
    """Returns the config with `steps` as the number of steps of a record, where it is `auto`."""
    if config.trainer.summary_interval != AUTO or not isinstance(steps, int):
        return config
    return config.replace(trainer=config.trainer.replace(summary_interval=steps))


def follow_same_run(config: ExperimentConfig, before: ExperimentConfig) -> ExperimentConfig:
    """Returns the config with the lengths of the schedule and of records of an earlier start.

    `auto` stays if it may stand for another number of steps now. Epochs are converted to steps only
    after the data is read.
    """
    config = with_interval(config, before.trainer.summary_interval)
    # The data of the same run are the same, which is checked when they are read.
    config = _with_weight_decay(config, weight_decay(before))
    if config.trainer.train_steps:
        return follow_run(config, config.trainer.train_steps)
    block, setting = _block(config)
    earlier = _block(before)[0]
    same_length = all(
        getattr(config.trainer, name) == getattr(before.trainer, name)
        for name in ("train_epochs", "min_steps_per_epoch")
    )
    if schedule_steps(config) != AUTO or not same_length or type(earlier) is not type(block):
        return config
    return _replace_block(config, block.replace(**{setting: getattr(earlier, setting)}))


def describe_early_end(config: ExperimentConfig, train_steps: int) -> str:
    """Returns what to know if the schedule ends before the run of so many steps does, or ""."""
    final = _final_rate(config)
    if final is None or final[0] >= train_steps:
        return ""
    step, rate, setting = final
    stays = "is 0" if rate == 0 else f"stays at {rate:g}"
    path = f"{PATH}.{config.trainer.optimizer_config.learning_rate.type}.{setting}"
    if step == 0:
        return f"the learning rate {stays} in all {train_steps} steps ({path})"
    value = inline_yaml(getattr(_block(config)[0], setting))
    advice = f"; set it to {AUTO} to decay until the end" if setting in LENGTHS.values() else ""
    return (
        f"the learning rate {stays} after step {step} of {train_steps}, because {path} is "
        f"{value}{advice}"
    )


def _final_rate(config: ExperimentConfig) -> tuple[int, float, str] | None:
    """Returns after how many steps the rate is final, the rate, and the setting that decides it.

    None if the schedule has no end, or is `auto`. A step function ends early only if its last rate
    is 0.
    """
    block, setting = _block(config)
    if block is None:
        return None
    kind = config.trainer.optimizer_config.learning_rate.type
    if kind == "constant" and block.learning_rate == 0:
        return 0, 0.0, "learning_rate"
    if kind == "stepwise" and block.values and block.values[-1] == 0:
        return block.boundaries[-1] + 1 + block.offset, 0.0, "boundaries"
    steps = schedule_steps(config)
    if not isinstance(steps, int) or kind == "exponential" or getattr(block, "cycle", False):
        return None
    rate = 0.0
    if isinstance(block, PolynomialLr):
        rate = block.end_learning_rate
    elif isinstance(block, CosineLr):
        rate = block.alpha * (block.initial_learning_rate or 0.0)
    return steps + block.offset, rate, setting


def _block(config: ExperimentConfig) -> tuple[Any, str]:
    """Returns the chosen schedule and the name of its length; None and "" if there is none."""
    # Experiments of Model Garden may have optimizers of other classes.
    rate: Any = getattr(config.trainer.optimizer_config, "learning_rate", None)
    block = rate.get() if isinstance(rate, OneOf) else None
    if not isinstance(block, Schedule):
        return None, ""
    return block, LENGTHS.get(str(rate.type), "")


def _replace_block(config: ExperimentConfig, block: object) -> ExperimentConfig:
    optimizer = config.trainer.optimizer_config
    rate = optimizer.learning_rate
    optimizer = optimizer.replace(learning_rate=rate.replace(**{str(rate.type): block}))
    return config.replace(trainer=config.trainer.replace(optimizer_config=optimizer))
