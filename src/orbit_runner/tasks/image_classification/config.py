"""Config of the image-classification task."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from orbit_runner.config.base import Config, setting
from orbit_runner.config.experiment import TaskConfig
from orbit_runner.config.problems import unknown
from orbit_runner.errors import DataError
from orbit_runner.registry import IMAGE_MODELS, SOURCES
from orbit_runner.tasks.image_classification.models import ImageModelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationLosses(Config):
    """The loss; fields of Model Garden's image classification."""

    loss_weight: float = setting(1.0, above=0.0, help="factor of the cross entropy")
    label_smoothing: float = setting(
        0.0, minimum=0.0, maximum=1.0, help="share of the label spread over all classes"
    )
    l2_weight_decay: float = setting(
        0.0, minimum=0.0, help="half this times the squared kernels is added to the loss"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageClassificationConfig(TaskConfig):
    """One label an image."""

    model: ImageModelConfig = setting(
        factory=ImageModelConfig, help="the network", variants=IMAGE_MODELS
    )
    losses: ClassificationLosses = setting(factory=ClassificationLosses, help="the loss")
    top_k: int = setting(5, minimum=2, help="k of the second accuracy, for k+1 classes or more")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields what is missing or does not exist."""
        yield from super().problems()
        if not self.model.name:
            known = ", ".join(entry.name for entry in IMAGE_MODELS.entries())
            yield "model.name", f"is not set\nallowed: {known}"
        for section in ("train_data", "validation_data"):
            data = getattr(self, section)
            known_sources = [entry.name for entry in SOURCES.entries()]
            if data.source not in known_sources:
                yield f"{section}.source", unknown("data source", data.source, known_sources)
        if self.train_data.source == "tfrecord" and self.model.num_classes is None:
            yield "model.num_classes", "is not set; TFRecord files do not say how many labels exist"

    def preflight(self) -> Iterator[tuple[str, str]]:
        """Yields what is wrong with the data sets' files."""
        from orbit_runner.tasks.image_classification.sources import image_spec, load_source, misfits

        sources = {}
        for section in ("train_data", "validation_data"):
            try:
                source = load_source(getattr(self, section))
                image_spec(source)
                sources[section] = source
            except DataError as error:
                yield f"{section}.{error.field}", str(error)
        yield from misfits(sources, self.model.num_classes)

    def image_shape(self, section: str) -> tuple[int, int, int] | None:
        """Returns height, width and channels of a section's images.

        Args:
            section: `train_data` or `validation_data`.

        Returns:
            The shape; None where the data set cannot be read, which `preflight` tells.
        """
        from orbit_runner.tasks.image_classification.sources import image_spec, load_source

        try:
            shape, _ = image_spec(load_source(getattr(self, section)))
        except DataError:
            return None
        height, width, channels = shape
        return height, width, channels
