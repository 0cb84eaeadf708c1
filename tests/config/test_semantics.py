"""Contradictions between values of one section: the `problems()` of every class."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

from typing import Any

import pytest

from orbit_runner.config.parsing.search_path import experiment_files, shipped_root
from orbit_runner.config.resolve import load_config
from orbit_runner.config.schema.base import Config
from orbit_runner.config.schema.modes import EVALUATING, MODES, TRAINING
from orbit_runner.config.schema.partitioning import batch_problems
from orbit_runner.registry import IMAGE_MODELS, RATING_MODELS, TABLE_MODELS, TASKS, TEXT_MODELS
from tests.support.problems import check

OPT = "trainer.optimizer_config"
LR = f"{OPT}.learning_rate"
RESNET = "task.model.name=resnet_cifar"
SERVED = "runtime.distribution_strategy=parameter_server"
FOUR = "runtime.logical_replicas=4"
TRAIN_SIZE = "task.train_data.global_batch_size"
VALIDATION_SIZE = "task.validation_data.global_batch_size"

# The class or the experiment, the override of the experiment, the path, and the code.
CASES = [
    ("DataConfig", "task.train_data.global_batch_size=0", "task.train_data.global_batch_size", "out-of-range"),
    ("ImageDataConfig", "task.validation_data.augment=crop", "task.validation_data.augment", "conflict"),
    ("ExperimentConfig", "runtime.train_input_partition_dims=[1,2]", "runtime.train_input_partition_dims", "wrong-type"),
    ("CallbackConfig", "callbacks=my_package.MyCallback", "callbacks", "wrong-type"),
    ("CallbackConfig", "callbacks=[3]", "callbacks[0]", "wrong-type"),
    ("CallbackConfig", "callbacks=[MyCallback]", "callbacks[0].class_name", "import-failed"),
    ("CallbackConfig", "callbacks=[{arguments: {a: 1}}]", "callbacks[0].class_name", "import-failed"),
    ("TrackerConfig", "trackers=[mlfow]", "trackers[0].class_name", "unknown-name"),
    ("MixedDataConfig", "task.train_data.class_sampling=balancd", "task.train_data.class_sampling", "not-allowed"),
    ("RuntimeConfig", "runtime.distribution_strategy=mirrored,runtime.num_gpus=-1,runtime.num_virtual_devices=2", "runtime.num_virtual_devices", "not-supported"),
    ("RuntimeConfig", "runtime.mixed_precision_dtype=float16,runtime.loss_scale=x", "runtime.loss_scale", "not-supported"),
    ("RuntimeConfig", "runtime.mixed_precision_dtype=float16,runtime.loss_scale=0", "runtime.loss_scale", "not-supported"),
    ("TrainerConfig", "trainer.steps_per_loop=always", "trainer.steps_per_loop", "wrong-type"),
    ("Schedule", f"{LR}.cosine.decay_steps=always", f"{LR}.cosine.decay_steps", "wrong-type"),
    ("TrainerConfig", "trainer.train_steps=5,trainer.train_epochs=2", "trainer.train_epochs", "conflict"),
    ("TrainerConfig", "trainer.best_checkpoint_export_subdir=''", "trainer.best_checkpoint_eval_metric", "no-effect"),
    ("TrainerConfig", "trainer.best_checkpoint_eval_metric=''", "trainer.best_checkpoint_export_subdir", "no-effect"),
    ("LayerRate", "trainer.fine_tuning={learning_rates: [{factor: 2}]}", "trainer.fine_tuning.learning_rates[0].layers", "not-set"),
    ("EarlyStopping", "trainer.early_stopping={}", "trainer.early_stopping.patience", "not-set"),
    ("Optimizer", f"{OPT}.optimizer.adam={{clipnorm: 1, clipvalue: 2}}", f"{OPT}.optimizer.adam.clipvalue", "conflict"),
    ("Optimizer", f"{OPT}.optimizer={{type: adamw_experimental, adamw_experimental: {{clipnorm: 1}}}}", f"{OPT}.optimizer.adamw_experimental.global_clipnorm", "conflict"),
    ("OneOf", f"{OPT}.optimizer.type=null", f"{OPT}.optimizer.type", "not-set"),
    ("OneOf", f"{LR}.type=null", f"{LR}.type", "not-set"),
    ("OptimizerChoice", f"{OPT}.optimizer.type=slide", f"{OPT}.optimizer.type", "not-allowed"),
    ("OptimizerChoice", f"{OPT}.optimizer.type=adafactor", f"{OPT}.optimizer.type", "not-allowed"),
    ("Schedule", f"{LR}.cosine.decay_steps=null", f"{LR}.cosine.decay_steps", "not-set"),
    ("Schedule", f"{LR}.type=power", f"{LR}.power.initial_learning_rate", "not-set"),
    ("Schedule", f"{OPT}.warmup.type=linear", f"{OPT}.warmup.linear.warmup_steps", "not-set"),
    ("Schedule", f"{OPT}.warmup.type=polynomial", f"{OPT}.warmup.polynomial.warmup_steps", "not-set"),
    ("PiecewiseSchedule", f"{LR}={{type: stepwise, stepwise: {{boundaries: [2, 1], values: [1, 2, 3]}}}}", f"{LR}.stepwise.boundaries", "wrong-type"),
    ("PiecewiseSchedule", f"{LR}={{type: stepwise, stepwise: {{boundaries: [2, 2], values: [1, 2, 3]}}}}", f"{LR}.stepwise.boundaries", "wrong-type"),
    ("PiecewiseSchedule", f"{LR}={{type: stepwise, stepwise: {{boundaries: [1], values: [1]}}}}", f"{LR}.stepwise.values", "wrong-type"),
    ("PiecewiseSchedule", f"{LR}={{type: step_cosine_with_offset, step_cosine_with_offset: {{boundaries: [1, 2], values: [1]}}}}", f"{LR}.step_cosine_with_offset.values", "wrong-type"),
    ("ResNetCifarConfig", f"{RESNET},task.model.depth=21", "task.model.depth", "not-allowed"),
    ("ResNetCifarConfig", f"{RESNET},task.model.version=2,task.model.depth=21", "task.model.depth", "not-allowed"),
    ("TaskConfig", "task.train_data={is_training: false, augment: none}", "task.train_data.is_training", "not-allowed"),
    ("TaskConfig", "task.train_data.is_training=null", "task.train_data.is_training", "not-allowed"),
    ("TaskConfig", "task.validation_data.is_training=true", "task.validation_data.is_training", "not-allowed"),
    ("ImageModelConfig", "task.model.input_size=[8, 8]", "task.model.input_size", "wrong-type"),
    ("ApplicationConfig", "task.model={name: application, weights: a.h5}", "task.model.weights", "not-allowed"),
    ("ApplicationConfig", "task.model={name: application, application: Xception, input_size: [64, 80, 3]}", "task.model.input_size", "not-supported"),
    ("ApplicationConfig", "task.model={name: application, application: VGG16, input_size: [32, 32, 4]}", "task.model.input_size", "not-supported"),
    ("ImageDataConfig", "task.train_data.crop_area_range=[0.5]", "task.train_data.crop_area_range", "wrong-type"),
    ("ImageDataConfig", "task.train_data.source=tfds", "task.train_data.tfds_name", "not-set"),
    ("ImageDataConfig", "task.train_data.data_dir=/data", "task.train_data.data_dir", "no-effect"),
    ("ImageDataConfig", "task.train_data.input_path=[digits.csv]", "task.train_data.input_path", "no-effect"),
    ("ImageDataConfig", "task.train_data={source: mnist, input_path: [train-*]}", "task.train_data.input_path", "no-effect"),
    ("ImageDataConfig", "task.train_data={source: cifar10, input_path: [a.bin]}", "task.train_data.input_path", "no-effect"),
    ("ImageDataConfig", "task.train_data={source: image_folder, input_path: [a]}", "task.train_data.input_path", "no-effect"),
    ("ImageDataConfig", "task.train_data={mixture: [{}, {source: mnist, data_dir: a, input_path: [b]}]}", "task.train_data.mixture[1].input_path", "no-effect"),
    ("ImageDataConfig", "task.train_data={data_dir: a, mixture: [{}, {}]}", "task.train_data.data_dir", "no-effect"),
    ("ImageDataConfig", "task.train_data={mixture: [{}, {function: 'a:b'}]}", "task.train_data.mixture[1].function", "no-effect"),
    ("ImageDataConfig", "task.train_data={source: tfrecord, data_dir: a}", "task.train_data.input_path", "not-set"),
    ("ImageDataConfig", "task.train_data={source: array_record, data_dir: a}", "task.train_data.input_path", "not-set"),
    ("ImageDataConfig", "task.train_data.max_bad_images=1", "task.train_data.max_bad_images", "no-effect"),
    ("ImageDataConfig", "task.train_data.source=image_csv", "task.train_data.labels_file", "not-set"),
    ("ImageDataConfig", "task.train_data.label_offset=1", "task.train_data.label_offset", "no-effect"),
    ("ImageDataConfig", "task.validation_data.color_jitter=0.1", "task.validation_data.color_jitter", "no-effect"),
    ("ImageClassificationConfig", "task.train_data.augment=inception", "task.train_data.augment", "not-set"),
    ("ImageClassificationConfig", "task.model.input_size=[8, 8, 1],task.train_data.color_jitter=0.1", "task.train_data.color_jitter", "not-supported"),
    ("ImageClassificationConfig", "task.train_data.split=trian", "task.train_data.split", "unknown-name"),
    ("ImageClassificationConfig", "task.train_data={source: mnist, data_dir: a, split: dev}", "task.train_data.split", "unknown-name"),
    ("ImageClassificationConfig", "task.train_data={source: image_folder, data_dir: a, split: some}", "task.train_data.split", "unknown-name"),
    ("ImageClassificationConfig", "task.train_data={source: tfrecord, input_path: [a], split: train}", "task.train_data.split", "not-set"),
    ("ImageClassificationConfig", "task.train_data={source: array_record, input_path: [a], split: train}", "task.train_data.split", "not-set"),
    ("ImageClassificationConfig", "task.train_data={source: tfds, tfds_name: a, split: train}", "task.train_data.split", "not-set"),
    ("ImageClassificationConfig", "task.train_data={source: hugging_face, data_dir: a, split: train}", "task.train_data.split", "not-set"),
    ("ImageClassificationConfig", "task.train_data={split: test, mixture: [{}, {source: tfrecord, input_path: a}]}", "task.train_data.split", "not-set"),
    ("ImageClassificationConfig", "task.train_data={source: array_record, data_dir: a}", "task.model.num_classes", "not-set"),
    ("ImageClassificationConfig", "task.split={fractions: {train: 0.5, a: 0.5}},task.validation_data.split=b", "task.validation_data.split", "unknown-part"),
    ("MixupAndCutmix", "task.train_data.mixup_and_cutmix={mixup_alpha: 0.0, cutmix_alpha: 0.0}", "task.train_data.mixup_and_cutmix.mixup_alpha", "conflict"),
    ("ImageClassificationConfig", "task.validation_data.source=''", "task.validation_data.source", "not-allowed"),
    ("TranslationDataConfig", "task.train_data={batch_tokens: 100, global_batch_size: 8}", "task.train_data.batch_tokens", "conflict"),
    ("TranslationDataConfig", "task.validation_data.batch_tokens=100", "task.validation_data.batch_tokens", "not-supported"),
    ("TranslationConfig", "task.model.name=''", "task.model.name", "not-set"),
    ("TranslationConfig", "task.train_data.source=txt", "task.train_data.source", "not-allowed"),
    ("TranslationConfig", "task.model={padded_decode: true, decode_max_length: 8},task.validation_data.static_batch=false", "task.validation_data.static_batch", "conflict"),
    ("TransformerConfig", "task.model.embedding_width=7", "task.model.embedding_width", "not-divisible"),
    ("TransformerConfig", "task.model.encoder.num_attention_heads=7", "task.model.encoder.num_attention_heads", "not-divisible"),
    ("TransformerConfig", "task.model.padded_decode=true,task.validation_data.static_batch=true", "task.model.decode_max_length", "not-set"),
    ("RecommendationDataConfig", "task.train_data={source: lists}", "task.train_data.source", "not-allowed"),
    ("RecommendationConfig", "task.model.name=''", "task.model.name", "not-set"),
    ("KerasConfig", "task={name: keras}", "task.train_data.source", "not-set"),
    ("KerasModelConfig", "task={name: keras}", "task.model.build", "not-set"),
    ("KerasDataConfig", "task={name: keras, train_data: {source: npz, global_batch_size: 1}}", "task.train_data.input_path", "not-set"),
    ("KerasDataConfig", "task={name: keras, train_data: {source: npz, input_path: a, mixture: [{source: digits}, {source: digits}]}}", "task.train_data.mixture", "conflict"),
    ("NeuMFConfig", "task.model.layers=[33, 8]", "task.model.layers", "not-divisible"),
    ("RecommendationConfig", "task.top_k=1000", "task.top_k", "out-of-range"),
    ("NetworkTaskConfig", "task.model.name=''", "task.model.name", "not-set"),
    ("ClassificationTaskConfig", "task.train_data.split=trian", "task.train_data.split", "unknown-part"),
    ("TabularConfig", "task.target.column=''", "task.target.column", "not-set"),
    ("SplitTaskConfig", "task.validation_data={source: '', input_path: b.csv}", "task.validation_data.input_path", "no-effect"),
    ("SplitTaskConfig", "task.validation_data={source: '', global_batch_size: 0}", "task.validation_data.global_batch_size", "out-of-range"),
    ("TabularConfig", "task.target=age", "task.target.column", "conflict"),
    ("FeaturesConfig", "task.features.exclude=[size]", "task.features.exclude", "no-effect"),
    ("FeaturesConfig", "task.features.text=[age]", "task.features.text[0].column", "set-twice"),
    ("FeaturesConfig", "task.features.text=[{max_length: 3}]", "task.features.text[0].column", "not-set"),
    ("FeaturesConfig", "task.features.categorical=[sex, age]", "task.features.categorical", "set-twice"),
    ("TableDataConfig", "task.train_data.function=a:b", "task.train_data.function", "no-effect"),
    ("TableDataConfig", "task.train_data={source: csv, delimiter: ab}", "task.train_data.delimiter", "wrong-type"),
    ("TableDataConfig", "task.train_data.data_dir=/data", "task.train_data.data_dir", "no-effect"),
    ("TableDataConfig", "task.train_data.source=breast_cancer,task.validation_data.input_path=a", "task.validation_data.input_path", "no-effect"),
    ("TableDataConfig", "task.train_data={source: arrays, function: 'a:b', data_dir: c}", "task.train_data.data_dir", "no-effect"),
    ("TableDataConfig", "task.train_data={source: tfds, tfds_name: a, input_path: b}", "task.train_data.input_path", "no-effect"),
    ("text_language", "task.train_data.input_path=a", "task.train_data.input_path", "no-effect"),
    ("TableDataConfig", "task.train_data.source=arrays", "task.train_data.function", "not-set"),
    ("text_language", "task.train_data.files=null", "task.train_data.files", "not-set"),
    ("text_language", "task.train_data.files={a: 3, b: c}", "task.train_data.files", "wrong-type"),
    ("text_language", "task.train_data.split=train", "task.train_data.split", "not-set"),
    ("TableSplitConfig", "task.split.fractions={a: 0.7, b: 0.4}", "task.split.fractions", "out-of-range"),
    ("TableSplitConfig", "task.split.fractions={train: x}", "task.split.fractions", "out-of-range"),
    ("TableSplitConfig", "task.split.column=part", "task.split.column", "conflict"),
    ("ImageSplitConfig", "task.split={fractions: {train: 1}, hash_of: [directory], stratified: true}", "task.split.stratified", "conflict"),
    # Rules of the declarations, and rules about several sections.
    ("resnet50_imagenet", "task.model.depth=51", "task.model.depth", "not-allowed"),
    ("resnet50_imagenet", "task.model.input_size=[224, 224]", "task.model.input_size", "wrong-type"),
    ("resnet_cifar", "task.model.input_size=[32]", "task.model.input_size", "wrong-type"),
    ("vit_base_imagenet", "task.model.model_name=vit-b", "task.model.model_name", "not-allowed"),
    ("vit_base_imagenet", "task.model.input_size=[224, 220, 3]", "task.model.input_size", "not-supported"),
    ("vit_base_imagenet", "task.model.pooler=none", "task.model.pooler", "not-allowed"),
    ("efficientnet_imagenet", "task.model.model_id=b8", "task.model.model_id", "not-allowed"),
    ("digits", "task.train_data.enable_tf_data_service=true", "task.train_data.enable_tf_data_service", "no-effect"),
    ("digits", f"{SERVED},task.train_data={{source: image_folder, data_dir: /nowhere, max_bad_images: 3}}", "task.train_data.max_bad_images", "not-supported"),
    ("digits", f"{SERVED},task.train_data={{enable_tf_data_service: true, tf_data_service_address: 'grpc://a:1'}}", "task.train_data.enable_tf_data_service", "not-supported"),
    ("digits", f"{SERVED},trainer.fine_tuning={{freeze: [dense]}}", "trainer.fine_tuning", "not-supported"),
    ("digits", f"{SERVED},runtime.logical_replicas=4", "runtime.logical_replicas", "not-supported"),
    ("digits", "runtime.distribution_strategy=tpu,runtime.tpu=local,runtime.logical_replicas=4", "runtime.logical_replicas", "not-supported"),
    ("digits", "runtime.run_eagerly=true,runtime.logical_replicas=4", "runtime.run_eagerly", "not-supported"),
]  # fmt: skip
# The experiments that are overridden instead of digits.
EXPERIMENTS = {
    "TranslationDataConfig": "transformer_multi30k",
    "TranslationConfig": "transformer_multi30k",
    "TransformerConfig": "transformer_multi30k",
    "RecommendationConfig": "ncf_movielens",
    "RecommendationDataConfig": "ncf_movielens",
    "NeuMFConfig": "ncf_movielens",
    **dict.fromkeys(
        (
            "ClassificationTaskConfig",
            "SplitTaskConfig",
            "TabularConfig",
            "FeaturesConfig",
            "TableDataConfig",
            "TableSplitConfig",
        ),
        "diabetes",
    ),
    **{of: of for of, *_ in CASES if of in experiment_files()},
    "TextColumnConfig": "text_language",
}


@pytest.mark.parametrize(("of", "said", "path", "code"), CASES)
def test_contradictory_settings_are_rejected(refused, of, said, path, code):
    problems = refused(experiment=EXPERIMENTS.get(of, "digits"), params_overrides=(said,))

    check((problem for problem in problems if problem.path == path), (code, path))


def test_setting_that_a_source_of_a_mixture_reads_is_accepted():
    train = {"data_dir": "a", "split": "test", "mixture": [{"source": "mnist"}, {}]}
    overrides = {f"task.train_data.{name}": value for name, value in train.items()}

    data = load_config("digits", overrides=overrides).task.train_data

    assert [part.source for part in data.sources] == ["mnist", "digits"]


def test_contradiction_is_attributed_to_explicitly_written_settings(refused):
    (problem, other) = refused(flags=(("--x", "task.train_data.is_training", "false"),))

    assert (other.path, str(other.origin)) == ("task.train_data.is_training", "--x")
    lines = (shipped_root() / "experiments/digits.yaml").read_text().splitlines()
    line = 1 + next(n for n, text in enumerate(lines) if "augment: crop" in text)
    assert str(problem.origin) == f"experiments/digits.yaml:{line}"


def test_every_class_with_checks_has_a_test_case():
    for registry in (TASKS, IMAGE_MODELS, TEXT_MODELS, RATING_MODELS, TABLE_MODELS):
        for entry in registry.entries():
            entry.load_config()

    def below(cls: Any) -> set[Any]:
        return {cls}.union(*(below(sub) for sub in cls.__subclasses__()))

    checking = {
        cls.__name__ for cls in below(Config) - {Config}
        if {"problems", "_rules"} & {*vars(cls)} and cls.__module__.startswith("orbit_runner.")
        and not cls.__module__.startswith("orbit_runner.sweep.")  # Tests of their own.
    }  # fmt: skip
    # Present only in a process that has read an experiment of Model Garden; it turns checks off.
    checking.discard("PartialRuntime")
    assert checking - {case[0] for case in CASES} == set()


@pytest.mark.parametrize(
    ("said", "replicas", "expected"),
    [
        ("", 1, []),
        ("", 4, []),
        ("", 3, [TRAIN_SIZE, VALIDATION_SIZE]),
        ("trainer.gradient_accumulation_steps=3", 2, [TRAIN_SIZE]),
        ("task.validation_data.global_batch_size=3", 4, [VALIDATION_SIZE]),
        (FOUR, 1, []),
        (FOUR, 4, []),
        (FOUR, 3, ["runtime.logical_replicas"]),
        (FOUR, 8, ["runtime.logical_replicas"]),
        (f"{FOUR},task.train_data.global_batch_size=66", 2, [TRAIN_SIZE]),
        (f"{FOUR},task.validation_data.global_batch_size=3", 1, [VALIDATION_SIZE]),
        (f"{FOUR},trainer.gradient_accumulation_steps=32", 2, [TRAIN_SIZE]),
    ],
)
def test_batch_size_must_be_a_multiple_of_replica_count(over_digits, said, replicas, expected):
    config = over_digits(params_overrides=(said,))

    check(batch_problems(config, replicas), *(("not-divisible", path) for path in expected))


@pytest.mark.parametrize(
    ("experiment", "setting"),
    [
        ("digits", "max_bad_images: 1"),
        ("diabetes", "function: 'a:b'"),
        ("ncf_movielens", "num_negatives: 1"),
        ("transformer_multi30k", "max_seq_length: 9"),
    ],
)
def test_unknown_source_is_the_only_problem(refused, experiment, setting):
    text = f"task.train_data={{source: nowhere, {setting}}}"

    (problem,) = refused(experiment=experiment, params_overrides=(text,))

    assert problem.path == "task.train_data.source"


@pytest.mark.parametrize("mode", MODES)
def test_only_the_batches_of_the_mode_are_checked(over_digits, mode):
    config = over_digits()

    sections = {problem.path.split(".")[1] for problem in batch_problems(config, 3, mode)}
    assert ("train_data" in sections) == (mode in TRAINING)
    assert ("validation_data" in sections) == (mode in EVALUATING)
