"""The flags of the drivers before Model Garden's `train.py`, and the settings that replaced them.

`docs/old_flags.md` shows these tables; a test compares the two. Imported only to explain a flag
that the parser does not know.
"""
# ruff: noqa: E501 (one row per line)

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

NONE = "—"


@dataclasses.dataclass(frozen=True)
class Row:
    """A flag of the older drivers."""

    name: str  # without dashes; or the name of an environment variable
    new: str  # dotted path of a setting, a flag with its dashes, or `NONE`
    note: str  # Markdown


def _rows(text: str) -> tuple[Row, ...]:
    lines = (line for line in text.splitlines() if line)
    return tuple(Row(*(cell.strip() for cell in line.split("|", 2))) for line in lines)


COMMON = _rows("""
data_dir | task.*_data.data_dir | `--data_dir=DIR` sets both; `runner data get NAME` downloads the files
model_dir | --model_dir | `runs/NAME/TIME` by default
clean | — | nothing deletes a run; use another `--model_dir`, or resume in the old one
train_epochs | trainer.train_epochs | instead of `trainer.train_steps`; may be a fraction
epochs_between_evals | trainer.validation_epochs | may be a fraction; or `trainer.validation_interval`, in steps
stop_threshold | trainer.early_stopping.threshold | with `trainer.early_stopping.metric` and `trainer.early_stopping.metric_comp`
batch_size | task.*_data.global_batch_size | the batch of all replicas together, as before; training and evaluation each have their own
num_gpus | runtime.num_gpus | GPUs of each worker; 0: the CPU, -1: all GPUs
run_eagerly | runtime.run_eagerly |
hooks | — | there are no estimators; progress, `metrics.jsonl` and TensorBoard summaries are always written
export_dir | trainer.export_subdir | below `--model_dir`; or `runner export RUN --to=DIR` at any time
distribution_strategy | runtime.distribution_strategy | the same names; `default` is `one_device` or `mirrored`
num_parallel_calls | — | a batch is made as a whole, in threads that tf.data chooses; see `task.*_data.autotune_algorithm`
inter_op_parallelism_threads | runtime.inter_op_threads | 0: TensorFlow decides
intra_op_parallelism_threads | runtime.intra_op_threads | 0: one for each core; the number changes the last bits of the weights
use_synthetic_data | task.*_data.source | `synthetic`; `--config_file=configs/data/synthetic.yaml` sets it in any experiment
max_train_steps | trainer.train_steps |
dtype | runtime.mixed_precision_dtype | `fp32` is `float32`, `fp16` is `float16`, `bf16` is `bfloat16`; weights stay float32 in each
loss_scale | runtime.loss_scale | a number or `dynamic`; by default `dynamic` with float16, and none otherwise
fp16_implementation | — | always `keras`; the graph rewrite was for sessions and optimizers of TensorFlow 1
all_reduce_alg | runtime.all_reduce_alg |
num_packs | runtime.num_packs |
tf_gpu_thread_mode | runtime.gpu_thread_mode | sets `TF_GPU_THREAD_MODE`
per_gpu_thread_count | runtime.per_gpu_thread_count | sets `TF_GPU_THREAD_COUNT`
datasets_num_private_threads | runtime.dataset_num_private_threads |
datasets_num_parallel_batches | — | it belonged to `map_and_batch`, which TensorFlow has deprecated; a batch is made as a whole here
training_dataset_cache | — | arrays are in memory anyway; `task.validation_data.cache` caches the batches of evaluation
tf_data_experimental_slack | — | not supported; `task.*_data.prefetch_buffer_size` sets how many batches are made ahead
enable_xla | runtime.enable_xla | compiles the forward and backward pass, not clusters of single ops
data_format | — | networks are channels-last; on GPUs, TensorFlow's layout optimizer changes convolutions to channels-first where cuDNN is faster that way
log_steps | trainer.summary_interval | steps/s is part of each record
benchmark_logger_type | — | `metrics.jsonl` and `run.json` in the run directory hold what benchmark loggers wrote
benchmark_test_id | — | `run.json` has the command, versions, devices and the git revision; `--model_dir` names the run
benchmark_log_dir | — | the run directory
gcp_project | — | nothing is uploaded
bigquery_data_set | — | nothing is uploaded
bigquery_run_table | — | nothing is uploaded
bigquery_run_status_table | — | nothing is uploaded
bigquery_metric_table | — | nothing is uploaded
tpu | runtime.tpu | with `runtime.distribution_strategy: tpu`
tpu_zone | runtime.tpu_zone |
tpu_gcp_project | runtime.tpu_project |
num_tpu_shards | — | the TPU reports its number of cores; `runtime.num_cores_per_replica` sets how many share a replica
worker_hosts | runtime.worker_hosts | or `TF_CONFIG`, Slurm, …: see [clusters](clusters.md)
task_index | runtime.task_index |
""")

VARIABLES = _rows("""
TF_ENABLE_WINOGRAD_NONFUSED | runtime.enable_winograd_nonfused | TensorFlow 2.20 still reads it; it is on by default, as drivers set it, so only `false` changes anything
TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT | runtime.batchnorm_spatial_persistent |
TF_GPU_THREAD_MODE | runtime.gpu_thread_mode |
TF_GPU_THREAD_COUNT | runtime.per_gpu_thread_count |
""")

IMAGES = _rows("""
mode | --mode |
dataset | task.*_data.source |
model_type | task.model.name |
model | task.model.name |
resnet_size | task.model.depth | for CIFAR, a size of `resnet_version` 2 was a network of basic blocks (6n+2), which is not supported: version 2 has bottlenecks here (9n+2)
resnet_version | task.model.version | for CIFAR, see `resnet_size`
enable_eager | — | TensorFlow 2 is eager, and steps run as graphs; `runtime.run_eagerly` runs them line by line, for debugging
skip_eval | --mode | `train`
eval_only | --mode | `eval`
use_train_and_evaluate | --mode | `train_and_eval`
set_learning_phase_to_train | — | training and evaluation steps set it themselves
explicit_gpu_placement | runtime.distribution_strategy | `one_device`
use_trivial_model | — | to measure the input pipeline, set `task.model.name: mlp`
report_accuracy_metrics | — | always on; metrics are accumulated on the device
use_tensor_lr | — | always on: the learning rate is a function of the step inside the graph
enable_tensorboard | — | summaries are always written
profile_steps | — | there is no profiler; TensorBoard can capture a profile of a running process
profiler_port | — | there is no profiler server
train_steps | trainer.train_steps |
batchnorm_spatial_persistent | runtime.batchnorm_spatial_persistent | off by default
enable_get_next_as_optional | — | the last batch of an evaluation has only the examples that are left
enable_checkpoint_and_export | trainer.checkpoint_interval | checkpoints are always kept; `trainer.export_subdir` exports at the end
steps_per_loop | trainer.steps_per_loop | `auto` by default
use_tf_while_loop | trainer.train_tf_while_loop |
use_tf_function | trainer.train_tf_function | and `trainer.eval_tf_function`
single_l2_loss_op | task.losses.l2_weight_decay | one term over all weights that decay
weight_decay | task.losses.l2_weight_decay |
label_smoothing | task.losses.label_smoothing |
optimizer | trainer.optimizer_config.optimizer.type |
enable_lars | trainer.optimizer_config.optimizer.type | `lars`, with `trainer.optimizer_config.optimizer.lars.momentum` and others
initial_learning_rate_per_sample | trainer.optimizer_config.learning_rate.exponential.initial_learning_rate | multiply by the batch size
lr_decay_factor | trainer.optimizer_config.learning_rate.exponential.decay_rate |
num_epochs_per_decay | trainer.optimizer_config.learning_rate.exponential.decay_steps | in steps
pretrained_filepath | task.init_checkpoint |
pretrained_model_checkpoint_path | task.init_checkpoint |
fine_tune | trainer.fine_tuning.freeze | the names of the layers to freeze; see [Fine-tuning](fine_tuning.md)
image_bytes_as_serving_input | — | an export has both signatures, one for image bytes and one for tensors
pruning_method | — | pruning needs the model optimization toolkit, which is not part of this package
pruning_initial_sparsity | — | see `pruning_method`
pruning_final_sparsity | — | see `pruning_method`
pruning_begin_step | — | see `pruning_method`
pruning_end_step | — | see `pruning_method`
pruning_frequency | — | see `pruning_method`
clustering_method | — | see `pruning_method`
download | — | `runner data get mnist`; a run never downloads
train_batch_size | task.train_data.global_batch_size |
eval_batch_size | task.validation_data.global_batch_size |
precision | runtime.mixed_precision_dtype |
save_checkpoint_freq | trainer.checkpoint_interval | in steps
strategy_type | runtime.distribution_strategy | `multiworker` is `multi_worker_mirrored`
""")

TRANSFORMER = _rows("""
param_set | task.model.preset |
train_steps | trainer.train_steps |
steps_between_evals | trainer.validation_interval |
validation_steps | trainer.validation_steps | -1: all
max_length | task.*_data.max_seq_length |
static_batch | task.*_data.static_batch |
vocab_file | task.sentencepiece_model_path | made from the training text if the file does not exist
bleu_source | task.validation_data.input_path | the first of its two files
bleu_ref | task.validation_data.input_path | the second of its two files
decode_batch_size | task.validation_data.global_batch_size |
decode_max_length | task.model.decode_max_length |
padded_decode | task.model.padded_decode |
mode | --mode | `train` and `eval`; instead of `predict` there is `runner predict`
use_ctl | — | there is only one loop, Orbit's
enable_time_history | — | steps/s is part of each record
enable_tensorboard | — | summaries are always written
enable_metrics_in_training | — | always on
enable_mlir_bridge | — | TensorFlow decides how graphs reach XLA
enable_checkpointing | trainer.checkpoint_interval | checkpoints are always kept
save_weights_only | — | a checkpoint holds everything that resuming needs; `runner export` writes the model alone
raw_dir | — | `runner data get wmt17_ende --dir=DIR`
search | task.vocab_size | SentencePiece makes a vocabulary of exactly that size
translation | — | `runner --mode=eval` reports BLEU; the command `sacrebleu` scores any file
reference | — | see `translation`
bleu_variant | task.bleu_lowercase | `true` for `uncased`
text | — | `runner predict`
file | — | `runner predict`
file_out | — | `runner predict`, with its output redirected into a file
""")

NCF = _rows("""
dataset | task.*_data.variant | `ml-1m` is `1m` now, and `ml-20m` is `20m`
download_if_missing | — | `runner data get ml-1m`; a run never downloads
eval_batch_size | task.validation_data.global_batch_size |
num_factors | task.model.mf_dim |
layers | task.model.layers |
mf_regularization | task.model.mf_regularization |
mlp_regularization | task.model.mlp_regularization | was one number for each layer; now one number holds for all layers
num_neg | task.train_data.num_negatives |
num_negative_samples | task.train_data.num_negatives |
learning_rate | trainer.optimizer_config.learning_rate.constant.learning_rate |
beta1 | trainer.optimizer_config.optimizer.adam.beta_1 |
beta2 | trainer.optimizer_config.optimizer.adam.beta_2 |
epsilon | trainer.optimizer_config.optimizer.adam.epsilon |
hr_threshold | trainer.early_stopping.threshold | with `trainer.early_stopping.metric: hr_at_10` and `trainer.early_stopping.metric_comp: higher`
early_stopping | trainer.early_stopping | null: off
seed | runtime.seed | the seed of everything random in a run
constructor_type | — | a keyed sampler draws the negatives, and needs no tables made in advance
train_dataset_path | task.train_data.data_dir | the published files are read directly; no records are written in advance
eval_dataset_path | task.validation_data.data_dir | see `train_dataset_path`
input_meta_data_path | — | the number of users and items is read from the files
meta_data_file_path | — | see `input_meta_data_path`
num_train_epochs | trainer.train_epochs | new negatives are drawn in each epoch
train_prebatch_size | task.train_data.global_batch_size |
eval_prebatch_size | task.validation_data.global_batch_size |
ml_perf | — | ranks are exact, and ties count against the model
output_ml_perf_compliance_logging | — | no logs for that benchmark are written
keras_use_ctl | — | there is only one loop, Orbit's
""")

MODEL_GARDEN = _rows("""
experiment | --experiment | a name that `runner list` shows, a file, or a run
mode | --mode | `train_and_validate` was another name for a loop with an evaluator beside it; see [clusters](clusters.md)
model_dir | --model_dir |
config_file | --config_file | several; the last wins
params_override | --params_override |
gin_file | --gin_file |
gin_params | --gin_params |
gin_param | --gin_param |
tpu | --tpu |
tf_data_service | --tf_data_service |
tpu_platform | runtime.tpu_platform | `--tpu_platform`
enable_async_checkpointing | --enable_async_checkpointing |
pretrain_steps | --pretrain_steps | with `--mode=continuous_train_and_eval`
tfhub_handle | — | an error that names `runner export`, which writes a SavedModel
tflex_output_uri | — | an error; the flag belongs to a launcher of one company
""")

# Names of the drivers in messages. The parser knows Model Garden's own flags.
_DRIVERS = {
    "all drivers": COMMON,
    "image classification": IMAGES,
    "the Transformer": TRANSFORMER,
    "NCF": NCF,
}
_SEE = re.compile(r"see `(\w+)`")
_LINK = re.compile(r"\[([^\]]*)\]\((\w+\.md)\)")
# ImageNet sizes, for which version 2 is the same network as before.
_IMAGENET_SIZES = (18, 34, 50, 101, 152, 200)
_SECTIONS = ("train_data", "validation_data")


def explain_old_flag(name: str, others: Sequence[str] = ()) -> str:
    """Returns one or more lines that tell what replaced a flag, or "" if the flag is unknown.

    `name` has no dashes. `others` are all arguments that the parser does not know.
    """
    descriptions = {
        driver: _describe_row(row)
        for driver, rows in _DRIVERS.items()
        for row in rows
        if row.name == name
    }
    if not descriptions:
        return ""
    start = f"--{name} is a flag of the older drivers; in runner:"
    size = _size_problem(others) if name in ("resnet_size", "resnet_version") else ""
    if size:
        return f"--{name} is a flag of the older drivers\n{size}"
    if len({*descriptions.values()}) == 1:
        return f"{start} {next(iter(descriptions.values()))}"
    return "\n".join([start, *(f"  of {driver}: {text}" for driver, text in descriptions.items())])


def _describe_row(row: Row) -> str:
    note = _LINK.sub(r"\1 (docs/\2)", row.note).replace("*_data", _SECTIONS[0])
    for other_name in _SEE.findall(note):
        note = next(
            (
                other_row.note
                for rows in _DRIVERS.values()
                for other_row in rows
                if other_row.name == other_name
            ),
            note,
        )
    if row.new == NONE:
        return f"no equivalent ({note})"
    dashes = "" if row.new.startswith("--") else "--"
    names = [row.new]
    if "*_data" in row.new:
        names = [row.new.replace("*_data", section) for section in _SECTIONS]
    text = " and ".join(f"{dashes}{name}" for name in names)
    return f"{text} ({note})" if note else text


def _size_problem(others: Sequence[str]) -> str:
    """Returns why a ResNet size of version 2 cannot be used here, or "" if it can."""
    given = {}
    for index, argument in enumerate(others):
        name, equals, value = argument.lstrip("-").partition("=")
        following = others[index + 1] if index + 1 < len(others) else ""
        given[name] = value if equals else following
    if given.get("resnet_version") != "2" or not given.get("resnet_size", "").isdigit():
        return ""
    size = int(given["resnet_size"])
    if size % 6 != 2 or size in _IMAGENET_SIZES:
        return ""
    return (
        f"resnet_size {size} of version 2 is a network of basic blocks (6n+2) for CIFAR, which "
        "resnet_cifar does not support\n"
        "its version 2 has bottlenecks (9n+2): for ResNet-164, use --task.model.version=2 "
        "--task.model.depth=164"
    )
