"""Experiments of Model Garden, small enough for two cores, with synthetic data in its formats."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

Tree = dict[str, Any]
VOCABULARY, LENGTH = 200, 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """An experiment.

    Attributes:
        name: The name in tables.
        experiment: The name in Model Garden's registry.
        driver: The module of Model Garden's driver for it.
        changes: Overrides that make the registered experiment small.
        steps: Training steps per round.
        eval_batches: Evaluation batches per round.
    """

    name: str
    experiment: str
    driver: str
    changes: Tree
    steps: int
    eval_batches: int

    @property
    def eval_examples(self) -> int:
        """The number of examples per round of evaluation."""
        task = self.changes.get("task", {})
        batch = task.get("validation_data", {}).get("global_batch_size", 2)
        return self.eval_batches * batch


def _data(path: Path, batch: int, **more: Any) -> Tree:
    def section(split: str, training: bool) -> Tree:
        return {
            "input_path": str(path).replace("SPLIT", split),
            "global_batch_size": batch,
            "is_training": training,
            **more,
        }

    return {
        "train_data": section("train", True),
        "validation_data": section("validation", False),
    }


_SGD = {
    "optimizer": {"type": "sgd", "sgd": {"momentum": 0.9}},
    "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.01}},
}
_ADAMW = {
    "learning_rate": {"polynomial": {"decay_steps": 10000}},
    "warmup": {"polynomial": {"warmup_steps": 100}},
}


def cases(data: Path) -> dict[str, Case]:
    """Returns the experiments by name; `data` is the directory of `official_data.write_all`."""
    vision, nlp = "official.vision.train", "official.nlp.train"
    found = [
        Case(
            name="mock",
            experiment="mock",
            driver=vision,
            changes={"trainer": {"optimizer_config": _SGD}},
            steps=2000,
            eval_batches=500,
        ),
        Case(
            name="image classification",
            experiment="image_classification",
            driver=vision,
            changes={"task": _resnet(data), "trainer": {"optimizer_config": _SGD}},
            steps=12,
            eval_batches=16,
        ),
        Case(
            name="sentence prediction",
            experiment="bert/sentence_prediction",
            driver=nlp,
            changes={"task": _bert(data), "trainer": {"optimizer_config": _ADAMW}},
            steps=60,
            eval_batches=16,
        ),
        Case(
            name="detection",
            experiment="retinanet_resnetfpn_coco",
            driver=vision,
            changes={"task": _retinanet(data), "runtime": {"mixed_precision_dtype": "float32"}},
            steps=4,
            eval_batches=8,
        ),
    ]
    return {case.name: case for case in found}


def _resnet(data: Path) -> Tree:
    return {
        "model": {
            "num_classes": 10,
            "input_size": [32, 32, 3],
            "backbone": {"type": "resnet", "resnet": {"model_id": 18}},
        },
        **_data(data / "images-SPLIT.tfrecord", 32, shuffle_buffer_size=64),
    }


def _bert(data: Path) -> Tree:
    encoder = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": LENGTH,
    }
    return {
        "model": {"num_classes": 2, "encoder": {"type": "bert", "bert": encoder}},
        **_data(data / "sentences-SPLIT.tfrecord", 32, seq_length=LENGTH),
    }


def _retinanet(data: Path) -> Tree:
    sections = _data(data / "boxes-SPLIT.tfrecord", 4, shuffle_buffer_size=16, dtype="float32")
    return {
        "init_checkpoint": "",
        "annotation_file": str(data / "boxes.json"),
        "model": {
            "num_classes": 3,
            "input_size": [128, 128, 3],
            "backbone": {"type": "resnet", "resnet": {"model_id": 18}},
            "decoder": {"type": "fpn", "fpn": {"num_filters": 32}},
            "head": {"num_convs": 1, "num_filters": 32},
        },
        **sections,
    }
