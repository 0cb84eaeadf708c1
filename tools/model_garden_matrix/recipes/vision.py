"""All recipes for Model Garden's vision experiments, including those of its projects."""

from __future__ import annotations

from tools.model_garden_matrix.recipes import (
    vision_classification,
    vision_detection,
    vision_segmentation,
    vision_video,
)
from tools.model_garden_matrix.recipes.vision_common import Recipe

RECIPES: dict[str, Recipe] = {
    **vision_classification.RECIPES,
    **vision_detection.RECIPES,
    **vision_segmentation.RECIPES,
    **vision_video.RECIPES,
}
