"""The settings of one input pipeline."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from orbit_runner.config.schema.base import Config, field
from orbit_runner.config.schema.modes import EVALUATING, TRAINING

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig

_NO_TFDS = "image_classification alone reads TFDS"
_OWN_READER = "image and label are read from the files, and images are decoded as late as can be"
_NO_FILES = "the order of examples is computed from the seed, so files are not interleaved"
_SECTIONS = {"train_data": TRAINING, "validation_data": EVALUATING}
_NO_SERVICE = "each pipeline has a job of its own, so that the order stays exact"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticConfig(Config):
    """The settings of `source: synthetic`."""

    kind: str = field(
        "random", allowed=("constant", "random"), help="the same value, or seeded random ones"
    )
    num_examples: int = field(1024, ge=1, le=10**8, help="size of the set")
    features: Mapping[str, Any] | None = field(
        None,
        help="nested names, each leaf {shape, dtype, low, high, value}; the task's own where unset",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Config):
    """A dataset and its input pipeline: the fields of Model Garden's `DataConfig`, and more."""

    source: str = field("", help="the data set: a name that `runner list` shows")
    data_dir: str = field("", help="folder of the data set's files")
    split: str = field(
        "", allowed=("", "train", "test", "all"), help="part of the set; by is_training where unset"
    )
    augment: str = field(
        "none", allowed=("none", "crop", "crop_flip"), help="change of the training images"
    )
    augment_padding: int = field(4, ge=0, le=1024, help="pixels of zeros around an image to crop")
    synthetic: SyntheticConfig = field(factory=SyntheticConfig, help="for `source: synthetic`")
    input_path: str | list[str] = field(
        "", help="files, or patterns, in place of the source's usual names"
    )
    tfds_name: str = field("", help="name of a TFDS data set", unsupported=_NO_TFDS)
    tfds_split: str = field("", help="split of a TFDS data set", unsupported=_NO_TFDS)
    global_batch_size: int = field(0, ge=0, le=2**24, help="examples of one step on all replicas")
    is_training: bool | None = field(None, help="repeat, shuffle and augment")
    drop_remainder: bool = field(
        True,
        help="leave out an evaluation's last, part-filled batch; training repeats and has none",
    )
    shuffle_buffer_size: int = field(
        100,
        ge=0,
        help="0 or 1: in order; more: each epoch is a permutation of the whole set, of `tfrecord` "
        "one of all blocks of 64 records and then within that many",
    )
    cache: bool = field(False, help="keep evaluation batches in memory")
    on_device: bool | None = field(
        None,
        help="keep the set in memory and make batches in the step, without a pipeline; "
        "null: where it fits",
    )
    cycle_length: int | None = field(None, help="files read at once", unsupported=_NO_FILES)
    block_length: int = field(1, help="records read from one file at once", unsupported=_NO_FILES)
    ram_budget: int | None = field(None, ge=1, le=2**20, help="GiB that tf.data may buffer")
    deterministic: bool | None = field(None, help="tf.data keeps the order of batches")
    sharding: bool = field(
        True,
        help="share out the set",
        unsupported="each pipeline computes its own slice of a batch",
    )
    enable_tf_data_service: bool = field(False, help="have tf.data services make the batches")
    tf_data_service_address: str | None = field(
        None, help="their addresses, grpc://host:port parted by commas; runtime.tf_data_service"
    )
    tf_data_service_job_name: str | None = field(None, help="its job", unsupported=_NO_SERVICE)
    tfds_data_dir: str = field("", help="folder of TFDS", unsupported=_NO_TFDS)
    tfds_as_supervised: bool = field(False, help="pairs from TFDS", unsupported=_OWN_READER)
    tfds_skip_decoding_feature: str = field("", help="raw features", unsupported=_OWN_READER)
    enable_shared_tf_data_service_between_parallel_trainers: bool = field(
        False, help="share a service", unsupported=_NO_SERVICE
    )
    apply_tf_data_service_before_batching: bool = field(
        False, help="service before batching", unsupported=_NO_SERVICE
    )
    trainer_id: str | None = field(None, help="trainer at a service", unsupported=_NO_SERVICE)
    seed: int | None = field(
        None, le=2**32 - 1, help="seed of order and augmentation; runtime.seed if unset"
    )
    prefetch_buffer_size: int | None = field(
        None, ge=0, le=10**6, help="batches made ahead; tf.data decides where unset"
    )
    autotune_algorithm: str | None = field(
        None,
        allowed=(None, "DEFAULT", "HILL_CLIMB", "GRADIENT_DESCENT", "MAX_PARALLELISM"),
        help="how tf.data tunes itself",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) for settings that contradict each other."""
        if self.source and self.global_batch_size == 0:
            yield "global_batch_size", "got 0, allowed: at least 1"
        for address in service_addresses(self):
            problem = service_problem(address)
            if problem:
                yield "tf_data_service_address", problem
        if self.is_training is False and self.augment != "none":
            yield "augment", f"got {self.augment!r} with is_training: false\nallowed: 'none'"


_SERVICE = re.compile(r"grpc://([^\s:/,\[\]]+|\[[^\s/,\[\]]+\]):\d{1,5}")


def service_addresses(config: DataConfig) -> tuple[str, ...]:
    """Returns the tf.data services of a section; empty if the section does not enable them."""
    if not getattr(config, "enable_tf_data_service", False):  # Custom tasks may lack a section.
        return ()
    return tuple(part.strip() for part in (config.tf_data_service_address or "").split(",") if part)


def service_problem(address: str) -> str:
    """Returns why an address is not of the form `grpc://host:port`, or "" if it is."""
    if _SERVICE.fullmatch(address):
        return ""
    return f"got {address!r}, expected grpc://host:port, or several parted by commas"


def input_paths(config: DataConfig) -> tuple[str, ...]:
    """Returns the paths in `input_path`, which is a list or a comma-separated string."""
    given = config.input_path
    parts = given.split(",") if isinstance(given, str) else [p for s in given for p in s.split(",")]
    return tuple(part.strip() for part in parts if part.strip())


def services_of(config: ExperimentConfig, mode: str) -> dict[str, str]:
    """Returns the services that a mode uses: `host:port` to the dotted path of the setting."""
    found = {address: path for path, address in _service_addresses(config, mode)}
    return {address.partition("://")[2]: path for address, path in found.items()}


def _service_addresses(config: ExperimentConfig, mode: str) -> Iterator[tuple[str, str]]:
    common = config.runtime.tf_data_service
    if common is not None:
        for address in common.split(","):
            yield "runtime.tf_data_service", address.strip()
        return
    for section, modes in _SECTIONS.items():
        if mode in modes:
            for address in service_addresses(getattr(config.task, section)):
                if not service_problem(address):  # A custom task may use another form.
                    yield f"task.{section}.tf_data_service_address", address
