"""Custom optimizers in Model Garden's configs, and configs that do not depend on earlier ones."""

import dataclasses
import json

import pytest
import tf_keras
from official.core import config_definitions, exp_factory
from official.modeling import optimization
from official.modeling.optimization import optimizer_factory
from official.modeling.optimization.configs import optimization_config, optimizer_config

from orbit_runner.cli.main import main
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from tests.support.official_toys import LineConfig, trainer_settings
from tests.support.problems import output_of


@dataclasses.dataclass
class HalfSgdConfig(optimizer_config.BaseOptimizerConfig):
    """SGD with another default."""

    name: str = "half"
    momentum: float = 0.5


@dataclasses.dataclass
class OwnChoice(optimization_config.OptimizerConfig):
    """Model Garden's optimizers and one more."""

    half_sgd: HalfSgdConfig = dataclasses.field(default_factory=HalfSgdConfig)


@dataclasses.dataclass
class AlikeChoice(optimization_config.OptimizerConfig):
    """Another class with the fields and values of `OwnChoice`."""

    half_sgd: optimizer_config.SGDConfig = dataclasses.field(
        default_factory=lambda: optimizer_config.SGDConfig(name="half", momentum=0.5)
    )


def experiment(choice):
    settings = config_definitions.TrainerConfig(**trainer_settings())
    config = optimization.OptimizationConfig(
        {"learning_rate": {"type": "constant", "constant": {"learning_rate": 0.01}}}
    )
    config.optimizer = choice(type="half_sgd")
    settings.optimizer_config = config
    return config_definitions.ExperimentConfig(task=LineConfig(), trainer=settings)


@pytest.fixture
def registered():
    """Registers an experiment for each class, and the optimizer."""
    tables = exp_factory._REGISTERED_CONFIGS, optimizer_factory.LEGACY_OPTIMIZERS_CLS
    before = [dict(table) for table in tables]
    optimizer_factory.register_optimizer_cls("half_sgd", tf_keras.optimizers.legacy.SGD)
    for name, choice in (("own_choice", OwnChoice), ("alike_choice", AlikeChoice)):
        exp_factory.register_config_factory(name)(lambda choice=choice: experiment(choice))
    yield
    for table, was in zip(tables, before, strict=True):
        table.clear()
        table.update(was)


@pytest.mark.slow
def test_custom_optimizer_trains(registered, tmp_path):
    flags = ["--experiment=official/own_choice", f"--model_dir={tmp_path}", "--json"]
    changed = "--trainer.optimizer_config.optimizer.half_sgd.momentum=0.25"

    assert json.loads(output_of([*flags, changed]))["step"] == 6
    assert main(["verify", str(tmp_path)]) == 0


def test_unknown_optimizer_name_suggests_the_nearest(registered):
    with pytest.raises(ConfigError) as caught:
        resolve(
            Request(
                experiment="official/own_choice",
                params_overrides=("trainer.optimizer_config.optimizer.type=half_sdg",),
            )
        )

    (problem,) = caught.value.problems
    assert "half_sdg'; did you mean 'half_sgd'?" in problem.message


@pytest.mark.parametrize("order", [("own_choice", "alike_choice"), ("alike_choice", "own_choice")])
def test_experiments_with_equal_values_keep_their_own_config_classes(registered, order):
    classes = {"own_choice": HalfSgdConfig, "alike_choice": optimizer_config.SGDConfig}
    for name in order:
        params = resolve(Request(experiment=f"official/{name}")).config.for_task

        assert type(params.trainer.optimizer_config.optimizer.get()) is classes[name]
