"""Names for tasks, networks and data sets, imported only when one is used.

An entry is a config class and an implementation, both given as `"module:name"` (or as the object
itself), so that listing and checking names imports neither them nor tensorflow:

    TASKS.register("my_task", config="my_pkg.config:MyTaskConfig", target="my_pkg.task:MyTask")
"""

from __future__ import annotations

from orbit_runner.registration import Entry, Registry

__all__ = [
    "IMAGE_MODELS",
    "SOURCES",
    "TASKS",
    "Entry",
    "Registry",
]

TASKS = Registry("task", entry_point_group="orbit_runner.tasks")
IMAGE_MODELS = Registry("model")
SOURCES = Registry("data source")

TASKS.register(
    "image_classification",
    config="orbit_runner.tasks.image_classification.config:ImageClassificationConfig",
    target="orbit_runner.tasks.image_classification.task:ImageClassificationTask",
    help="one label an image",
)
_IMAGE_CONFIGS = "orbit_runner.tasks.image_classification.models"
IMAGE_MODELS.register(
    "cnn",
    config=f"{_IMAGE_CONFIGS}:CnnConfig",
    target="orbit_runner.modeling.cnn:cnn",
    help="two convolutions and a dense layer: the small MNIST network",
)
IMAGE_MODELS.register(
    "mlp",
    config=f"{_IMAGE_CONFIGS}:MlpConfig",
    target="orbit_runner.modeling.mlp:mlp",
    help="dense layers",
)
IMAGE_MODELS.register(
    "resnet_cifar",
    config=f"{_IMAGE_CONFIGS}:ResNetCifarConfig",
    target="orbit_runner.modeling.resnet_cifar:resnet_cifar",
    help="residual networks for 32×32 images, v1 (He et al. 2015) and v2 (2016)",
)
_SOURCE = "orbit_runner.config.data:DataConfig"
for _name, _help in {
    "digits": "1,797 handwritten digits of 8×8 pixels, inside scikit-learn",
    "mnist": "MNIST, and sets in its IDX format such as Fashion-MNIST",
    "cifar10": "CIFAR-10, binary version",
    "synthetic": "constant or seeded random tensors",
}.items():
    SOURCES.register(_name, config=_SOURCE, target=f"orbit_runner.data.{_name}:load", help=_help)
SOURCES.register(
    "tfrecord",
    config=_SOURCE,
    target="orbit_runner.data.tfrecord.source:load",
    help="images of one size in TFRecord files with Model Garden's features, streamed",
)
