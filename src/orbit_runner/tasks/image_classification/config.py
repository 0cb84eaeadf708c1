"""Config of the image classification task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.config.errors import Problem, not_set, not_supported
from orbit_runner.config.schema.base import Config, config_class, field
from orbit_runner.config.schema.data import training_field, validation_field
from orbit_runner.models.configs import ImageModelConfig
from orbit_runner.registry import IMAGE_MODELS
from orbit_runner.tasks.class_metrics import STANDARD_METRICS, metric_problems
from orbit_runner.tasks.image_classification.data_config import (
    ImageDataConfig,
    ImageSplitConfig,
    enabled_augmentations,
)
from orbit_runner.tasks.shared_config import ClassificationTaskConfig

if TYPE_CHECKING:
    from orbit_runner.data.tables.split import RowSplit


@config_class
class ClassificationLosses(Config):
    """The loss, with the fields of Model Garden's image classification."""

    loss_weight: float = field(1.0, gt=0.0, help="weight of the cross entropy in the loss")
    label_smoothing: float = field(
        0.0,
        ge=0.0,
        le=1.0,
        help="fraction of each label that is spread over all classes; ignored for mixed images",
    )
    l2_weight_decay: float = field(
        0.0,
        ge=0.0,
        help="L2 regularization; half of it times the sum of squared kernels is added to the loss",
    )


@config_class
class ImageClassificationConfig(ClassificationTaskConfig):
    """Image classification with one label per image."""

    model: ImageModelConfig = field(
        factory=ImageModelConfig, help="the model", variants=IMAGE_MODELS
    )
    split: ImageSplitConfig | None = field(
        None,
        help="how images are split into parts, of which each section reads one; null: each section "
        "reads all images of its source",
    )
    train_data: ImageDataConfig = training_field(ImageDataConfig)
    validation_data: ImageDataConfig = validation_field(ImageDataConfig)
    losses: ClassificationLosses = field(factory=ClassificationLosses, help="the loss")
    top_k: int = field(
        5,
        ge=2,
        help="k of the top-k accuracy, computed in evaluation if there are more than k classes",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields settings that are missing or unknown."""
        yield from super().problems()
        taken = (*STANDARD_METRICS["classification"], f"top_{self.top_k}_accuracy")
        yield from metric_problems(self.metrics, taken)
        if not self.train_data.traits.knows_classes and self.model.num_classes is None:
            source = f"`source: {self.train_data.source}`"
            message = f"is not set; {source} does not contain the number of classes"
            yield not_set("model.num_classes", message)
        yield from self._augmentation_problems()

    @property
    def row_split(self) -> RowSplit | None:
        """How images are split into parts, None if they are not."""
        return None if self.split is None else self.split.row_split()

    def _augmentation_problems(self) -> Iterator[Problem]:
        data = self.train_data
        size = self.model.input_size
        fields = [name for name in enabled_augmentations(data) if name != "mixup_and_cutmix"]
        if data.augment == "inception":
            fields.append("augment")
        for name in fields:
            if size is None:
                yield not_set(f"train_data.{name}", "requires model.input_size, which is not set")
            elif name != "augment" and size[-1] != 3:
                message = f"requires images with 3 channels, got {size[-1]}"
                yield not_supported(f"train_data.{name}", message)
