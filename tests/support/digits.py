"""The digits of scikit-learn with a small dense network, shortened."""

from typing import Any

from orbit_runner.config.schema.experiment import ExperimentConfig
from tests.support.configs import SHORT_RUN, config_of

_BASE = {
    "task.name": "image_classification",
    "task.model.name": "mlp",
    "task.model.hidden_units": [16],
    "task.train_data.source": "digits",
    "task.train_data.global_batch_size": 64,
    "task.validation_data.source": "digits",
    "task.validation_data.global_batch_size": 128,
    **SHORT_RUN,
    "trainer.train_steps": 60,
    "trainer.validation_interval": 30,
    "trainer.checkpoint_interval": 20,
    "trainer.summary_interval": 15,
    "trainer.optimizer_config.learning_rate.constant.learning_rate": 0.003,
}


def digits_config(**changes: Any) -> ExperimentConfig:
    """Returns the config; `__` in a name stands for a dot."""
    return config_of(_BASE, **changes)


def resnet_config(**changes: Any) -> ExperimentConfig:
    """Returns the config of a residual network with batch norm."""
    base = {key: value for key, value in _BASE.items() if not key.startswith("task.model.")}
    network = {"task.model.name": "resnet_cifar", "task.model.depth": 8}
    return config_of({**base, **network}, **changes)


def cnn_config(**changes: Any) -> ExperimentConfig:
    """Returns the config of a small convolutional network with augmentation."""
    base = {key: value for key, value in _BASE.items() if not key.startswith("task.model.")}
    network = {
        "task.model.name": "cnn",
        "task.model.filters": [4, 8],
        "task.model.kernel_size": 3,
        "task.model.dense_units": 16,
        "task.train_data.augment": "crop_flip",
        "task.train_data.augment_padding": 1,
    }
    return config_of({**base, **network}, **changes)
