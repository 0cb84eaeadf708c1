"""The settings of one input pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from orbit_runner.config.errors import Problem, no_effect, not_set
from orbit_runner.config.schema.base import (
    Config,
    GardenOnly,
    Rule,
    config_class,
    default_of,
    field,
)
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.weights import DATA_LOCATION, NEVER, in_training, uses_xla
from orbit_runner.errors import format_choices
from orbit_runner.registration import SourceTraits

if TYPE_CHECKING:
    from orbit_runner.registration import Registry
    from orbit_runner.utils.types import JsonObject

_NO_TFDS = GardenOnly("", "this task does not read TFDS", refused=True)
_OWN_READER = "image and label are read from the files, and images are decoded as late as possible"
_NO_FILES = "the order of examples is computed from the seed, so files are not interleaved"
_NO_SERVICE = "each pipeline has its own job, so that the order of batches is exact"


def source_field(registry: Registry | None) -> Any:
    """Declares the setting `source` of a task whose data sources are in a registry."""
    return field(
        "", help="name of the dataset; `runner list` shows all datasets", registry=registry
    )


def training_field(section: Callable[..., DataConfig], help: str = "training data") -> Any:
    """Declares the setting `train_data` of a task, a section of this class."""
    return field(factory=lambda: section(is_training=True), help=help)


def validation_field(section: Callable[..., DataConfig], help: str = "validation data") -> Any:
    """Declares the setting `validation_data`, which by default evaluates every example."""
    return field(factory=lambda: section(is_training=False, drop_remainder=False), help=help)


@config_class
class SyntheticConfig(Config):
    """The settings of `source: synthetic`."""

    num_examples: int = field(1024, ge=1, le=10**8, help="number of examples")


@config_class
class DataConfig(Config):
    """A dataset and its input pipeline: the fields of Model Garden's `DataConfig`, and more."""

    _rules: ClassVar[tuple[Rule, ...]] = (
        Rule("global_batch_size", lambda data: data.source and not data.global_batch_size,
             "got 0, allowed: at least 1", "out-of-range"),
        Rule("exclude", lambda data: data.is_training is False and data.exclude,
             "leaves out training examples; set it in train_data", "not-allowed"),
    )  # fmt: skip
    garden_only = GardenOnly.settings(
        tfds_name=_NO_TFDS,
        tfds_split=_NO_TFDS,
        cycle_length=GardenOnly(None, _NO_FILES, refused=True),
        block_length=GardenOnly(1, _NO_FILES, refused=True),
        sharding=GardenOnly(True, "each pipeline computes its own slice of a batch", refused=True),
        tf_data_service_job_name=GardenOnly(None, _NO_SERVICE, refused=True),
        tfds_data_dir=_NO_TFDS,
        tfds_as_supervised=GardenOnly(False, _OWN_READER, refused=True),
        tfds_skip_decoding_feature=GardenOnly("", _OWN_READER, refused=True),
        enable_shared_tf_data_service_between_parallel_trainers=GardenOnly(
            False, _NO_SERVICE, refused=True
        ),
        apply_tf_data_service_before_batching=GardenOnly(False, _NO_SERVICE, refused=True),
        trainer_id=GardenOnly(None, _NO_SERVICE, refused=True),
    )
    source: str = source_field(None)
    data_dir: str = field(
        "", path="dir", weights=DATA_LOCATION, help="directory of the dataset files"
    )
    split: str = field(
        "",
        allowed=("", "train", "test", "all"),
        help="split of the dataset; by default train or test, depending on is_training",
    )
    synthetic: SyntheticConfig = field(
        factory=SyntheticConfig, help="synthetic dataset, for `source: synthetic`"
    )
    input_path: str | list[str] = field(
        "",
        path="patterns",
        help="files or glob patterns, instead of the default file names of the source",
    )
    global_batch_size: int = field(
        0, ge=0, le=2**24, help="number of examples per step, over all replicas"
    )
    is_training: bool | None = field(
        None, help="repeat, shuffle and augment the data; by default true in train_data only"
    )
    drop_remainder: bool = field(
        True, help="drop the last, partial batch of an evaluation; training has no partial batches"
    )
    shuffle_buffer_size: int = field(
        100,
        ge=0,
        help="0 or 1: no shuffling; larger: full shuffle, or for `tfrecord` the window size in "
        "records",
    )
    exclude: list[str | int] = field(
        (),
        help="examples to leave out of training: a list of IDs that `runner batch --example=ID` "
        "accepts",
    )
    # A task may draw random numbers before the cache of its training data.
    cache: bool = field(False, weights=in_training(), help="cache evaluation batches in memory")
    # With XLA, steps that create their batches are compiled as a whole; the batches are the same.
    on_device: bool | None = field(
        None,
        weights=in_training(uses_xla),
        help="keep the dataset in memory and make batches inside the step, on CPUs only; null: if "
        "possible and at most 1 GiB",
    )
    # Speed, with the same order of batches. `deterministic: false` may change the order.
    ram_budget: int | None = field(
        None,
        ge=1,
        le=2**20,
        weights=NEVER,
        help="memory budget of tf.data's buffers in GiB; by default chosen by tf.data",
    )
    deterministic: bool | None = field(
        None, help="preserve the order of batches in tf.data; by default true"
    )
    enable_tf_data_service: bool = field(
        False,
        weights=in_training(uses_xla),
        role="service",
        help="use tf.data services to make the batches",
    )
    tf_data_service_address: str | None = field(
        None,
        weights=NEVER,
        role="service",
        help="comma-separated addresses grpc://host:port; by default runtime.tf_data_service",
    )
    seed: int | None = field(
        None,
        le=2**32 - 1,
        help="random seed for shuffling and augmentation; by default runtime.seed",
    )
    prefetch_buffer_size: int | None = field(
        None,
        ge=0,
        le=10**6,
        weights=NEVER,
        help="number of batches to prefetch; by default chosen by tf.data",
    )
    autotune_algorithm: str | None = field(
        None,
        allowed=(None, "DEFAULT", "HILL_CLIMB", "GRADIENT_DESCENT", "MAX_PARALLELISM"),
        weights=NEVER,
        help="algorithm that tunes tf.data's parallelism and buffer sizes",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields (field, message) for settings that contradict each other or the source."""
        yield from super().problems()
        yield from self._source_problems()

    @property
    def sources(self) -> Sequence[DataConfig]:
        """The sections that name the datasets: this one, or those of its mixture."""
        return (self,)

    @property
    def traits(self) -> SourceTraits:
        """What is declared about the source; of an unknown source, nothing."""
        if not self._is_source_known:
            return SourceTraits()
        traits: SourceTraits = source_registry(self).get(self.source).traits
        return traits

    @property
    def _is_source_known(self) -> bool:
        """Whether the source is one of the task's; the task reports a source that is not."""
        registry = source_registry(self)
        return registry is not None and self.source in registry

    def _source_problems(self) -> Iterator[Problem]:
        """Yields settings that the source requires, and those that it does not read."""
        is_mixed = len(self.sources) > 1
        for number, section in enumerate(self.sources):
            start = f"mixture[{number}]." if is_mixed else ""
            for name, example in section.traits.required:
                if not getattr(section, name):
                    yield not_set(f"{start}{name}", f"is not set; for example, {example}")
            for problem in section._unread_places():
                # What a source has from the whole section, another may read.
                if getattr(section, problem.path) != getattr(self, problem.path):
                    yield problem.below(f"mixture[{number}]")
        for problem in self.unread():
            value = getattr(self, problem.path)
            default = default_of(self.__dataclass_fields__[problem.path])
            if value != default and (value or default):  # Empty texts and lists mean the same.
                yield problem

    def unread(self) -> Iterator[Problem]:
        """Yields (field, message) for settings that the source does not read."""
        first, *others = ({p.path: p for p in part._unread_places()} for part in self.sources)
        yield from (first[path] for path in first if all(path in other for other in others))
        if self.traits.is_generated or not self._is_source_known:
            return
        read = {name for section in self.sources for name in section.traits.settings}
        for name, readers in _source_settings(source_registry(self)).items():
            if name not in read:
                by = format_choices(map(repr, readers))
                yield no_effect(name, f"is read only by source {by}, got source {self.source!r}")

    def _unread_places(self) -> Iterator[Problem]:
        """Yields (field, message) for settings that name the data of other sources."""
        for name, replacement in self.traits.instead:
            advice = f"set {replacement}" if replacement else "remove it"
            yield no_effect(name, f"is not read by `source: {self.source}`; {advice}")


def source_registry(section: DataConfig) -> Any:
    """Returns the registry of the sources that a section can name."""
    return section.__dataclass_fields__["source"].metadata["registry"]


def _source_settings(registry: Registry | None) -> dict[str, list[str]]:
    """Returns the settings that only some sources read, each with the names of these sources."""
    readers: dict[str, list[str]] = {}
    for entry in () if registry is None else registry.registered():
        for name in entry.traits.settings:
            readers.setdefault(name, []).append(entry.name)
    return readers


def service_addresses(config: DataConfig) -> tuple[str, ...]:
    """Returns the tf.data services of a section; empty if the section does not enable them."""
    if not getattr(config, "enable_tf_data_service", False):  # Custom tasks may lack a section.
        return ()
    return tuple(part.strip() for part in (config.tf_data_service_address or "").split(",") if part)


def input_paths(config: DataConfig) -> tuple[str, ...]:
    """Returns the paths in `input_path`, which is a list or a comma-separated string."""
    given = config.input_path
    parts = given.split(",") if isinstance(given, str) else [p for s in given for p in s.split(",")]
    return tuple(part.strip() for part in parts if part.strip())


def resolve_data_config(data: Any, runtime: RuntimeConfig, recoveries: int = 0) -> Any:
    """Returns a data section with its seed and its tf.data service set.

    The seed is that of `runtime` if the section has none of its own; the tf.data service is that of
    `runtime`, if there is one. Fields that the class of the section lacks are not set. `recoveries`
    is the number of rollbacks after training diverged: each changes the seed, because training
    would diverge again with the same order of examples.
    """
    changes: JsonObject = {}
    if hasattr(data, "seed"):
        changes["seed"] = seed_of(data, runtime) + 1_000_003 * recoveries
    if runtime.tf_data_service is not None and hasattr(data, "tf_data_service_address"):
        changes["enable_tf_data_service"] = True
        changes["tf_data_service_address"] = runtime.tf_data_service
    return data.replace(**changes) if changes else data


def seed_of(data: object, runtime: RuntimeConfig) -> int:
    """Returns the seed of a data section: its own, or that of `runtime`."""
    seed = getattr(data, "seed", None)
    return runtime.seed if seed is None else seed


def same_order_reason(data: object) -> str:
    """Returns why the order of examples does not depend on the seed, or "" if it does.

    `data` is the section of the training data, or None if the task has none.
    """
    if data is not None and not hasattr(data, "seed"):
        return "task.train_data has no seed"
    size = getattr(data, "shuffle_buffer_size", None)
    return f"task.train_data.shuffle_buffer_size is {size}" if size in (0, 1) else ""
