"""Config of the tasks that train a registered network on a source of data by its name."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_runner.config.errors import Problem, not_set
from orbit_runner.config.schema.base import config_class
from orbit_runner.config.schema.data import source_registry
from orbit_runner.config.schema.experiment import TaskConfig
from orbit_runner.tasks.imbalance.config import source_problems

SECTIONS = ("train_data", "validation_data")


@config_class
class NetworkTaskConfig(TaskConfig):
    """A task whose `model` and `source` are names in registries."""

    def problems(self) -> Iterator[Problem]:
        """Yields a model without a name, and unknown sources."""
        yield from super().problems()
        if not self.model.name:
            registry = type(self).__dataclass_fields__["model"].metadata["variants"]
            known = ", ".join(entry.name for entry in registry.entries())
            yield not_set("model.name", f"is not set\nallowed: {known}")
        # Without a source of its own, the validation data of a table have that of the training.
        has_source = self.train_data.source or self.validation_data.source
        for section in SECTIONS if has_source else SECTIONS[:1]:
            data = getattr(self, section)
            known_sources = [entry.name for entry in source_registry(data).entries()]
            yield from source_problems(section, data, known_sources)
