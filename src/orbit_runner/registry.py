"""Registries of tasks, models, data sources, trackers and export formats.

Entries are imported only when they are used. Most have a config class and an implementation, each
given as `"module:name"` or as the object itself. With strings, names can be listed and checked
without importing TensorFlow. A task has a third part between them, what it reads:

    register_task(
        "my_task",
        config="my_package.config:MyTaskConfig",
        data="my_package.data:MyTaskData",
        task="my_package.task:MyTask",
    )
"""

from __future__ import annotations

from orbit_runner.registration import Registry, SourceTraits

TASKS = Registry("task", entry_point_group="orbit_runner.tasks")
IMAGE_MODELS = Registry("model")
TEXT_MODELS = Registry("model")
RATING_MODELS = Registry("model")
TABLE_MODELS = Registry("model")
SOURCES = Registry("data source")
TEXT_SOURCES = Registry("data source")
RATING_SOURCES = Registry("data source")
TABLE_SOURCES = Registry("data source")
# What the task `keras` reads: arrays, and the tables and images of the other tasks.
ARRAY_SOURCES = Registry("data source", includes={"": TABLE_SOURCES, "_images": SOURCES})
# The trackers of this package. A config names those of users by their class.
TRACKERS = Registry("tracker")
EXPORT_FORMATS = Registry("format")


def register_task(
    name: str,
    *,
    config: type | str,
    task: type | str,
    data: type | str | None = None,
    help: str = "",
) -> None:
    """Registers a task, so that configs can refer to it by name.

    Args:
        name: The value of `task.name` in configs.
        config: The config class, a subclass of `TaskConfig`, or `"module:name"`.
        task: The task class, a subclass of `Task`, or `"module:name"`. With a string, configs can
            be loaded without importing TensorFlow.
        data: The class of what the task reads, a subclass of `TaskData`, or `"module:name"`. A
            subclass of the config of another task has the data of that task. If None, the files
            are neither checked before TensorFlow is imported nor compared by their contents.
        help: One line for `runner list`.

    Raises:
        RunnerError: If another task is registered under this name.
    """
    TASKS.register(name, config=config, target=task, data=data, help=help)


for _name, _classes, _data, _help in (
    ("image_classification", "ImageClassification", "ImageData", "one label per image"),
    ("translation", "Translation", "TranslationData", "sentences from one language to another"),
    ("recommendation", "Recommendation", "RecommendationData", "items for users, by past choices"),
    ("keras", "Keras", "KerasData", "any Keras model on arrays, with losses and metrics of Keras"),
    ("tabular", "Tabular", "TabularData", "classification and regression of tables and texts"),
):
    _package = f"orbit_runner.tasks.{_name}"
    register_task(
        _name,
        config=f"{_package}.config:{_classes}Config",
        data=f"{_package}.data:{_data}",
        task=f"{_package}.task:{_classes}Task",
        help=_help,
    )
_IMAGE_CONFIGS = "orbit_runner.models.configs"
for _name, _config, _target, _help in (
    ("cnn", "CnnConfig", "simple:cnn", "small convolutional network for MNIST"),
    ("mlp", "MlpConfig", "simple:mlp", "multilayer perceptron (dense layers)"),
    (
        "resnet_cifar",
        "ResNetCifarConfig",
        "resnet_cifar:resnet_cifar",
        "residual networks for 32×32 images, v1 (He et al. 2015) and v2 (2016)",
    ),
    (
        "resnet",
        "ResNetConfig",
        "imagenet:resnet",
        "residual networks of 18 to 200 layers for large images, version 1.5",
    ),
    ("vit", "VitConfig", "imagenet:vit", "vision transformers (ViT), sizes Ti to L"),
    ("efficientnet", "EfficientNetConfig", "imagenet:efficientnet", "EfficientNet b0 to b7"),
    (
        "application",
        "ApplicationConfig",
        "imagenet:keras_application",
        "networks of Keras applications, with published weights and a new classifier",
    ),
):
    IMAGE_MODELS.register(
        _name,
        config=f"{_IMAGE_CONFIGS}:{_config}",
        target=f"orbit_runner.models.{_target}",
        help=_help,
    )
_SOURCE = "orbit_runner.tasks.image_classification.data_config:ImageDataConfig"
_OF_RECORDS = ("image_field_key", "label_field_key", "label_offset", "max_bad_images")
_OF_TFDS = ("tfds_name", "tfds_split", "tfds_data_dir")
_RECORD_FILES = (("input_path", "train-*"),)
# Settings that a source does not read, each with the one to use instead.
_NO_PATHS = (("data_dir", ""), ("input_path", ""))
_FOLDER_ALONE = (("input_path", "data_dir"),)
_SPLITS = ("train", "test", "all")
for _name, _target, _help, _traits in (
    (
        "digits",
        "datasets.scikit_learn:load_digits",
        "1,797 handwritten digits of 8×8 pixels, included in scikit-learn",
        SourceTraits(instead=_NO_PATHS, splits=_SPLITS),
    ),
    (
        "mnist",
        "datasets.mnist:load",
        "MNIST, and datasets in its IDX format such as Fashion-MNIST",
        SourceTraits(instead=_FOLDER_ALONE, splits=_SPLITS),
    ),
    (
        "cifar10",
        "datasets.cifar10:load",
        "CIFAR-10, binary version",
        SourceTraits(instead=_FOLDER_ALONE, splits=_SPLITS),
    ),
    (
        "synthetic",
        "data.synthetic:load_images",
        "seeded random images",
        SourceTraits(is_generated=True, separation="set another seed in validation_data"),
    ),
    (
        "tfrecord",
        "data.tfrecord.source:load",
        "images in TFRecord files with Model Garden's features, streamed from disk",
        SourceTraits(settings=_OF_RECORDS, required=_RECORD_FILES, knows_classes=False),
    ),
    (
        "array_record",
        "data.array_record:load",
        "images in ArrayRecord files of tf.Example, read by index",
        SourceTraits(
            settings=_OF_RECORDS, required=_RECORD_FILES, knows_classes=False, needs_python=True
        ),
    ),
    (
        "image_folder",
        "data.images.files:load",
        "JPEG and PNG files, one directory per class",
        SourceTraits(
            settings=("max_bad_images",),
            instead=_FOLDER_ALONE,
            splits=_SPLITS,
            separation="put the images of each class into train/ and val/ in data_dir, or set "
            "task.split",
        ),
    ),
    (
        "image_csv",
        "data.images.csv_labels:load",
        "JPEG and PNG files that a CSV file lists with their labels",
        SourceTraits(
            settings=(
                "labels_file",
                "classes_file",
                "path_column",
                "label_column",
                "max_bad_images",
            ),
            required=(("labels_file", "labels.csv"),),
            separation="set task.split",
        ),
    ),
    (
        "hugging_face",
        "data.hugging_face:load",
        "images in datasets that Hugging Face's `datasets` saved on disk, read by index",
        SourceTraits(
            settings=("hugging_face_split", "image_column", "label_column", "max_bad_images"),
            split_setting="hugging_face_split",
            needs_python=True,
        ),
    ),
    (
        "tfds",
        "data.tfds:load",
        "images prepared by TensorFlow Datasets, streamed from its files",
        SourceTraits(
            settings=(*_OF_TFDS, "max_bad_images"),
            required=(("tfds_name", "imagenet2012"),),
            instead=(
                ("data_dir", "tfds_data_dir"),
                ("input_path", "tfds_name"),
            ),
            split_setting="tfds_split",
            separation="set task.split, or tfds_split in both sections",
        ),
    ),
):
    SOURCES.register(
        _name, config=_SOURCE, target=f"orbit_runner.{_target}", help=_help, traits=_traits
    )
TEXT_MODELS.register(
    "transformer",
    config="orbit_runner.models.configs:TransformerConfig",
    target="orbit_runner.models.transformer:transformer",
    help="Transformer (Vaswani et al. 2017), presets tiny, base and big",
)
_PAIRS = "orbit_runner.tasks.translation.config:TranslationDataConfig"
for _name, _target, _help, _traits in (
    (
        "parallel_text",
        "orbit_runner.data.text.parallel_text:ParallelText",
        "text files whose lines are translations of each other, plain or gzip",
        SourceTraits(),
    ),
    (
        "synthetic",
        "orbit_runner.data.synthetic:SyntheticPairs",
        "seeded random sentences",
        SourceTraits(is_generated=True),
    ),
):
    TEXT_SOURCES.register(_name, config=_PAIRS, target=_target, help=_help, traits=_traits)
RATING_MODELS.register(
    "neumf",
    config="orbit_runner.models.configs:NeuMFConfig",
    target="orbit_runner.models.simple:neumf",
    help="neural collaborative filtering, GMF and MLP (He et al. 2017)",
)
_RATINGS = "orbit_runner.tasks.recommendation.config:RecommendationDataConfig"
RATING_SOURCES.register(
    "movielens",
    config=_RATINGS,
    target="orbit_runner.datasets.movielens:load",
    help="MovieLens 100K, 1M and 20M in their original files",
    traits=SourceTraits(),
)
RATING_SOURCES.register(
    "synthetic",
    config=_RATINGS,
    target="orbit_runner.data.synthetic:load_ratings",
    help="seeded random choices of users with preferences that can be learned",
    traits=SourceTraits(is_generated=True),
)
_ARRAYS = "orbit_runner.tasks.keras.config:KerasDataConfig"
for _name, _target, _help, _traits in (
    (
        "arrays",
        "call_function",
        "arrays that a function of yours returns",
        SourceTraits(
            settings=("function", "arguments"),
            required=(("function", "my_package.data:load"),),
            instead=(("data_dir", "function"), ("input_path", "function")),
        ),
    ),
    (
        "npz",
        "read_files",
        "arrays x and y in files of numpy.savez",
        SourceTraits(
            required=(("input_path", "train.npz"),),
            instead=(("data_dir", "input_path, with its directory"),),
        ),
    ),
    (
        "memory",
        "find_passed_arrays",
        "arrays that a Python program passed to orbit_runner.run",
        SourceTraits(
            settings=("digest",),
            instead=(("data_dir", "digest"), ("input_path", "digest")),
        ),
    ),
):
    ARRAY_SOURCES.register(
        _name,
        config=_ARRAYS,
        target=f"orbit_runner.tasks.keras.sources:{_target}",
        help=_help,
        traits=_traits,
    )
_NETWORKS = "orbit_runner.tasks.tabular"
for _name, _help in (
    ("mlp", "dense layers; without any, a linear model"),
    ("wide_deep", "a linear model and a multilayer perceptron, added (Cheng et al. 2016)"),
):
    TABLE_MODELS.register(
        _name,
        config=f"{_NETWORKS}.config:TabularModelConfig",
        target=f"{_NETWORKS}.networks:{_name}",
        help=_help,
    )
_TABLES = f"{_NETWORKS}.data_config:TableDataConfig"
for _name, _target, _help, _traits in (
    (
        "csv",
        "data.tables.csv_file:CSV",
        "CSV files, plain or gzip",
        SourceTraits(settings=("delimiter", "column_names", "missing_values")),
    ),
    (
        "jsonl",
        "data.tables.jsonl:JSONL",
        "files of JSON objects, one per line",
        SourceTraits(settings=("missing_values",)),
    ),
    (
        "parquet",
        "data.tables.arrow:PARQUET",
        "Parquet files",
        SourceTraits(settings=("missing_values",)),
    ),
    (
        "hugging_face",
        "data.hugging_face:TABLE",
        "datasets that Hugging Face's `datasets` saved on disk, and Arrow files",
        SourceTraits(
            settings=("hugging_face_split", "missing_values"), split_setting="hugging_face_split"
        ),
    ),
    (
        "npz",
        "data.tables.array_tables:NPZ",
        "NumPy arrays by name in .npz files",
        SourceTraits(settings=("missing_values",)),
    ),
    (
        "arrays",
        "data.tables.array_tables:FUNCTION",
        "arrays that a function returns",
        SourceTraits(
            settings=("missing_values", "function"),
            required=(("function", "my_package.data:load"),),
            instead=(("data_dir", "function"), ("input_path", "function")),
        ),
    ),
    (
        "tfds",
        "data.tfds:TABLE",
        "tables prepared by TensorFlow Datasets",
        SourceTraits(
            settings=("missing_values", *_OF_TFDS),
            required=(("tfds_name", "titanic"),),
            instead=(("data_dir", "tfds_data_dir"), ("input_path", "tfds_name")),
            split_setting="tfds_split",
        ),
    ),
    (
        "text_files",
        "data.tables.text_files:TEXT_FILES",
        "text files, with one class for each file",
        SourceTraits(
            settings=("files",),
            required=(("files", "{en: train.en, de: train.de}"),),
            instead=(("input_path", "files"),),
        ),
    ),
    (
        "synthetic",
        "data.synthetic:TABLE",
        "seeded random columns",
        SourceTraits(is_generated=True),
    ),
    (
        "breast_cancer",
        "datasets.scikit_learn:BREAST_CANCER",
        "569 tumors, in scikit-learn",
        SourceTraits(instead=_NO_PATHS),
    ),
    (
        "diabetes",
        "datasets.scikit_learn:DIABETES",
        "442 patients, in scikit-learn",
        SourceTraits(instead=_NO_PATHS),
    ),
):
    TABLE_SOURCES.register(
        _name, config=_TABLES, target=f"orbit_runner.{_target}", help=_help, traits=_traits
    )
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
