"""Contradictions between values of one section: the `problems()` of every class."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.parsing.search_path import shipped_root
from orbit_runner.config.schema.base import Config
from orbit_runner.config.schema.modes import EVALUATING, MODES, TRAINING
from orbit_runner.config.schema.partitioning import batch_problems
from orbit_runner.registry import IMAGE_MODELS, RATING_MODELS, TABLE_MODELS, TASKS, TEXT_MODELS

OPT = "trainer.optimizer_config"
LR = f"{OPT}.learning_rate"
RESNET = "task.model.name=resnet_cifar"

# The class, the override of digits, the blamed path, and the start of the message.
CASES = [
    ("DataConfig", "task.train_data.global_batch_size=0", "task.train_data.global_batch_size", "got 0, allowed: at least 1"),
    ("DataConfig", "task.validation_data.augment=crop", "task.validation_data.augment", "got 'crop' with is_training: false"),
    ("ExperimentConfig", "runtime.train_input_partition_dims=[1,2]", "runtime.train_input_partition_dims", "got [1, 2], expected 4 numbers: batch, height, width, channels"),
    ("CallbackConfig", "callbacks=my_package.MyCallback", "callbacks", "got 'my_package.MyCallback', expected a list, each item a class_name or a section; write [my_package.MyCallback]"),
    ("CallbackConfig", "callbacks=[3]", "callbacks[0]", "got 3, expected a class_name or a section"),
    ("CallbackConfig", "callbacks=[MyCallback]", "callbacks[0].class_name", "got 'MyCallback', expected a module and a class"),
    ("CallbackConfig", "callbacks=[{arguments: {a: 1}}]", "callbacks[0].class_name", "got '', expected a module and a class"),
    ("TrackerConfig", "trackers=[mlfow]", "trackers[0].class_name", "unknown tracker 'mlfow'; did you mean 'mlflow'?"),
    ("PreemptionConfig", "runtime.preemption={signals: [SIGUSR3]}", "runtime.preemption.signals", "unknown signal 'SIGUSR3'; did you mean 'SIGUSR2'?"),
    ("MixedDataConfig", "task.train_data.class_sampling=balancd", "task.train_data.class_sampling", "got 'balancd'; did you mean 'balanced'?\nallowed: balanced, or a weight for each class"),
    ("BertConfig", "task.model={name: bert, embedding_width: 64, num_attention_heads: 5}", "task.model.num_attention_heads", "got 5, expected a divisor of the width, 64"),
    ("RuntimeConfig", "runtime.num_gpus=2", "runtime.num_gpus", "got 2 under `one_device`"),
    ("RuntimeConfig", "runtime.num_virtual_devices=2", "runtime.num_virtual_devices", "got 2 under `one_device`"),
    ("RuntimeConfig", "runtime.distribution_strategy=mirrored,runtime.num_gpus=-1,runtime.num_virtual_devices=2", "runtime.num_virtual_devices", "got 2 with num_gpus: -1, but virtual devices are parts of one CPU or of one GPU"),
    ("RuntimeConfig", "runtime.all_reduce_alg=hierarchical_copy", "runtime.all_reduce_alg", "`one_device` does not all-reduce gradients"),
    ("RuntimeConfig", "runtime.distribution_strategy=mirrored,runtime.all_reduce_alg=nccl", "runtime.all_reduce_alg", "nccl requires GPUs"),
    ("RuntimeConfig", "runtime.loss_scale=dynamic", "runtime.loss_scale", "only float16 needs a loss scale"),
    ("RuntimeConfig", "runtime.mixed_precision_dtype=float16,runtime.loss_scale=x", "runtime.loss_scale", "got 'x', allowed: 'dynamic' or a number"),
    ("RuntimeConfig", "runtime.mixed_precision_dtype=float16,runtime.loss_scale=0", "runtime.loss_scale", "got 0.0, allowed: a number above 0"),
    ("TrainerConfig", "trainer.steps_per_loop=always", "trainer.steps_per_loop", "got 'always', expected an integer or 'auto'"),
    ("Schedule", f"{LR}.cosine.decay_steps=always", f"{LR}.cosine.decay_steps", "got 'always', expected an integer or null or 'auto'"),
    ("TrainerConfig", "trainer.train_steps=5,trainer.train_epochs=2", "trainer.train_epochs", "train_steps is 5; set only one of them"),
    ("TrainerConfig", "trainer.train_tf_function=false", "trainer.train_tf_function", "train_tf_while_loop requires it"),
    ("TrainerConfig", "trainer.eval_tf_function=false,trainer.eval_tf_while_loop=true", "trainer.eval_tf_function", "eval_tf_while_loop requires it"),
    ("TrainerConfig", "trainer.best_checkpoint_export_subdir=''", "trainer.best_checkpoint_eval_metric", "got 'accuracy', which has no effect without best_checkpoint_export_subdir\nset both or neither"),
    ("TrainerConfig", "trainer.best_checkpoint_eval_metric=''", "trainer.best_checkpoint_export_subdir", "got 'best', which has no effect without best_checkpoint_eval_metric\nset both or neither"),
    ("FineTuning", "trainer.fine_tuning={unfreeze: [{step: 3, layers: [dense]}]}", "trainer.fine_tuning.unfreeze", "no layer is frozen, because freeze is not set"),
    ("FineTuning", "trainer.fine_tuning={learning_rates: [{factor: 2}]}", "trainer.fine_tuning.learning_rates[0].layers", "is not set; it needs patterns of layer names"),
    ("FineTuning", "trainer.fine_tuning={freeze: [dense], unfreeze: [{step: 3}]}", "trainer.fine_tuning.unfreeze[0].layers", "is not set; it needs patterns"),
    ("EarlyStopping", "trainer.early_stopping={}", "trainer.early_stopping.patience", "neither patience nor threshold"),
    ("Optimizer", f"{OPT}.optimizer.adam={{clipnorm: 1, clipvalue: 2}}", f"{OPT}.optimizer.adam.clipvalue", "at most one of clipnorm, clipvalue and global_clipnorm can be set, got clipnorm and clipvalue"),
    ("Optimizer", f"{OPT}.optimizer={{type: adamw_experimental, adamw_experimental: {{clipnorm: 1}}}}", f"{OPT}.optimizer.adamw_experimental.global_clipnorm", "at most one of clipnorm, clipvalue"),
    ("OneOf", f"{OPT}.optimizer.type=null", f"{OPT}.optimizer.type", "is not set"),
    ("OneOf", f"{LR}.type=null", f"{LR}.type", "is not set\nallowed: constant, "),
    ("OptimizerChoice", f"{OPT}.optimizer.type=slide", f"{OPT}.optimizer.type", "got 'slide': Model Garden lists this optimizer but does not include it"),
    ("OptimizerChoice", f"{OPT}.optimizer.type=adafactor", f"{OPT}.optimizer.type", "got 'adafactor': Model Garden lists this optimizer"),
    ("Schedule", f"{LR}.cosine.decay_steps=null", f"{LR}.cosine.decay_steps", "must be set"),
    ("Schedule", f"{LR}.type=power", f"{LR}.power.initial_learning_rate", "must be set"),
    ("Schedule", f"{OPT}.warmup.type=linear", f"{OPT}.warmup.linear.warmup_steps", "must be set"),
    ("Schedule", f"{OPT}.warmup.type=polynomial", f"{OPT}.warmup.polynomial.warmup_steps", "must be set"),
    ("PiecewiseSchedule", f"{LR}={{type: stepwise, stepwise: {{boundaries: [2, 1], values: [1, 2, 3]}}}}", f"{LR}.stepwise.boundaries", "got [2, 1], expected strictly increasing steps"),
    ("PiecewiseSchedule", f"{LR}={{type: stepwise, stepwise: {{boundaries: [2, 2], values: [1, 2, 3]}}}}", f"{LR}.stepwise.boundaries", "got [2, 2], expected strictly increasing steps"),
    ("PiecewiseSchedule", f"{LR}={{type: stepwise, stepwise: {{boundaries: [1], values: [1]}}}}", f"{LR}.stepwise.values", "got 1 values for 1 boundaries\nallowed: 2 values"),
    ("PiecewiseSchedule", f"{LR}={{type: step_cosine_with_offset, step_cosine_with_offset: {{boundaries: [1, 2], values: [1]}}}}", f"{LR}.step_cosine_with_offset.values", "got 1 values for 2 boundaries\nallowed: 2 values"),
    ("StepCosineLr", f"{LR}={{type: step_cosine_with_offset, step_cosine_with_offset: {{boundaries: [1], values: [1]}}}}", f"{LR}.step_cosine_with_offset.boundaries", "got [1], allowed: at least two"),
    ("TrainerConfig", f"trainer.train_epochs=0,trainer.train_steps=6,{LR}={{type: step_cosine_with_offset, step_cosine_with_offset: {{boundaries: [0, 3], values: [1, 2], offset: 2}}}}", f"{LR}.step_cosine_with_offset.boundaries", "the rate is NaN from step 5 on, but train_steps is 6"),
    ("ResNetCifarConfig", f"{RESNET},task.model.depth=21", "task.model.depth", "got 21, expected 6n+2 in version 1\nnearest: 20 and 26"),
    ("ResNetCifarConfig", f"{RESNET},task.model.version=2,task.model.depth=21", "task.model.depth", "got 21, expected 9n+2 in version 2\nnearest: 20 and 29"),
    ("TaskConfig", "task.train_data={is_training: false, augment: none}", "task.train_data.is_training", "must be true in train_data"),
    ("TaskConfig", "task.train_data.is_training=null", "task.train_data.is_training", "must be true in train_data"),
    ("TaskConfig", "task.validation_data.is_training=true", "task.validation_data.is_training", "must be false in validation_data"),
    ("ImageModelConfig", "task.model.input_size=[8, 8]", "task.model.input_size", "got [8, 8], expected height, width and channels"),
    ("ResNetConfig", "task.model={name: resnet, version: 2.0, zero_init_last_bn: true}", "task.model.zero_init_last_bn", "blocks of version 2 do not end in batch normalization"),
    ("ResNetConfig", "task.model={name: resnet, depth: 18, weights: imagenet}", "task.model.weights", "none are published for depth 18\nallowed: depth 50, or the path of a checkpoint; `name: application` has more networks"),
    ("ResNetConfig", "task.model={name: resnet, version: 2.0, weights: imagenet}", "task.model.weights", "got 'imagenet' with version 2, but Model Garden's networks are of version 1.5"),
    ("ResNetConfig", "task.model={name: resnet, weights: a.h5}", "task.model.weights", "got 'a.h5', expected a checkpoint of Model Garden\nfor weights files of Keras, use `name: application`"),
    ("ResNetConfig", "task.model={name: resnet, weights: imagenet, zero_init_last_bn: true}", "task.model.zero_init_last_bn", "has no effect with weights\nremove it"),
    ("ResNetConfig", "task.model={name: resnet, weights: imagenet, input_size: [32, 32, 1]}", "task.model.input_size", "got 1 as the number of channels, expected 3"),
    ("ApplicationConfig", "task.model={name: application, weights: runs/a}", "task.model.weights", "got 'runs/a'\nallowed: imagenet, or the path of a file that ends with .h5, .hdf5, .keras"),
    ("ApplicationConfig", "task.model={name: application, application: Xception, input_size: [64, 80, 3]}", "task.model.input_size", "got images of 64 × 80 pixels, but Xception expects at least 71 × 71"),
    ("ApplicationConfig", "task.model={name: application, application: VGG16, input_size: [32, 32, 4]}", "task.model.input_size", "got 4 as the number of channels, expected 3"),
    ("ImageClassificationConfig", "task={init_checkpoint: runs/a, model: {name: application, weights: imagenet}}", "task.init_checkpoint", "is set, and so is model.weights"),
    ("ImageDataConfig", "task.train_data.crop_area_range=[0.5]", "task.train_data.crop_area_range", "got [0.5], expected the minimum and maximum fraction"),
    ("ImageDataConfig", "task.train_data.source=tfds", "task.train_data.tfds_name", "is not set; for example, imagenet2012"),
    ("ImageDataConfig", "task.train_data.max_bad_records=1", "task.train_data.max_bad_records", "is read only by source 'tfrecord' or 'image_folder' or 'image_csv', got source 'digits'"),
    ("MixupAndCutmix", "task.train_data.mixup_and_cutmix={mixup_alpha: 0.0, cutmix_alpha: 0.0}", "task.train_data.mixup_and_cutmix.mixup_alpha", "got 0, and cutmix_alpha is also 0"),
    ("ImageClassificationConfig", "task.validation_data.source=''", "task.validation_data.source", "unknown data source ''"),
    ("TranslationDataConfig", "task.train_data={batch_tokens: 100, global_batch_size: 8}", "task.train_data.batch_tokens", "global_batch_size is also set, to 8; set only one"),
    ("TranslationDataConfig", "task.validation_data.batch_tokens=100", "task.validation_data.batch_tokens", "is not supported in evaluation"),
    ("TranslationDataConfig", "task.train_data={batch_shapes: 4, static_batch: true}", "task.train_data.batch_shapes", "got 4, but with static_batch: true all batches have one shape\nremove one of them"),
    ("TranslationDataConfig", "task.train_data={batch_shapes: 4, batch_tokens: 0, global_batch_size: 8}", "task.train_data.batch_shapes", "got 4, but batch_tokens is not set\nset batch_tokens instead of global_batch_size"),
    ("TranslationDataConfig", "task.validation_data.batch_shapes=4", "task.validation_data.batch_shapes", "is not supported in evaluation; set static_batch: true instead"),
    ("TranslationDataConfig", "task.train_data.synthetic.features={}", "task.train_data.synthetic.features", "is not supported in translation"),
    ("TranslationDataConfig", "task.train_data={source: token_records, max_bad_records: 1}", "task.train_data.max_bad_records", "is read only by source 'parallel_text', got source 'token_records'"),
    ("TranslationConfig", "task.model.name=''", "task.model.name", "is not set\nallowed: transformer"),
    ("TranslationConfig", "task.train_data.source=txt", "task.train_data.source", "unknown data source 'txt'"),
    ("TranslationConfig", "task.model={padded_decode: true, decode_max_length: 8},task.validation_data.static_batch=false", "task.validation_data.static_batch", "is false, but model.padded_decode requires true"),
    ("TransformerConfig", "task.model.embedding_width=7", "task.model.embedding_width", "got 7, expected an even number"),
    ("TransformerConfig", "task.model.encoder.num_attention_heads=7", "task.model.encoder.num_attention_heads", "got 7, expected a divisor of the width"),
    ("TransformerConfig", "task.model.padded_decode=true,task.validation_data.static_batch=true", "task.model.decode_max_length", "is not set, but padded_decode requires it"),
    ("RecommendationDataConfig", "task.train_data={source: lists, max_bad_records: 1}", "task.train_data.source", "unknown data source 'lists'"),
    ("RecommendationConfig", "task.model.name=''", "task.model.name", "is not set\nallowed: "),
    ("KerasConfig", "task={name: keras}", "task.train_data.source", "is not set\nallowed: array_record, arrays, breast_cancer"),
    ("KerasModelConfig", "task={name: keras}", "task.model.build", "is not set; set it, file or layers"),
    ("KerasDataConfig", "task={name: keras, train_data: {source: npz, global_batch_size: 1}}", "task.train_data.input_path", "is not set; for example, train.npz"),
    ("NeuMFConfig", "task.model.layers=[33, 8]", "task.model.layers", "got [33, 8], expected an even number first"),
    ("NeuMFConfig", "task.model={kind: gmf, mlp_regularization: 0.1}", "task.model.mlp_regularization", "got 0.1, which has no effect with kind: gmf"),
    ("NeuMFConfig", "task.model={kind: mlp, mf_regularization: 0.1}", "task.model.mf_regularization", "got 0.1, which has no effect with kind: mlp"),
    ("TabularConfig", "task.targets=[]", "task.targets", "is empty; list the columns to predict"),
    ("FeaturesConfig", "task.features.categorical=[sex, age]", "task.features.categorical", "age is listed twice"),
    ("TableDataConfig", "task.train_data.function=a:b", "task.train_data.function", "is read only by source 'arrays', got source 'diabetes'"),
    ("TableSplitConfig", "task.split.column=part", "task.split.column", "got both of column and fractions"),
    ("ImageSplitConfig", "task.split={fractions: {train: 1}, hash_of: [directory], stratified: true}", "task.split.stratified", "cannot be combined with hash_of"),
    ("TextClassificationConfig", "task.label_column=text", "task.label_column", "'text' is also text.column"),
    ("TextColumnConfig", "task.text={tokenizer: subwords, max_length: 1}", "task.text.max_length", "got 1, expected at least 2"),
    ("TextTransformerConfig", "task.model={name: transformer, num_attention_heads: 7}", "task.model.num_attention_heads", "got 7, expected a divisor"),
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
        ("TabularConfig", "FeaturesConfig", "TableDataConfig", "TableSplitConfig"), "diabetes"
    ),
    **dict.fromkeys(
        ("TextClassificationConfig", "TextColumnConfig", "TextTransformerConfig", "BertConfig"),
        "text_language",
    ),
}


@pytest.mark.parametrize(("of", "said", "path", "message"), CASES)
def test_contradictory_settings_are_rejected(
    refused: Callable[..., Any], of: str, said: str, path: str, message: str
) -> None:
    problems = refused(experiment=EXPERIMENTS.get(of, "digits"), params_overrides=(said,))

    blamed = [problem for problem in problems if problem.message.startswith(message)]
    assert [(p.path, len(blamed)) for p in blamed] == [(path, 1)]


def test_contradiction_is_attributed_to_explicitly_written_settings(
    refused: Callable[..., Any],
) -> None:
    (problem, other) = refused(flags=(("--x", "task.train_data.is_training", "false"),))

    assert (other.path, str(other.origin)) == ("task.train_data.is_training", "--x")
    lines = (shipped_root() / "experiments/digits.yaml").read_text().splitlines()
    line = 1 + next(n for n, text in enumerate(lines) if "augment: crop" in text)
    assert str(problem.origin) == f"experiments/digits.yaml:{line}"


def test_every_class_with_checks_has_a_test_case() -> None:
    for registry in (TASKS, IMAGE_MODELS, TEXT_MODELS, RATING_MODELS, TABLE_MODELS):
        for entry in registry.entries():
            entry.load_config()

    def below(cls: Any) -> set[Any]:
        return {cls}.union(*(below(sub) for sub in cls.__subclasses__()))

    checking = {
        cls.__name__ for cls in below(Config) - {Config}
        if "problems" in vars(cls) and cls.__module__.startswith("orbit_runner.")
    }  # fmt: skip
    # Present only in a process that has read an experiment of Model Garden; it turns checks off.
    checking.discard("PartialRuntime")
    assert checking - {case[0] for case in CASES} == set()


@pytest.mark.parametrize(
    ("said", "replicas"),
    [
        ("runtime.distribution_strategy=off", 1),
        ("runtime.num_gpus=1", 1),
        ("runtime.distribution_strategy=mirrored", 1),
        ("runtime.distribution_strategy=mirrored,runtime.num_gpus=4", 4),
        ("runtime.distribution_strategy=mirrored,runtime.num_virtual_devices=3", 3),
        (
            "runtime.distribution_strategy=mirrored,runtime.num_gpus=1,runtime.num_virtual_devices=2",
            2,
        ),
        ("runtime.distribution_strategy=mirrored,runtime.num_gpus=-1", None),
    ],
)
def test_replica_count_follows_from_strategy_and_devices(
    over_digits: Callable[..., Any], said: str, replicas: int | None
) -> None:
    assert over_digits(params_overrides=(said,)).runtime.num_replicas() == replicas


@pytest.mark.parametrize(
    ("said", "replicas", "expected"),
    [
        ("", 1, []),
        ("", 4, []),
        ("", 3, [("train_data", "got 64, which is not a multiple of 3 (3 replicas)\nnearest: 63 and 66"),
                 ("validation_data", "got 128, which is not a multiple of 3 (3 replicas)\nnearest: 126 and 129")]),
        ("trainer.gradient_accumulation_steps=3", 2,
         [("train_data", "got 64, which is not a multiple of 6 (2 replicas × 3 accumulation steps)\nnearest: 60 and 66")]),
        ("task.validation_data.global_batch_size=3", 4,
         [("validation_data", "got 3, which is not a multiple of 4 (4 replicas)\nnearest: 4")]),
    ],
)  # fmt: skip
def test_batch_size_must_be_a_multiple_of_replica_count(
    over_digits: Callable[..., Any], said: str, replicas: int, expected: list[tuple[str, str]]
) -> None:
    config = over_digits(params_overrides=(said,))

    assert [*batch_problems(config, replicas)] == [
        (f"task.{section}.global_batch_size", message) for section, message in expected
    ]


@pytest.mark.parametrize(
    ("experiment", "setting"),
    [
        ("digits", "max_bad_images: 1"),
        ("diabetes", "function: 'a:b'"),
        ("ncf_movielens", "max_bad_records: 1"),
        ("transformer_multi30k", "max_bad_records: 1"),
    ],
)
def test_unknown_source_is_the_only_problem(
    refused: Callable[..., Any], experiment: str, setting: str
) -> None:
    text = f"task.train_data={{source: nowhere, {setting}}}"

    (problem,) = refused(experiment=experiment, params_overrides=(text,))

    assert problem.path == "task.train_data.source"


@pytest.mark.parametrize("mode", MODES)
def test_only_the_batches_of_the_mode_are_checked(
    over_digits: Callable[..., Any], mode: str
) -> None:
    config = over_digits()

    sections = {path.split(".")[1] for path, _ in batch_problems(config, 3, mode)}
    assert ("train_data" in sections) == (mode in TRAINING)
    assert ("validation_data" in sections) == (mode in EVALUATING)


@pytest.mark.parametrize(
    ("said", "path", "message"),
    [
        (
            "task.train_data.enable_tf_data_service=true",
            "task.train_data.enable_tf_data_service",
            "has no effect without an address\n"
            "set task.train_data.tf_data_service_address, or runtime.tf_data_service",
        ),
        (
            "runtime.distribution_strategy=parameter_server,trainer.train_tf_function=false,"
            "trainer.train_tf_while_loop=false",
            "trainer.train_tf_function",
            "allowed: true under `parameter_server`",
        ),
        (
            "runtime.distribution_strategy=parameter_server,task.train_data.source=image_folder,"
            "task.train_data.data_dir=/nowhere,task.train_data.max_bad_images=3",
            "task.train_data.max_bad_images",
            "allowed: 0 under `parameter_server`",
        ),
        (
            "runtime.distribution_strategy=parameter_server,"
            "task.train_data.enable_tf_data_service=true,"
            "task.train_data.tf_data_service_address=grpc://a:1",
            "task.train_data.enable_tf_data_service",
            "allowed: false under `parameter_server`",
        ),
    ],
)
def test_contradictory_sections_are_rejected(
    over_digits: Callable[..., Any], said: str, path: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        over_digits(params_overrides=(said,))

    messages = [problem.message for problem in caught.value.problems if problem.path == path]
    assert len(messages) == 1
    assert message in messages[0]
