"""The recipe for translation. It trains its own SentencePiece model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.model_garden_matrix.data.text import sentences, write_sentencepiece
from tools.model_garden_matrix.data.text_records import write_records
from tools.model_garden_matrix.recipes.nlp_parts import LENGTH, ROWS, Tree, short_run_overrides

LAYERS = {"num_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def _data(path: str, *, training: bool, batch: int) -> dict[str, Any]:
    return {
        "input_path": path,
        "tfds_name": "",
        "tfds_split": "",
        "is_training": training,
        "global_batch_size": batch,
        "max_seq_length": LENGTH,
    }


def translation(folder: Path) -> Tree:
    """Translates sentences to the same words in reverse order.

    The size of training batches is in tokens.
    """
    model = write_sentencepiece(folder / "pieces.model")
    pairs = [{"en": text, "de": " ".join(reversed(text.split()))} for text in sentences(ROWS, 4)]
    path = write_records(folder / "pairs.tfrecord", pairs)
    return short_run_overrides(
        {
            "sentencepiece_model_path": str(model),
            "model": {
                "encoder": LAYERS,
                "decoder": LAYERS,
                "embedding_width": 16,
                "decode_max_length": LENGTH,
                "beam_size": 2,
            },
            "train_data": _data(path, training=True, batch=4 * LENGTH),
            "validation_data": _data(path, training=False, batch=ROWS),
        }
    )


RECIPES: dict[str, Callable[[Path], Tree]] = {"wmt_transformer/large": translation}
