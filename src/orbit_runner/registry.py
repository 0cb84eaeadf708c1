"""Registries of tasks, models, data sources, trackers and export formats.

Entries are imported only when they are used. Most have a config class and an implementation, each
given as `"module:name"` or as the object itself. With strings, names can be listed and checked
without importing TensorFlow:

    register_task("my_task", config="my_pkg.config:MyTaskConfig", task="my_pkg.task:MyTask")
"""

from __future__ import annotations

from typing import Any

from orbit_runner.registration import Entry, Registry

__all__ = [
    "ARRAY_SOURCES",
    "EXPORT_FORMATS",
    "IMAGE_MODELS",
    "PROVIDERS",
    "RATING_MODELS",
    "RATING_SOURCES",
    "SOURCES",
    "TABLE_MODELS",
    "TABLE_SOURCES",
    "TASKS",
    "TEXT_CLASSIFIERS",
    "TEXT_MODELS",
    "TEXT_SOURCES",
    "TRACKERS",
    "Entry",
    "Registry",
    "register_task",
]

# Providers of experiments. A provider's name is the prefix of its experiments: `official/NAME`.
PROVIDERS = Registry("experiment provider")
TASKS = Registry("task", entry_point_group="orbit_runner.tasks")
IMAGE_MODELS = Registry("model")
TEXT_MODELS = Registry("model")
RATING_MODELS = Registry("model")
TABLE_MODELS = Registry("model")
TEXT_CLASSIFIERS = Registry("model")
SOURCES = Registry("data source")
TEXT_SOURCES = Registry("data source")
RATING_SOURCES = Registry("data source")
ARRAY_SOURCES = Registry("data source")
TABLE_SOURCES = Registry("data source")
# The trackers of this package. A config names those of users by their class.
TRACKERS = Registry("tracker")
EXPORT_FORMATS = Registry("format")


def register_task(name: str, *, config: Any, task: Any, help: str = "") -> None:
    """Registers a task, so that configs can refer to it by name.

    Args:
        name: The value of `task.name` in configs.
        config: The config class, a subclass of `TaskConfig`, or `"module:name"`.
        task: The task class, a subclass of `Task`, or `"module:name"`. With a string, configs can
            be loaded without importing TensorFlow.
        help: One line for `runner list`.

    Raises:
        RunnerError: If another task is registered under this name.
    """
    TASKS.register(name, config=config, target=task, help=help)


PROVIDERS.register("official", target="orbit_runner.model_garden.provider:Experiments")
TASKS.register(
    "image_classification",
    config="orbit_runner.tasks.image_classification.config:ImageClassificationConfig",
    target="orbit_runner.tasks.image_classification.task:ImageClassificationTask",
    help="image classification with one label per image",
)
TASKS.register(
    "translation",
    config="orbit_runner.tasks.translation.config:TranslationConfig",
    target="orbit_runner.tasks.translation.task:TranslationTask",
    help="translation of sentences from one language to another",
)
TASKS.register(
    "recommendation",
    config="orbit_runner.tasks.recommendation.config:RecommendationConfig",
    target="orbit_runner.tasks.recommendation.task:RecommendationTask",
    help="recommendation of items to users, based on their past choices",
)
TASKS.register(
    "keras",
    config="orbit_runner.tasks.keras.config:KerasConfig",
    target="orbit_runner.tasks.keras.task:KerasTask",
    help="any Keras model on arrays, with losses and metrics of Keras",
)
TASKS.register(
    "tabular",
    config="orbit_runner.tasks.tabular.config:TabularConfig",
    target="orbit_runner.tasks.tabular.task:TabularTask",
    help="classification and regression of the rows of a table",
)
TASKS.register(
    "text_classification",
    config="orbit_runner.tasks.text_classification.config:TextClassificationConfig",
    target="orbit_runner.tasks.text_classification.task:TextClassificationTask",
    help="classification of texts",
)
_IMAGE_CONFIGS = "orbit_runner.tasks.image_classification.models"
IMAGE_MODELS.register(
    "cnn",
    config=f"{_IMAGE_CONFIGS}:CnnConfig",
    target="orbit_runner.models.cnn:cnn",
    help="small convolutional network for MNIST: two convolutions and a dense layer",
)
IMAGE_MODELS.register(
    "mlp",
    config=f"{_IMAGE_CONFIGS}:MlpConfig",
    target="orbit_runner.models.mlp:mlp",
    help="multilayer perceptron (dense layers)",
)
IMAGE_MODELS.register(
    "resnet_cifar",
    config=f"{_IMAGE_CONFIGS}:ResNetCifarConfig",
    target="orbit_runner.models.resnet_cifar:resnet_cifar",
    help="residual networks for 32×32 images, v1 (He et al. 2015) and v2 (2016)",
)
IMAGE_MODELS.register(
    "resnet",
    config=f"{_IMAGE_CONFIGS}:ResNetConfig",
    target="orbit_runner.models.resnet:resnet",
    help="residual networks of 18 to 200 layers for large images, versions 1, 1.5 and 2",
)
IMAGE_MODELS.register(
    "vit",
    config=f"{_IMAGE_CONFIGS}:VitConfig",
    target="orbit_runner.models.vit:vit",
    help="vision transformers (ViT), sizes Ti to L",
)
IMAGE_MODELS.register(
    "efficientnet",
    config=f"{_IMAGE_CONFIGS}:EfficientNetConfig",
    target="orbit_runner.models.efficientnet:efficientnet",
    help="EfficientNet b0 to b7",
)
_SOURCE = "orbit_runner.tasks.image_classification.data_config:ImageDataConfig"
_SCIKIT_LEARN = "orbit_runner.datasets.scikit_learn"
SOURCES.register(
    "digits",
    config=_SOURCE,
    target=f"{_SCIKIT_LEARN}:load_digits",
    help="1,797 handwritten digits of 8×8 pixels, included in scikit-learn",
)
for _name, _help in {
    "mnist": "MNIST, and datasets in its IDX format such as Fashion-MNIST",
    "cifar10": "CIFAR-10, binary version",
}.items():
    _target = f"orbit_runner.datasets.{_name}:load"
    SOURCES.register(_name, config=_SOURCE, target=_target, help=_help)
SOURCES.register(
    "synthetic",
    config=_SOURCE,
    target="orbit_runner.data.synthetic:load",
    help="constant or seeded random tensors",
)
SOURCES.register(
    "tfrecord",
    config=_SOURCE,
    target="orbit_runner.data.tfrecord.source:load",
    help="images in TFRecord files with Model Garden's features, streamed from disk",
)
SOURCES.register(
    "image_folder",
    config=_SOURCE,
    target="orbit_runner.data.images.files:load",
    help="JPEG and PNG files, one directory per class",
)
SOURCES.register(
    "tfds",
    config=_SOURCE,
    target="orbit_runner.data.tfds.images:load",
    help="images prepared by TensorFlow Datasets, streamed from its files",
)
SOURCES.register(
    "image_csv",
    config=_SOURCE,
    target="orbit_runner.data.images.csv_labels:load",
    help="JPEG and PNG files that a CSV file lists with their labels",
)
SOURCES.register(
    "array_record",
    config=_SOURCE,
    target="orbit_runner.data.array_record.source:load",
    help="images in ArrayRecord files of tf.Example, read by index",
)
TEXT_MODELS.register(
    "transformer",
    config="orbit_runner.tasks.translation.config:TransformerConfig",
    target="orbit_runner.models.transformer:transformer",
    help="Transformer (Vaswani et al. 2017), presets tiny, base and big",
)
_PAIRS = "orbit_runner.tasks.translation.config:TranslationDataConfig"
for _name, _help in {
    "parallel_text": "text files whose lines are translations of each other, plain or gzip",
    "token_records": "TFRecord files of token ids",
    "synthetic": "seeded random sentences",
}.items():
    TEXT_SOURCES.register(
        _name, config=_PAIRS, target=f"orbit_runner.data.text.{_name}:load", help=_help
    )
RATING_MODELS.register(
    "neumf",
    config="orbit_runner.tasks.recommendation.config:NeuMFConfig",
    target="orbit_runner.models.neumf:neumf",
    help="neural collaborative filtering: GMF, MLP, or both (He et al. 2017)",
)
_RATINGS = "orbit_runner.tasks.recommendation.config:RecommendationDataConfig"
RATING_SOURCES.register(
    "movielens",
    config=_RATINGS,
    target="orbit_runner.datasets.movielens:load",
    help="MovieLens 100K, 1M and 20M in their original files",
)
RATING_SOURCES.register(
    "synthetic",
    config=_RATINGS,
    target="orbit_runner.data.ratings.synthetic:load",
    help="seeded random choices of users with preferences that can be learned",
)
_ARRAYS = "orbit_runner.tasks.keras.config:KerasDataConfig"
for _name, _help in {
    "arrays": "arrays that a function of yours returns",
    "npz": "arrays x and y in files of numpy.savez",
    "memory": "arrays that a Python program passed to orbit_runner.run",
}.items():
    ARRAY_SOURCES.register(
        _name, config=_ARRAYS, target="orbit_runner.tasks.keras.sources:load_source", help=_help
    )
_NETWORKS = "orbit_runner.tasks.tabular"
TABLE_MODELS.register(
    "mlp",
    config=f"{_NETWORKS}.config:TabularModelConfig",
    target=f"{_NETWORKS}.networks:mlp",
    help="multilayer perceptron (dense layers); without hidden layers a linear model",
)
TABLE_MODELS.register(
    "wide_deep",
    config=f"{_NETWORKS}.config:TabularModelConfig",
    target=f"{_NETWORKS}.networks:wide_deep",
    help="a linear model and a multilayer perceptron, added (Cheng et al. 2016)",
)
_TEXTS = "orbit_runner.tasks.text_classification"
TEXT_CLASSIFIERS.register(
    "bag_of_words",
    config=f"{_TEXTS}.models:BagOfWordsConfig",
    target=f"{_TEXTS}.networks:bag_of_words",
    help="the mean of the embeddings of all words, and dense layers",
)
TEXT_CLASSIFIERS.register(
    "transformer",
    config=f"{_TEXTS}.models:TextTransformerConfig",
    target=f"{_TEXTS}.networks:transformer",
    help="the encoder of a Transformer, and the mean of its outputs",
)
TEXT_CLASSIFIERS.register(
    "bert",
    config=f"{_TEXTS}.models:BertConfig",
    target=f"{_TEXTS}.networks:bert",
    help="Model Garden's BERT encoder, and the mean of its outputs",
)
_TABLES = f"{_NETWORKS}.data_config:TableDataConfig"
_READERS = "orbit_runner.data.tables"
for _name, _target, _help in (
    ("csv", f"{_READERS}.csv_file:load", "CSV files, plain or gzip"),
    ("parquet", f"{_READERS}.parquet:load", "Parquet files"),
    ("tfds", "orbit_runner.data.tfds.tables:load", "tables prepared by TensorFlow Datasets"),
    ("jsonl", f"{_READERS}.jsonl:load", "files of JSON objects, one per line"),
    ("npz", f"{_READERS}.array_tables:load_npz", "NumPy arrays by name in .npz files"),
    ("arrays", f"{_READERS}.array_tables:load_function", "arrays that a function returns"),
    ("text_files", f"{_READERS}.text_files:load", "text files, with one class for each file"),
    ("synthetic", f"{_READERS}.synthetic:load", "seeded random columns with targets to learn"),
    ("breast_cancer", f"{_SCIKIT_LEARN}:load_breast_cancer", "569 tumors, in scikit-learn"),
    ("diabetes", f"{_SCIKIT_LEARN}:load_diabetes", "442 patients, in scikit-learn"),
):
    TABLE_SOURCES.register(_name, config=_TABLES, target=_target, help=_help)
TRACKERS.register("tensorboard", target="orbit_runner.trackers.base:TensorBoard")
TRACKERS.register("mlflow", target="orbit_runner.trackers.mlflow:MLflowTracker")
TRACKERS.register("wandb", target="orbit_runner.trackers.wandb:WandbTracker")
_FORMATS = "orbit_runner.serving.formats"
EXPORT_FORMATS.register("saved_model", target=f"{_FORMATS}.saved_model:FORMAT")
EXPORT_FORMATS.register("litert", target=f"{_FORMATS}.litert:FLOAT32")
EXPORT_FORMATS.register("litert_float16", target=f"{_FORMATS}.litert:FLOAT16")
EXPORT_FORMATS.register("litert_int8", target=f"{_FORMATS}.litert:INT8")
EXPORT_FORMATS.register("onnx", target=f"{_FORMATS}.onnx:FORMAT")
EXPORT_FORMATS.register("keras", target=f"{_FORMATS}.keras_file:FORMAT")
