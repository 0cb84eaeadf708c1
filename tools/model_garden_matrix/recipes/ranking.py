"""Recipes for the models that rank advertisements: few categories, narrow layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tools.model_garden_matrix.data.text_tables import write_clicks
from tools.model_garden_matrix.recipes.nlp_parts import Tree, short_run_overrides

VOCAB_SIZES = [40, 12, 11, 13]
MULTI_HOT_SIZES = [1, 2, 3, 1]
DENSE = 13
BATCH = 8


def criteo(folder: Path, **model: Any) -> Tree:
    """Predicts clicks."""
    path = write_clicks(folder / "clicks.tsv", 4 * BATCH, DENSE, VOCAB_SIZES)
    sets = {"input_path": path, "global_batch_size": BATCH, "sharding": False}
    sizes = {
        "vocab_sizes": VOCAB_SIZES,
        "embedding_dim": 8,
        "bottom_mlp": [16, 8],
        "top_mlp": [16, 1],
        **model,
    }
    return short_run_overrides(
        {
            "model": sizes,
            "train_data": {**sets, "is_training": True},
            "validation_data": {**sets, "is_training": False},
        }
    )


RECIPES: dict[str, Callable[[Path], Tree]] = {
    "dlrm_criteo": criteo,
    "dcn_criteo": criteo,
    "dlrm_dcn_v2_criteo": partial(criteo, multi_hot_sizes=MULTI_HOT_SIZES, dcn_low_rank_dim=8),
}
