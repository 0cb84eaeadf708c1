"""All recipes of Model Garden's vision experiments, its projects' included."""

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
