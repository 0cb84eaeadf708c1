"""Checks of `trainer.watch_interval` against the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig

_PATH = "trainer.watch_interval"


def watch_problems(config: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, message) if the steps of this runtime cannot be measured."""
    runtime = config.runtime
    if not config.trainer.watch_interval:
        return
    if runtime.traits.is_asynchronous:
        yield (
            _PATH,
            "workers do not wait for each other, so a step has no gradient and no update of its own"
            "\nallowed: 0 under `parameter_server`",
        )
    # Model Garden's experiments use XLA only on GPUs.
    compiles = runtime.enable_xla and (runtime.num_gpus != 0 or not config.is_official)
    if compiles or runtime.distribution_strategy == "tpu":
        used = "under `tpu`" if runtime.distribution_strategy == "tpu" else "with enable_xla"
        yield (
            _PATH,
            "XLA compiles a measured step to another program, which may change the last bits of "
            f"the weights\nallowed: 0 {used}",
        )
