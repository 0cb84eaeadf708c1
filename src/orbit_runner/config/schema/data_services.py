"""The tf.data services that produce the batches of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.config.schema.data import service_addresses, service_problem
from orbit_runner.config.schema.modes import EVALUATING, TRAINING

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig

_SECTIONS = {"train_data": TRAINING, "validation_data": EVALUATING}


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
